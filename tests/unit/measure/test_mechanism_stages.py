"""The stages that take checkpoints apart, from the settings file to the written directory, on tiny real checkpoints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_episodes import episode
from test_graft_build import FAULTS

import headroom.measure.play as play
import headroom.policy.load as load
import headroom.worlds.miniwob.world as miniwob
from headroom.agent.episode import Episode
from headroom.config.jobs import EvaluateJob, GraftJob, RankJob, dump_job
from headroom.config.models import Evaluation, Graft, MiniWobSettings, Rank, Statistics, Strict, WorldSettings
from headroom.files import write_json, write_parquet, write_text
from headroom.measure import evaluate, graft, rank
from headroom.measure.probe_turns import tokenizer_digest
from headroom.worlds.seeds import pool

SETS = {"mastered": ("a", "b", "c"), "headroom": ("h",)}
STATISTICS = Statistics(bootstrap_draws=100)


class FakePlayerOfTheWeights:
    """A stand-in for a policy in a browser: success is a hash of the model's weights, the task and the page.

    Two models play alike if their weights are equal, bit for bit, and hardly otherwise.
    """

    def __init__(self, world: Any, policy: Any, sampler: Any, settings: WorldSettings, **options: Any) -> None:
        self.model, self.sampler = policy.model, sampler

    def greedy(self, tasks: Sequence[str], seeds: Sequence[int]) -> list[Episode]:
        digest = hashlib.sha256()
        for _, parameter in sorted(self.model.named_parameters()):
            digest.update(parameter.detach().numpy().tobytes())
        weights = digest.hexdigest()

        def succeeds(task: str, seed: int) -> bool:
            return hashlib.sha256(f"{weights} {task} {seed}".encode()).digest()[0] % 2 == 0

        return [episode(task, seed, success=succeeds(task, seed)) for task in tasks for seed in seeds]

    def sampled(
        self, tasks: Sequence[str], seeds: Sequence[int], samples: int, temperature: float = 1.0
    ) -> list[Episode]:
        return []


class NoBrowser:
    """A world that nobody asks anything."""

    def __init__(self, settings: WorldSettings) -> None:
        pass

    def counts(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        pass


class Study:
    """A supervised checkpoint and a trained one, and the stages that read them."""

    def __init__(self, folder: Path, make_checkpoint: Callable[..., Any]) -> None:
        self.results = folder / "results" / "tiny"
        self.sft, self.rl = (make_checkpoint(seed=seed)[1] for seed in (0, 10))
        for checkpoint in (self.sft, self.rl):
            write_text(checkpoint / "tokenizer.json", json.dumps({"model": {"vocab": {"a": 0}}, "added_tokens": []}))
        self.sets = self.results / "select" / "task_sets.json"
        write_json(self.sets, SETS)

    def config(self, name: str, job: Strict) -> Path:
        write_text(self.results / "config" / f"{name}.json", dump_job(job))
        return self.results / "config" / f"{name}.json"

    def graft(self) -> Path:
        job = GraftJob(
            policy="grid-11",
            regime="collapse",
            world=MiniWobSettings(),
            evaluation=Evaluation(seeds=6),
            graft=Graft(seeds=4, bands=2, control_draws=1),
            statistics=STATISTICS,
        )
        output = self.results / "graft" / "grid-11"
        graft.main(self.config("graft/grid-11", job), self.sft, self.rl, self.sets, output)
        return output

    def evaluate(self, policy: str, checkpoint: Path) -> pd.DataFrame:
        job = EvaluateJob(
            policy=policy,
            world=MiniWobSettings(),
            evaluation=Evaluation(seeds=6),
            greedy_on=("mastered",),
            sampled_on=(),
        )
        output = self.results / "evaluate" / policy
        evaluate.main(self.config(f"evaluate/{policy}", job), checkpoint, self.sets, output)
        return pd.read_parquet(output / "episodes.parquet")

    def rank(self) -> Path:
        random = np.random.default_rng(0)
        turns = pd.DataFrame({"episode": [0, 0, 1, 1, 2]})
        turns["prompt_ids"] = [random.integers(2, 40, size=6).tolist() for _ in range(5)]
        turns["action_ids"] = [[3, 4]] * 5
        write_parquet(self.results / "probe" / "probe.parquet", turns)
        write_json(
            self.results / "probe" / "probe.json", {"tokenizer": tokenizer_digest(self.sft), "dialect": "web pages"}
        )
        job = RankJob(policy="grid-11", rank=Rank(bootstrap_draws=5), statistics=STATISTICS)
        output = self.results / "rank" / "grid-11"
        rank.main(self.config("rank/grid-11", job), self.rl, self.sft, self.results / "probe", output)
        return output


@pytest.fixture
def study(tmp_path: Path, make_checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Study:
    from transformers import AutoModelForCausalLM

    def load_without_codec(folder: Path) -> SimpleNamespace:
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        return SimpleNamespace(model=model, codec=SimpleNamespace(end_ids=(1,)), path=folder)

    monkeypatch.setattr(load, "load_policy", load_without_codec)
    monkeypatch.setattr(play, "PolicyPlayer", FakePlayerOfTheWeights)
    monkeypatch.setattr(miniwob, "MiniWob", NoBrowser)
    return Study(tmp_path, make_checkpoint)


def test_grafts_are_played_on_the_first_pages_of_the_evaluation_and_end_in_the_evaluated_policies(study: Study) -> None:
    played = pd.read_parquet(study.graft() / "episodes.parquet")
    for policy, checkpoint in (("sft", study.sft), ("rl", study.rl)):
        evaluated = study.evaluate(policy, checkpoint).set_index(["task", "seed"])
        own = played[played["policy"] == policy].set_index(["task", "seed"])
        pages = list(pool("evaluation", 6))
        assert sorted(evaluated.index.unique("seed")) == sorted(pages)
        assert sorted(own.index.unique("seed")) == sorted(pages[:4])
        assert own["success"].equals(evaluated.loc[own.index, "success"])
    outcomes = played.pivot(index=["task", "seed"], columns="policy", values="success")
    assert not outcomes["sft"].equals(outcomes["rl"]), "the two endpoints are told apart"


def test_the_endpoints_differ_from_themselves_by_nothing(study: Study) -> None:
    folder = study.graft()
    table = pd.read_csv(folder / "grafts.csv").set_index("graft")
    assert table.loc["sft", "difference_to_sft"] == 0
    assert table.loc["rl", "difference_to_rl"] == 0
    assert set(table["policy"]) == {"grid-11"}
    assert (folder / "interactions.csv").is_file()


def test_a_graft_without_finite_probabilities_is_played_as_an_evaluation_plays_it(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    samplers = []

    class Watched(FakePlayerOfTheWeights):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            samplers.append(type(self.sampler))

    monkeypatch.setattr(play, "PolicyPlayer", Watched)
    study.graft()
    study.evaluate("sft", study.sft)
    assert set(samplers) == {play.SilentWhenBroken}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stage", ["graft", "rank"])
def test_a_bad_checkpoint_ends_a_stage_in_one_line_and_nothing_is_written(study: Study, stage: str, fault: str) -> None:
    damage, message = FAULTS[fault]
    damage(study.rl)
    with pytest.raises(SystemExit, match=message) as caught:
        getattr(study, stage)()
    said = str(caught.value)
    assert study.rl.name in said, "the line names the checkpoint"
    assert "\n" not in said
    assert not [path for path in (study.results / stage / "grid-11").rglob("*") if path.is_file()]


@pytest.mark.parametrize("whose", ["sft", "rl"])
@pytest.mark.parametrize("stage", ["graft", "rank"])
def test_a_checkpoint_of_another_world_or_of_none_ends_a_stage_in_one_line_before_a_world_opens(
    study: Study, monkeypatch: pytest.MonkeyPatch, stage: str, whose: str
) -> None:
    monkeypatch.setattr("headroom.worlds.open.open_world", lambda *_: pytest.fail("the world was opened"))
    monkeypatch.setattr(rank, "LayerWalk", lambda *_, **__: pytest.fail("a layer was read"))
    said = getattr(study, whose) / "agent.json"
    said.write_text('{"dialect": "text game"}')
    with pytest.raises(SystemExit, match=r"the checkpoint speaks the dialect 'text game', but .* 'web pages'"):
        getattr(study, stage)()
    said.unlink()
    with pytest.raises(SystemExit, match=r"agent\.json is missing; the checkpoint is incomplete"):
        getattr(study, stage)()
    assert not [path for path in (study.results / stage / "grid-11").rglob("*") if path.is_file()]


@pytest.fixture
def with_adapter(study: Study) -> Study:
    """The study with a LoRA adapter, as PEFT writes it and without a tokenizer of its own, in the run's place."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(study.sft)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        wrapped = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False))
    study.rl = study.results / "grpo" / "grid-11" / "checkpoint"
    wrapped.save_pretrained(str(study.rl))
    return study


