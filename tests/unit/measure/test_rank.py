"""Ranks of hidden states: token choices, resampling over episodes, and the tables of a whole measurement."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.config.models import Rank
from headroom.measure.hidden import MEASURES, REASONS, episode_weights, rank_intervals, resampled_spectra, rows_of
from headroom.measure.probe_turns import ProbeTurns, tokenizer_digest
from headroom.measure.rank import check_tokenizers, measure
from headroom.measure.spectrum import matrix_ranks, ranks
from headroom.measure.weights import open_checkpoint


def test_the_three_token_choices_pick_the_rows_they_name():
    states = [np.arange(6, dtype=np.float32).reshape(3, 2), np.full((2, 2), 9, dtype=np.float32)]
    positions, episode = [np.array([1, 2]), np.array([0])], np.array([4, 7])
    mean, owner = rows_of(states, "mean", positions, episode)
    assert mean.tolist() == [[2, 3], [9, 9]]
    assert owner.tolist() == [4, 7]
    action, _ = rows_of(states, "action", positions, episode)
    assert action.tolist() == [[2, 3], [9, 9]]
    every, owner = rows_of(states, "all", positions, episode)
    assert every.shape == (5, 2)
    assert owner.tolist() == [4, 4, 4, 7, 7]
    with pytest.raises(ValueError, match="no token choice 'some'"):
        rows_of(states, "some", positions, episode)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=6), st.integers(1, 20), st.booleans(), st.integers(0, 2**31))
def test_resampled_spectra_equal_those_of_matrices_with_repeated_rows(sizes, width, centred, seed):
    rng = np.random.default_rng(seed)
    episode = np.repeat(np.arange(len(sizes)), sizes)
    rows = rng.standard_normal((len(episode), width)) + 3.0
    weights = episode_weights(len(sizes), 5, seed)
    for squared, times in zip(resampled_spectra(rows, episode, weights, centred=centred), weights, strict=True):
        repeated = np.repeat(rows, times[episode].astype(int), axis=0)
        expected = matrix_ranks(repeated, centred=centred)
        if expected.participation_ratio > 0 and len(np.unique(repeated, axis=0)) > 1:
            assert ranks(squared).participation_ratio == pytest.approx(expected.participation_ratio, rel=1e-6)
            assert ranks(squared).effective_rank == pytest.approx(expected.effective_rank, rel=1e-4)


@pytest.mark.parametrize("measure_name", MEASURES)
def test_the_interval_surrounds_the_estimate_and_shrinks_with_more_episodes(measure_name):
    rng = np.random.default_rng(0)
    widths = []
    for episodes in (10, 160):
        rows = rng.standard_normal((episodes * 4, 8)) * np.geomspace(1, 0.1, 8)
        episode = np.repeat(np.arange(episodes), 4)
        every = rank_intervals(rows, episode, episode_weights(episodes, 200, 1), centred=True, confidence=0.95)
        assert every.reason == "bootstrap"
        found = every.of[measure_name]
        estimate = getattr(matrix_ranks(rows, centred=True), measure_name)
        assert found.low < estimate < found.high
        assert abs(found.bias) < 0.15
        widths.append(found.high - found.low)
    assert widths[1] < widths[0] / 2


def test_the_three_intervals_are_read_from_one_set_of_resampled_spectra():
    rng = np.random.default_rng(3)
    rows, episode, weights = rng.standard_normal((40, 6)), np.repeat(np.arange(10), 4), episode_weights(10, 50, 1)
    found = rank_intervals(rows, episode, weights, centred=False, confidence=0.9)
    draws = [ranks(squared) for squared in resampled_spectra(rows, episode, weights, centred=False)]
    for name in MEASURES:
        own = np.array([getattr(draw, name) for draw in draws])
        estimate = getattr(matrix_ranks(rows), name)
        shift = estimate / np.exp(np.log(own).mean())  # the draws, moved to the estimate
        expected = np.exp(np.quantile(np.log(own), [0.05, 0.95])) * shift
        assert [found.of[name].low, found.of[name].high] == pytest.approx(expected.tolist())


@pytest.mark.parametrize(
    ("rows", "up_to", "reason"),
    [
        (np.random.default_rng(0).standard_normal((20, 30)), 19, "too large to resample"),
        (np.full((20, 4), np.nan), 512, "not finite"),
        (np.full((20, 4), 1e200), 512, "not finite"),
        (np.eye(20)[:, :4], 512, "a draw has rank zero"),
    ],
)
def test_where_there_is_no_interval_the_reason_stands_in_its_place(rows, up_to, reason):
    weights = np.zeros((3, 20))
    weights[:, 19] = 20.0  # a resample of one episode, whose row may be zero
    with np.errstate(over="ignore", invalid="ignore"):
        found = rank_intervals(rows, np.arange(20), weights, centred=False, confidence=0.95, up_to=up_to)
    assert found.reason == reason
    assert reason in REASONS
    for name in MEASURES:
        own = found.of[name]
        assert np.isnan([own.low, own.high, own.bias]).all()


@pytest.fixture
def probe(make_checkpoint):
    pair = []
    for seed in (0, 10):
        _, folder = make_checkpoint(seed=seed)
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}}, "added_tokens": []}))
        pair.append(open_checkpoint(folder))
    rng = np.random.default_rng(2)

    def ids(n):
        return rng.integers(2, 40, size=n).astype(np.int32)

    turns = ProbeTurns(
        prompts=tuple(ids(n) for n in (5, 7, 6, 9, 4, 8)),
        actions=tuple(ids(n) for n in (2, 3, 1, 2, 4, 2)),
        episode=np.array([3, 3, 5, 5, 8, 9]),
        tokenizer=tokenizer_digest(pair[0].folder),
        dialect="web pages",
    )
    return pair, turns


def test_a_measurement_holds_every_site_and_choice_and_one_primary_row(probe):
    (policy, reference), turns = probe
    ranks_table, agreement = measure(policy, reference, turns, Rank(bootstrap_draws=10), 0.95)
    assert len(ranks_table) == 4 * 3 * 2  # embedding, two blocks, final norm; token choices; centring
    for name in ("", "participation_ratio_", "stable_rank_"):
        made = ranks_table["interval"] == "bootstrap"
        assert made.any()
        assert (ranks_table.loc[made, f"{name}ci_low"] <= ranks_table.loc[made, f"{name}ci_high"]).all()
        assert ranks_table.loc[~made, f"{name}ci_low"].isna().all()
    primary = ranks_table[ranks_table["primary"]]
    assert primary[["site", "layer", "tokens", "centred"]].values.tolist() == [["block", 1, "mean", True]]
    tokens = sum(len(a) + len(p) - 1 for p, a in zip(turns.prompts, turns.actions, strict=True))
    assert set(ranks_table["rows"]) == {6, tokens}
    by_measure = agreement.groupby("measure").size().to_dict()
    assert by_measure == {"cka": 12, "argmax_agreement": 2, "kl_policy_reference": 2, "kl_reference_policy": 2}
    every = agreement[agreement["tokens"] == "action_tokens"]
    assert set(every["rows"]) == {sum(map(len, turns.actions))}


def test_a_policy_measured_against_itself_agrees_exactly(probe):
    (policy, _), turns = probe
    _, agreement = measure(policy, policy, turns, Rank(bootstrap_draws=10), 0.95)
    for name, value in (("cka", 1.0), ("argmax_agreement", 1.0), ("kl_policy_reference", 0.0)):
        np.testing.assert_allclose(agreement.loc[agreement["measure"] == name, "value"], value, atol=1e-9)


def test_a_measurement_repeats_exactly_and_does_not_depend_on_the_batches(probe):
    (policy, reference), turns = probe
    first = measure(policy, reference, turns, Rank(bootstrap_draws=10), 0.95)
    again = measure(policy, reference, turns, Rank(bootstrap_draws=10), 0.95)
    small = measure(policy, reference, turns, Rank(bootstrap_draws=10, batch_tokens=1), 0.95)
    assert all(a.equals(b) for a, b in zip(first, again, strict=True))
    np.testing.assert_allclose(first[0]["effective_rank"], small[0]["effective_rank"], rtol=1e-4)


def test_a_table_says_where_matrices_were_too_large_to_resample(probe):
    (policy, reference), turns = probe
    table, _ = measure(policy, reference, turns, Rank(bootstrap_draws=10, bootstrap_up_to=5), 0.95)
    assert set(table["interval"]) == {"too large to resample"}
    assert table["stable_rank"].notna().all()
    assert table["stable_rank_ci_low"].isna().all()


def test_another_tokenizer_than_the_probes_is_refused(probe):
    (policy, reference), turns = probe
    check_tokenizers(policy.folder, reference.folder, turns)
    (policy.folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"b": 0}}, "added_tokens": []}))
    with pytest.raises(ValueError, match="not the tokenizer that the probe was written with"):
        check_tokenizers(policy.folder, reference.folder, turns)
