"""Grafts in memory equal grafts on disk; the tables say what the episodes say."""

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from headroom.agent.episode import Ending, Episode
from headroom.config.models import Graft, Statistics
from headroom.measure.edit import Swap
from headroom.measure.graft import overlay, play_grafts
from headroom.measure.graft_build import write_graft
from headroom.measure.graft_plan import Planned, plan
from headroom.measure.graft_tables import graft_table, interaction_table, success_table
from headroom.measure.statistics import smallest_sign_test_effect
from headroom.measure.weights import open_checkpoint

RULE = Statistics(bootstrap_draws=200)


@pytest.fixture(params=["tied", "tied head stored", "untied, sharded"])
def pair(request, make_checkpoint, store_tied_head):
    untied = request.param.startswith("untied")
    folders = [make_checkpoint(seed=seed, tied=not untied, shards=untied)[1] for seed in (0, 10)]
    if request.param == "tied head stored":
        for folder in folders:
            store_tied_head(folder)
    return [open_checkpoint(folder) for folder in folders]


def test_every_planned_graft_in_memory_equals_the_one_written_to_disk(pair, tmp_path):
    sft, rl = pair
    model = AutoModelForCausalLM.from_pretrained(sft.folder)
    for number, graft in enumerate(plan(sft, rl, Graft(control_draws=1))):
        base, donor = graft.pair(sft, rl)
        overlay(model, graft.edit, base, donor)
        write_graft(base, donor, graft.edit, tmp_path / str(number))
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / str(number)).state_dict()
        held = model.state_dict()
        assert held.keys() == loaded.keys()
        for name in loaded:
            assert torch.equal(held[name], loaded[name]), (graft.name, name)


def test_the_plan_goes_both_ways_with_pairs_and_matched_controls(pair):
    sft, rl = pair
    planned = {graft.name: graft for graft in plan(sft, rl, Graft(bands=2, control_draws=2))}
    assert len(planned) == 2 + 2 * (len([n for n in planned if n.startswith("sufficiency/")]))
    for direction in ("sufficiency", "necessity"):
        parts = [planned[f"{direction}/{name}"] for name in ("attention", "mlp", "attention+mlp")]
        assert parts[0].parameters + parts[1].parameters == parts[2].parameters
        assert parts[0].delta_norm ** 2 + parts[1].delta_norm ** 2 == pytest.approx(parts[2].delta_norm ** 2)
        for draw in (0, 1):
            control = planned[f"{direction}/attention+mlp/control-{draw}"]
            assert (control.parameters, control.delta_norm) == (parts[2].parameters, parts[2].delta_norm)
    seeds = {graft.edit.seed for graft in planned.values() if graft.kind == "control"}
    assert len(seeds) == 8  # four unions x two draws; both directions move the same places
    assert ("sufficiency/head" in planned) == ("lm_head.weight" in sft.parameters)


def test_a_model_that_the_files_do_not_cover_is_refused(make_checkpoint):
    sft = open_checkpoint(make_checkpoint(seed=0)[1])
    model, _ = make_checkpoint(seed=1, layers=3)
    with pytest.raises(ValueError, match=r"tensor model.layers.2\S+ of the loaded model is in no file"):
        overlay(model, Swap(frozenset()), sft, sft)


TASKS = ("a", "b", "c", "d", "e", "f", "g")
SEEDS = range(5)


def episodes_of(rates: dict[str, float]) -> list[Episode]:
    """Success on the first pages of each task, so many that its share is as given."""
    return [
        Episode(task, seed, 0, (), float(seed < round(rate * 5)), seed < round(rate * 5), Ending.DONE)
        for task, rate in rates.items()
        for seed in SEEDS
    ]


def by_damage(planned, hurt):
    """Play grafts of a world in which the run broke tasks a to d, and only ``hurt(graft)`` says how much remains."""

    def play(name):
        share = {"sft": 0.0, "rl": 1.0}.get(name)
        graft = next(g for g in planned if g.name == name)
        left = hurt(graft) if share is None else share
        return episodes_of({task: 1.0 - (0.8 * left if task in "abcd" else 0.0) for task in TASKS})

    return play


@pytest.fixture
def dissociation(make_checkpoint):
    sft, rl = (open_checkpoint(make_checkpoint(seed=seed)[1]) for seed in (0, 10))
    planned = list(plan(sft, rl, Graft(control_draws=2)))

    def hurt(graft: Planned) -> float:  # attention and mlp carry half the damage each, nothing else any
        carried = 0.5 * len({"attention", "mlp"} & set(graft.groups)) if graft.kind != "control" else 0.0
        return 1.0 - carried if graft.direction == "necessity" else carried

    model = AutoModelForCausalLM.from_pretrained(sft.folder)
    frame = play_grafts(model, sft, rl, planned, by_damage(planned, hurt), {"mastered": TASKS})
    return frame, planned


