"""The demonstrators: one that searches, from what an agent reads, and one that asks the planner."""

from __future__ import annotations

import pytest

from headroom.worlds.alfworld.oracles import ORACLES, Oracle, oracle, planner
from headroom.worlds.alfworld.scenes import TASKS
from headroom.worlds.alfworld.world import AlfWorld
from headroom.worlds.base import Action, History, Observation

pytestmark = pytest.mark.usefixtures("engine_here")


def episode(
    world: AlfWorld, task: str, seed: int, act: Oracle, before: tuple[Action, ...] = ()
) -> tuple[list[Observation], list[Action]]:
    actions = list(before)
    observations = world.observe([History(task, seed, before[:count]) for count in range(len(before) + 1)])
    while len(actions) < 50 and (action := act(observations, actions)) is not None:
        actions.append(action)
        observations += world.observe([History(task, seed, tuple(actions))])
    return observations, actions


@pytest.mark.parametrize("task", TASKS)
def test_the_searching_oracle_wins_within_the_horizon(world: AlfWorld, task: str) -> None:
    for seed in range(20):
        observations, _ = episode(world, task, seed, oracle(task))
        assert observations[-1].done, (seed, observations[-1])
        assert not any(seen.outcome.invalid for seen in observations)


@pytest.mark.parametrize("task", TASKS)
def test_the_planner_is_never_longer_than_the_search(world: AlfWorld, task: str) -> None:
    for seed in range(5):
        observations, short = episode(world, task, seed, planner(world)(task, seed))
        assert observations[-1].done
        assert len(short) <= len(episode(world, task, seed, oracle(task))[1])


@pytest.mark.parametrize("task", TASKS)
def test_both_find_the_way_after_a_mistake(world: AlfWorld, task: str) -> None:
    for seed in range(4):
        first = world.observe([History(task, seed)])[0]
        places = [each.name for each in first.elements if each.name.startswith("go to ")]
        before = (Action("command", text=places[-1]), Action("malformed", text="?"), Action("command", text="look"))
        for act in (oracle(task), planner(world)(task, seed)):
            assert episode(world, task, seed, act, before)[0][-1].done


def test_the_searching_oracle_lays_down_what_it_does_not_need(world: AlfWorld) -> None:
    tried = 0
    for task in TASKS:
        for seed in range(12):
            observations, actions = episode(world, task, seed, oracle(task))
            target = observations[0].utterance
            for turn, seen in enumerate(observations[:-1]):
                other = [
                    e.name for e in seen.elements if e.name.startswith("take ") and e.name.split()[1] not in target
                ]
                if other and "lamp" not in other[0]:
                    before = (*actions[:turn], Action("command", text=other[0]))
                    assert episode(world, task, seed, oracle(task), before)[0][-1].done, before
                    tried += 1
                    break
    assert tried > 10


def test_the_oracle_sees_no_more_than_the_episode(world: AlfWorld) -> None:
    observations, actions = episode(world, TASKS[0], 3, oracle(TASKS[0]))
    act = oracle(TASKS[0])
    assert [act(observations[: turn + 1], actions[:turn]) for turn in range(len(actions))] == actions
    assert act(observations, actions) is None


def test_an_unknown_task_has_no_oracle() -> None:
    assert tuple(ORACLES) == TASKS
    with pytest.raises(ValueError, match="no oracle for task 'open_door'; there is one for: look_at_obj_in_light, "):
        oracle("open_door")


def test_a_goal_that_is_not_understood_gives_no_action() -> None:
    assert oracle(TASKS[0])([Observation("tidy up.", ())], []) is None
