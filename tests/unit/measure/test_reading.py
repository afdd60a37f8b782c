"""The headroom reading from a player whose chances are known."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from synthetic_episodes import episode

from headroom.agent.episode import Episode
from headroom.config.models import Evaluation, Statistics
from headroom.measure.intervals import Interval
from headroom.measure.reading import Reading, expectation, read_headroom, tabulate
from headroom.measure.reading_text import show
from headroom.measure.task_sets import read_task_sets, tasks_of
from headroom.seeds import generator


class FakePlayer:
    """Succeeds with a chance by task: ``chances[task] = (greedy, sampled)``; ``broken`` pages never load."""

    def __init__(self, chances: dict[str, tuple[float, float]], broken: Sequence[tuple[str, int]] = ()) -> None:
        self.chances, self.broken = chances, set(broken)

    def greedy(self, tasks: Sequence[str], seeds: Sequence[int]) -> list[Episode]:
        return [self._one(task, seed, 0, self.chances[task][0], "greedy") for task in tasks for seed in seeds]

    def sampled(
        self, tasks: Sequence[str], seeds: Sequence[int], samples: int, temperature: float = 1.0
    ) -> list[Episode]:
        return [
            self._one(task, seed, sample, self.chances[task][1], "sampled")
            for task in tasks
            for seed in seeds
            for sample in range(samples)
        ]

    def _one(self, task: str, seed: int, sample: int, chance: float, mode: str) -> Episode:
        success = bool(generator(mode, task, seed, sample).random() < chance)
        return episode(task, seed, sample, success=success, broken=(task, seed) in self.broken)


STATISTICS = Statistics(bootstrap_draws=500)
EVALUATION = Evaluation(seeds=20, samples=8, pass_at=(1, 2, 8))


def read(player: FakePlayer, **sets: list[str]) -> Reading:
    return read_headroom(
        player,
        policy="sft",
        task_sets=sets,
        seeds=range(20),
        evaluation=EVALUATION,
        statistics=STATISTICS,
    )


def names(prefix: str, count: int = 8) -> list[str]:
    return [f"{prefix}{n}" for n in range(count)]


def test_headroom_is_found_where_samples_beat_greedy_and_only_there() -> None:
    mastered, headroom = names("m"), names("h")
    reading = read(
        FakePlayer({**dict.fromkeys(mastered, (1.0, 0.9)), **dict.fromkeys(headroom, (0.2, 0.5))}),
        mastered=mastered,
        headroom=headroom,
    )
    sets = reading.table[reading.table["level"] == "set"].set_index("name")
    assert sets["expectation"].to_dict() == {"mastered": "expect no gain", "headroom": "expect gain"}
    assert sets.loc["headroom", "headroom"] == pytest.approx(0.3, abs=0.1)
    assert sets.loc["mastered", "headroom"] < 0
    assert "Expect gain" in reading.sentences[1]
    assert reading.sentences[-1].startswith("Limits")


def test_pass_at_k_is_named_apart_and_never_below_the_headroom() -> None:
    reading = read(FakePlayer(dict.fromkeys(names("t"), (0.3, 0.3))), mastered=names("t"))
    assert (reading.table["pass_at_8_minus_greedy"] >= reading.table["headroom"]).all()
    assert (reading.table["pass_at_8"] >= reading.table["pass_at_2"]).all()
    assert "pass@8 minus greedy" in reading.sentences[0]
    assert "pass_at_1" not in reading.table  # it is the sampled success


def test_without_mixed_groups_no_gain_is_expected_whatever_the_gap() -> None:
    reading = read(FakePlayer(dict.fromkeys(names("t"), (0.0, 1.0))), headroom=names("t"))
    row = reading.table.iloc[0]
    assert (row["headroom"], row["mixed_share"], row["expectation"]) == (1.0, 0.0, "expect no gain")
    assert "the mixed-group share ends below 5 points" in reading.sentences[0]


@pytest.mark.parametrize(
    ("headroom", "mixed_high", "expected"),
    [
        ((-0.1, 0.3), 0.5, "undecided"),
        ((0.01, 0.3), 0.5, "expect gain"),
        ((0.01, 0.04), 0.5, "expect no gain"),  # above 0, but too small to matter
        ((0.01, 0.3), 0.04, "expect no gain"),  # nothing to learn from
        ((-0.4, 0.4), 0.4, "undecided"),  # no mixed group among six is no evidence
        ((math.nan, math.nan), math.nan, "undecided"),
    ],
)
def test_the_expectation_follows_the_rule(headroom: tuple[float, float], mixed_high: float, expected: str) -> None:
    assert expectation(Interval(*headroom, "t"), Interval(0.0, mixed_high, "t"), 0.05) == expected


def test_a_page_with_an_infrastructure_failure_is_left_out_with_a_count() -> None:
    tasks = names("t", 3)
    chances = dict.fromkeys(tasks, (0.5, 0.5))
    whole = read(FakePlayer(chances), mastered=tasks).table
    broken = read(FakePlayer(chances, broken=[("t1", 4), ("t1", 5)]), mastered=tasks).table
    assert broken["excluded"].tolist() == [2, 0, 2, 0]  # the set, t0, t1, t2
    assert broken["pages"].tolist() == [58, 20, 18, 20]
    pd.testing.assert_series_equal(broken.iloc[1], whole.iloc[1])  # other tasks are untouched


def test_a_set_whose_every_page_failed_is_said_to_be_unscored() -> None:
    reading = read(FakePlayer({"t": (0.5, 0.5)}, broken=[("t", n) for n in range(20)]), headroom=["t"])
    assert "no page could be scored (20 excluded)" in reading.sentences[0]


def test_a_page_without_its_greedy_episode_is_refused() -> None:
    reading = read(FakePlayer({"t": (0.5, 0.5)}), headroom=["t"])
    frame = reading.episodes
    frame = frame[~((frame["mode"] == "greedy") & (frame["seed"] == 3))]
    with pytest.raises(ValueError, match=r"page \(t, 3\): 0 greedy"):
        tabulate(frame, evaluation=EVALUATION, statistics=STATISTICS)


def test_the_mean_headroom_of_tasks_is_that_of_their_set() -> None:
    generated = np.random.default_rng(0).random((8, 2))
    reading = read(FakePlayer({f"t{n}": tuple(c) for n, c in enumerate(generated)}), mastered=names("t"))
    table = reading.table
    assert table.iloc[0]["headroom"] == pytest.approx(table.iloc[1:]["headroom"].mean())
    assert (table["headroom"] == table["sampled"] - table["greedy"]).all() or np.allclose(
        table["headroom"], table["sampled"] - table["greedy"]
    )


def test_the_printed_reading_shows_every_task_and_the_limits() -> None:
    reading = read(FakePlayer(dict.fromkeys(names("t", 2), (0.3, 0.6))), **{"": names("t", 2)})
    console = Console(file=io.StringIO(), width=140)
    show(reading.table, reading.sentences, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(word in text for word in ("t0", "t1", "all", "Limits"))


def test_task_sets_are_checked_when_read(tmp_path: pytest.TempPathFactory) -> None:
    path = tmp_path / "task_sets.json"  # type: ignore[operator]
    path.write_text('{"mastered": ["a"], "headroom": []}')
    sets = read_task_sets(path)
    assert tasks_of(sets, ["mastered"], path) == ["a"]
    path.write_text('{"mastered": ["a"], "headroom": ["b"], "filled": {"mastered": [], "headroom": ["b"]}}')
    assert read_task_sets(path) == {"mastered": ("a",), "headroom": ("b",)}
    with pytest.raises(SystemExit, match="headroom is empty"):
        tasks_of(sets, ["headroom"], path)
    for text, message in [
        ('{"mastered": ["a"]}', "exactly the keys"),
        ('{"mastered": ["a"], "headroom": ["a"]}', "named twice"),
        ('{"mastered": "a", "headroom": []}', "not a list"),
        ("{", "cannot be read"),
    ]:
        path.write_text(text)
        with pytest.raises(SystemExit, match=message):
            read_task_sets(path)
