"""Pages of a step: a function of (seed, step), balanced over tasks, one page a group."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.agent.episode import Ending, Episode
from headroom.train.groups import form_groups, group_starts, step_pages, task_set

TASKS = ("a", "b", "c", "d", "e")


def episodes(pages: list[tuple[str, int]], size: int) -> list[Episode]:
    return [Episode(task, seed, n, (), 0.0, False, Ending.DONE) for task, seed, n in group_starts(pages, size)]


def test_pages_depend_on_seed_and_step_alone() -> None:
    first = step_pages(TASKS, range(50), seed=3, step=7, count=8)
    assert first == step_pages(TASKS, range(50), seed=3, step=7, count=8)
    assert first != step_pages(TASKS, range(50), seed=4, step=7, count=8)
    assert first != step_pages(TASKS, range(50), seed=3, step=8, count=8)


@given(seed=st.integers(0, 2**31), tasks=st.integers(1, 6), pool=st.integers(1, 7), count=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_every_page_is_played_once_before_any_is_played_twice(seed: int, tasks: int, pool: int, count: int) -> None:
    names, total = TASKS[:tasks] if tasks <= 5 else (*TASKS, "f"), tasks * pool
    if count > total:
        return
    line = [
        page
        for step in range(total // count + 1)
        for page in step_pages(names, range(pool), seed=seed, step=step, count=count)
    ]
    assert len(set(line[:total])) == total


def test_tasks_of_a_run_differ_in_pages_by_at_most_one() -> None:
    line = [page for step in range(9) for page in step_pages(TASKS, range(50), seed=0, step=step, count=7)]
    counts = Counter(task for task, _ in line)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(counts) == len(TASKS)


def test_the_order_of_tasks_is_shuffled_and_differs_between_rounds() -> None:
    rounds = [tuple(t for t, _ in step_pages(TASKS, range(50), seed=0, step=s, count=5)) for s in range(6)]
    assert all(sorted(order) == sorted(TASKS) for order in rounds)
    assert len(set(rounds)) > 1


def test_tasks_do_not_play_the_same_seeds_at_the_same_time() -> None:
    line = [page for step in range(10) for page in step_pages(("a", "b"), range(100), seed=0, step=step, count=2)]
    by_task = {name: [seed for task, seed in line if task == name] for name in "ab"}
    assert by_task["a"] != by_task["b"]


@pytest.mark.parametrize(
    ("tasks", "pool", "count"),
    [((), (1,), 1), (("a",), (), 1), (("a", "a"), (1,), 1), (("a",), (1, 1), 1), (("a",), (1,), 2)],
)
def test_impossible_steps_are_refused(tasks: tuple[str, ...], pool: tuple[int, ...], count: int) -> None:
    with pytest.raises(ValueError, match=r"at least one task|have only"):
        step_pages(tasks, pool, seed=0, step=0, count=count)


def test_a_group_is_one_page_and_the_number_of_episodes_is_pages_times_samples() -> None:
    pages = step_pages(TASKS, range(50), seed=0, step=0, count=3)
    starts = group_starts(pages, 4)
    assert len(starts) == len(set(starts)) == 12
    groups = form_groups(pages, 4, episodes(pages, 4))
    assert [(group.task, group.seed) for group in groups] == pages
    assert all([episode.sample for episode in group.episodes] == [0, 1, 2, 3] for group in groups)


def test_a_missing_or_misplaced_episode_is_refused() -> None:
    pages = [("a", 1), ("b", 2)]
    played = episodes(pages, 2)
    with pytest.raises(ValueError, match="3 episodes for 2 pages of 2"):
        form_groups(pages, 2, played[:3])
    with pytest.raises(ValueError, match="holds an episode of"):
        form_groups(pages, 2, [played[0], replace(played[1], seed=9), *played[2:]])
    with pytest.raises(ValueError, match="in order"):
        form_groups(pages, 2, [played[1], played[0], *played[2:]])


def test_a_task_set_is_read_and_an_unknown_empty_or_damaged_one_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "task_sets.json"
    path.write_text(json.dumps({"mastered": ["a", "b"], "headroom": []}))
    assert task_set(path, "mastered") == ["a", "b"]
    for name, words in (("headroom", "empty"), ("other", "no task set 'other'")):
        with pytest.raises(SystemExit, match=words):
            task_set(path, name)
    path.write_text("{")
    with pytest.raises(SystemExit, match=r"task_sets\.json"):
        task_set(path, "mastered")