def test_a_run_that_trained_an_adapter_is_grafted_by_switching_its_modules(with_adapter: Study) -> None:
    folder = with_adapter.graft()
    table = pd.read_csv(folder / "grafts.csv", keep_default_na=False)
    swaps = table[table["kind"].isin(["group", "pair"])]
    assert set(swaps["groups"]) == {"attention", "mlp", "early", "late", "attention+mlp"}, "no module elsewhere"
    assert set(table.loc[table["kind"] == "control", "groups"]) == {"attention", "mlp", "attention+mlp"}
    both = swaps.set_index("graft")
    for way in ("sufficiency", "necessity"):
        parts = [both.loc[f"{way}/{name}", "delta_norm"] for name in ("attention", "mlp", "attention+mlp")]
        assert parts[0] > 0
        assert parts[1] > 0
        assert np.hypot(*parts[:2]) == pytest.approx(parts[2])
    played = pd.read_parquet(folder / "episodes.parquet").pivot(
        index=["task", "seed"], columns="policy", values="success"
    )
    # All modules off is the supervised policy to the bit, all on is the run: the fake player tells weights apart.
    assert played["necessity/attention+mlp"].equals(played["sft"].rename("necessity/attention+mlp"))
    assert played["sufficiency/attention+mlp"].equals(played["rl"].rename("sufficiency/attention+mlp"))
    assert not played["sft"].equals(played["rl"])
    evaluated = with_adapter.evaluate("sft", with_adapter.sft).set_index(["task", "seed"])["success"]
    assert played["sft"].equals(evaluated.loc[played.index].rename("sft"))


