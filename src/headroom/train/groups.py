"""Which pages a step plays, and the groups that their samples form.

The pages are a function of (run seed, step) alone: no iterator to save, a resumed run plays what an unbroken one
would have played, and two runs of the same seed that differ in a learning rate meet the same pages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from headroom.agent.episode import Episode, Group
from headroom.seeds import generator

Page = tuple[str, int]
"""A task and a page seed."""


def step_pages(tasks: Sequence[str], pool: Sequence[int], *, seed: int, step: int, count: int) -> list[Page]:
    """The pages of a step.

    The run is one long line of pages, of which step ``s`` takes places ``s * count`` and on. The line visits the tasks
    in rounds, each task once a round in a shuffled order, and a task's pages in rounds of their own, each page of the
    pool once. So tasks differ in their number of pages by at most one, and no page is played twice before all were.

    Args:
        tasks: names, without repetition.
        pool: page seeds, without repetition.
        seed: of the run.
        step: from 0.
        count: pages of one step, at most ``len(tasks) * len(pool)``.

    Raises:
        ValueError: no task, no page, a repetition, or more pages than there are.
    """
    if not tasks or not pool or len(set(tasks)) < len(tasks) or len(set(pool)) < len(pool):
        raise ValueError("a step needs at least one task and one page seed, and none of them twice")
    if count > len(tasks) * len(pool):
        msg = f"{count} pages a step, but {len(tasks)} tasks x {len(pool)} seeds have only {len(tasks) * len(pool)}"
        raise ValueError(msg)
    pages = []
    for place in range(step * count, (step + 1) * count):
        task_round, turn = divmod(place, len(tasks))
        task = tasks[generator("tasks", seed, task_round).permutation(len(tasks))[turn]]
        page_round, turn = divmod(task_round, len(pool))
        pages.append((task, pool[generator("pages", seed, task, page_round).permutation(len(pool))[turn]]))
    return pages


def group_starts(pages: Sequence[Page], group_size: int) -> list[tuple[str, int, int]]:
    """(task, page seed, sample) for ``group_size`` samples of each page: one page seed a group."""
    return [(task, seed, sample) for task, seed in pages for sample in range(group_size)]


def form_groups(pages: Sequence[Page], group_size: int, episodes: Sequence[Episode]) -> list[Group]:
    """Cut the episodes of :func:`group_starts`, in its order, into one group a page.

    Raises:
        ValueError: the number of episodes is not pages times samples, or an episode was played on another page or as
            another sample than its place says.
    """
    if len(episodes) != len(pages) * group_size:
        msg = f"{len(episodes)} episodes for {len(pages)} pages of {group_size} samples"
        raise ValueError(msg)
    groups = []
    for number, (task, seed) in enumerate(pages):
        members = tuple(episodes[number * group_size : (number + 1) * group_size])
        if [member.sample for member in members] != list(range(group_size)):
            msg = f"group ({task}, {seed}) does not hold samples 0 to {group_size - 1} in order"
            raise ValueError(msg)
        groups.append(Group(task, seed, members))
    return groups


def task_set(path: Path, name: str) -> list[str]:
    """The tasks of one set.

    Raises:
        SystemExit: the file cannot be read, or has no such set, or the set is empty.
    """
    try:
        tasks = json.loads(path.read_bytes())[name]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path}: no task set {name!r} ({error!r}); run snakemake, which makes the file") from error
    if not tasks:
        raise SystemExit(f"{path}: the task set {name!r} is empty; change grpo.tasks or the rule that selects tasks")
    return [str(task) for task in tasks]
