"""The stage mains, from the settings file to the written directory, with a player whose chances are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_reading import FakePlayer

from headroom.config.jobs import ContrastJob, EvaluateJob, ReadingJob, SelectJob, dump_job
from headroom.config.models import Evaluation, MiniWobSettings, Statistics, Strict, Tasks
from headroom.files import write_json, write_text
from headroom.measure import contrast, evaluate, reading, select
from headroom.measure.task_sets import read_task_sets

CHANCES = {**{f"m{n}": (0.9, 0.8) for n in range(3)}, **{f"h{n}": (0.2, 0.5) for n in range(3)}}
EVALUATION = Evaluation(seeds=10, samples=4, pass_at=(1, 4))
STATISTICS = Statistics(bootstrap_draws=200)
RUNS = "\n".join(
    [
        "run family tasks init learning_rate schedule kl_beta clip_low clip_high group_size seed",
        "grid-01 grid mastered sft low constant 0 0.2 0.28 8 0",
        "grid-02 grid mastered sft low constant 0 0.2 0.28 8 1",
    ]
).replace(" ", "\t")


class Study:
    """A results folder in which the stages run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.chances = CHANCES
        self.results = folder / "results" / "tiny"
        self.checkpoint = self.results / "checkpoint"
        write_text(self.checkpoint / "config.json", "{}")

    def config(self, name: str, job: Strict) -> Path:
        path = self.results / "config" / f"{name}.json"
        write_text(path, dump_job(job))
        return path

    def select(self) -> Path:
        rule = Tasks(candidates=tuple(self.chances), mastered=2, headroom=2, selection_seeds=10, samples=4)
        job = SelectJob(world=MiniWobSettings(), tasks=rule)
        select.main(self.config("select", job), self.checkpoint, self.results / "select")
        return self.results / "select" / "task_sets.json"

    def evaluate(self, policy: str) -> Path:
        job = EvaluateJob(
            policy=policy,
            world=MiniWobSettings(),
            evaluation=EVALUATION,
            greedy_on=("mastered", "headroom"),
            sampled_on=("headroom",),
        )
        output = self.results / "evaluate" / policy
        sets = self.results / "select" / "task_sets.json"
        evaluate.main(self.config(f"evaluate/{policy}", job), self.checkpoint, sets, output)
        return output


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    made = Study(tmp_path)

    @contextmanager
    def open_fake(*arguments: Any, **options: Any) -> Iterator[FakePlayer]:
        yield FakePlayer(made.chances)

    for stage in (select, evaluate, reading):
        monkeypatch.setattr(stage, "open_player", open_fake)
    return made


def test_selection_writes_the_sets_the_reasons_and_the_episodes(study: Study) -> None:
    sets = json.loads(study.select().read_text())
    assert sets.pop("filled") == {"mastered": [], "headroom": []}
    assert sets.pop("all") == sorted(CHANCES)
    assert {name: len(tasks) for name, tasks in sets.items()} == {"mastered": 2, "headroom": 2}
    assert all(task.startswith("m") for task in sets["mastered"])
    tasks = pd.read_csv(study.results / "select" / "tasks.csv")
    assert sorted(tasks["task"]) == sorted(CHANCES)
    assert tasks["reason"].notna().all()
    episodes = pd.read_parquet(study.results / "select" / "episodes.parquet")
    assert len(episodes) == 6 * 10 * 5
    assert set(episodes.loc[episodes["task_set"] == "mastered", "task"]) == set(sets["mastered"])


def test_selection_names_the_places_that_no_candidate_qualified_for(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    study.chances = {"m0": (1.0, 1.0), "m1": (0.9, 0.8), "h0": (0.2, 0.5), "h1": (0.0, 0.0)}
    path = study.select()
    assert json.loads(path.read_text())["filled"] == {"mastered": [], "headroom": ["h1"]}
    assert read_task_sets(path)["headroom"] == ("h0", "h1")
    assert "headroom: 1 of 2 places by the rule; filled with the nearest: h1" in capsys.readouterr().out
    assert json.loads((path.parent / "run.json").read_text())["notes"]["headroom chosen by the rule"] == 1


def test_the_reading_writes_a_table_and_sentences(study: Study) -> None:
    sets = study.select()
    job = ReadingJob(world=MiniWobSettings(), evaluation=EVALUATION, statistics=STATISTICS)
    reading.main(study.config("reading", job), study.checkpoint, sets, study.results / "reading")
    table = pd.read_csv(study.results / "reading" / "reading.csv")
    assert table["name"].tolist()[:2] == ["mastered", "headroom"]
    assert len(table) == 6
    text = (study.results / "reading" / "reading.txt").read_text().splitlines()
    assert [line.split()[0] for line in text] == ["mastered", "headroom", "Limits:"]
    notes = json.loads((study.results / "reading" / "run.json").read_text())["notes"]
    assert {"mastered", "headroom", "excluded pages"} <= notes.keys()


def test_evaluations_end_in_contrasts_and_equal_policies_differ_by_nothing(study: Study) -> None:
    sets = study.select()
    folders = [study.evaluate(policy) for policy in ("sft", "grid-01", "grid-02")]
    write_text(study.results / "runs.tsv", RUNS + "\n")
    job = ContrastJob(statistics=STATISTICS, learning_rates={"low": 1e-4})
    output = study.results / "contrast"
    contrast.main(folders, study.config("contrast", job), study.results / "runs.tsv", folders[0], sets, output)
    table = pd.read_csv(output / "contrasts.csv")
    assert sorted(set(table["policy"])) == ["grid-01", "grid-02"]  # the reference is not contrasted with itself
    assert (table["difference"] == 0).all()
    assert (table["learning_rate"] == 1e-4).all()
    assert len(pd.read_csv(output / "replication.csv")) == 3  # mastered greedy, headroom greedy and sampled
    assert len(pd.read_csv(output / "task_contrasts.csv")) == 2 * (4 + 2)


def test_the_same_job_writes_the_same_bytes(study: Study) -> None:
    study.select()
    manifests = [(study.evaluate("sft") / "manifest.json").read_bytes() for _ in range(2)]
    assert manifests[0] == manifests[1]


def test_a_policy_given_twice_is_one_clear_error(study: Study) -> None:
    sets = study.select()
    sft, run = study.evaluate("sft"), study.evaluate("grid-01")
    write_text(study.results / "runs.tsv", RUNS + "\n")
    config = study.config("contrast", ContrastJob(statistics=STATISTICS))
    with pytest.raises(SystemExit, match="each policy once"):
        contrast.main([run, run], config, study.results / "runs.tsv", sft, sets, study.results / "contrast")
    assert not list((study.results / "contrast").glob("*.csv"))


def test_an_evaluation_on_an_empty_set_stops_before_it_starts(study: Study) -> None:
    write_json(study.results / "select" / "task_sets.json", {"mastered": ["m0"], "headroom": []})
    with pytest.raises(SystemExit, match="headroom is empty"):
        study.evaluate("sft")