def test_the_rank_stage_reads_an_adapters_updates_from_its_factors_and_its_states_with_the_adapter_on(
    with_adapter: Study,
) -> None:
    output = with_adapter.rank()
    drift = pd.read_csv(output / "drift.csv")
    moved = drift[(drift["scope"] == "tensor") & (drift["delta_norm"] > 0)]
    assert len(moved) == 4
    assert moved["effective_rank"].between(1, 2).all()
    assert drift["sharp"].all()
    agreement = pd.read_csv(output / "agreement.csv").set_index(["measure", "site", "layer", "tokens"])["value"]
    assert agreement["cka", "embedding", -1, "all"] == pytest.approx(1), "the adapter leaves the embedding alone"
    assert agreement["cka", "block", 1, "all"] < 0.999
    assert agreement["kl_policy_reference", "logits", 3, "action_tokens"] > 0
    assert len(pd.read_csv(output / "rank.csv")) == 4 * 3 * 2


@pytest.mark.parametrize("stage", ["graft", "rank"])
def test_an_adapter_that_does_not_fit_ends_a_stage_in_one_line_and_nothing_is_written(
    with_adapter: Study, stage: str
) -> None:
    weights = with_adapter.rl / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(SystemExit, match=r"adapter_model.safetensors: truncated: tensor \S+ needs \d+ bytes") as caught:
        getattr(with_adapter, stage)()
    assert "\n" not in str(caught.value)
    assert not [path for path in (with_adapter.results / stage / "grid-11").rglob("*") if path.is_file()]


def test_good_checkpoints_write_the_tables_of_the_rank_stage(study: Study) -> None:
    output = study.rank()
    assert {path.name for path in output.glob("*.csv")} == {"rank.csv", "agreement.csv", "drift.csv"}