def test_shares_controls_and_broken_tasks_tell_the_story_of_a_known_dissociation(dissociation):
    frame, planned = dissociation
    table = graft_table(frame, planned, Graft(), RULE).set_index("graft")
    for direction in ("sufficiency", "necessity"):
        for groups, share in (("attention", 0.5), ("mlp", 0.5), ("attention+mlp", 1.0), ("embedding", 0.0)):
            row = table.loc[f"{direction}/{groups}"]
            assert row["share"] == pytest.approx(share)
            assert row["share_ci_low"] == pytest.approx(share)
        sign = -1 if direction == "sufficiency" else 1
        pair = table.loc[f"{direction}/attention+mlp"]
        assert sign * pair["difference_to_control"] == pytest.approx(0.8 * 4 / 7)
        assert pair["controls"] == 2
        low, high = sorted(sign * pair[column] for column in ("control_ci_low", "control_ci_high"))
        assert 0 < low < high
        assert table.loc[f"{direction}/embedding", "difference_to_control"] == 0, "as inert as any edit of its size"
        assert np.isnan(table.loc[f"{direction}/norms", "difference_to_control"])
    assert (table["broken_tasks"] == 4).all()
    shares = table.loc[[f"necessity/{name}" for name in ("embedding", "attention", "mlp", "norms")], "parameter_share"]
    assert shares.sum() == pytest.approx(1)
    assert table.loc["rl", "broken_success"] == pytest.approx(0.2)
    assert table.loc["necessity/attention+mlp", "broken_success"] == pytest.approx(1.0)
    assert table.loc["sft", "difference_to_sft"] == 0
    assert table.loc["sft", "sft_mcnemar_p"] == 1
    assert table.loc["rl", "sft_mcnemar_p"] < 0.001


def test_the_interaction_of_additive_groups_is_zero_and_of_a_joint_effect_is_not(dissociation):
    frame, planned = dissociation
    additive = interaction_table(frame, planned, Graft(), RULE)
    assert additive["direction"].tolist() == ["sufficiency", "necessity"]
    np.testing.assert_allclose(additive["interaction"], 0, atol=1e-12)

    joint = frame.copy()
    alone = joint["policy"].isin(["sufficiency/attention", "sufficiency/mlp"])
    joint.loc[alone, "success"] = joint.loc[joint["policy"] == "sft", "success"].to_numpy().tolist() * 2
    found = interaction_table(joint, planned, Graft(), RULE).set_index("direction").loc["sufficiency"]
    assert found["interaction"] == pytest.approx(-0.8 * 4 / 7)
    assert found["ci_high"] < 0
    table = graft_table(joint, planned, Graft(), RULE).set_index("graft")
    assert table.loc["sufficiency/attention+mlp", "interaction"] == found["interaction"]
    assert table.loc["sufficiency/attention+mlp", "interaction_ci_high"] == found["ci_high"]
    assert table["interaction"].notna().sum() == 2, "the two rows of the pair, and no other"


def test_every_difference_has_an_equivalence_test_and_a_detectable_effect(dissociation):
    frame, planned = dissociation
    table = graft_table(frame, planned, Graft(), RULE).set_index("graft")
    for end in ("sft", "rl"):
        assert table[f"{end}_minimum_detectable_effect"].between(0, 1).all()
        assert table[f"{end}_tost_p"].notna().all()
    # Nothing changed on 35 pages: an exact sign test finds a change of a fifth of them, not one of five points.
    null = table.loc["sufficiency/embedding"]
    assert null["difference_to_sft"] == 0
    assert null["sft_minimum_detectable_effect"] == pytest.approx(smallest_sign_test_effect(35, 0.95, 0.8))
    assert null["sft_tost_p"] > 0.05
    with_controls = table["controls"] > 0
    assert table.loc[with_controls, "control_minimum_detectable_effect"].notna().all()
    assert table.loc[~with_controls, "control_minimum_detectable_effect"].isna().all()
    assert interaction_table(frame, planned, Graft(), RULE)["minimum_detectable_effect"].notna().all()


def test_fewer_pages_detect_only_larger_effects(dissociation):
    frame, planned = dissociation
    effects = [
        graft_table(part, planned, Graft(), RULE).set_index("graft")["sft_minimum_detectable_effect"]
        for part in (frame, frame[frame["seed"] < 2])
    ]
    assert effects[1]["sufficiency/embedding"] > effects[0]["sufficiency/embedding"]


def test_a_page_lost_by_one_graft_counts_for_none(dissociation):
    frame, planned = dissociation
    frame = frame.copy()
    lost = (frame["policy"] == "necessity/mlp") & (frame["task"] == "a") & (frame["seed"] == 3)
    frame.loc[lost, "ending"] = str(Ending.INFRASTRUCTURE)
    success, excluded = success_table(frame)
    assert excluded == 1
    assert ("a", 3) not in success.index
    assert len(success) == len(TASKS) * len(SEEDS) - 1
    with pytest.raises(ValueError, match="not played on the same pages"):
        success_table(frame[~lost])
    assert (graft_table(frame, planned, Graft(), RULE)["excluded"] == 1).all()


def test_a_run_without_damage_has_no_shares(dissociation):
    frame, planned = dissociation
    equal = frame.copy()
    equal["success"] = True
    table = graft_table(pd.DataFrame(equal), planned, Graft(), RULE)
    assert table["share"].isna().all()
    assert (table["broken_tasks"] == 0).all()
    assert table["broken_success"].isna().all()
