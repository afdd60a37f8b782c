"""The demonstrators: one that searches without knowing the rule, and one that knows it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.config.worlds import HiddenRuleSettings
from headroom.train.demonstrations import collect, oracles_for, table, without_oracle
from headroom.worlds.base import Action, History, Observation
from headroom.worlds.hidden_rule.oracles import IDLES, ORACLES, Oracle, oracle, planner
from headroom.worlds.hidden_rule.scenes import TASKS
from headroom.worlds.hidden_rule.world import HiddenRule

tasks = st.sampled_from(TASKS)
seeds = st.integers(0, 2**31 - 1)
SIZES = [(3, 3), (3, 6), (5, 6), (10, 3)]


def episode(
    world: HiddenRule, task: str, seed: int, act: Oracle, before: tuple[Action, ...] = ()
) -> tuple[list[Observation], list[Action]]:
    actions = list(before)
    observations = world.observe([History(task, seed, before[:count]) for count in range(len(before) + 1)])
    while len(actions) < 200 and (action := act(observations, actions)) is not None:
        actions.append(action)
        observations += world.observe([History(task, seed, tuple(actions))])
    return observations, actions


@pytest.mark.parametrize(("rooms", "devices"), SIZES)
@settings(max_examples=25)
@given(task=tasks, seed=seeds)
def test_every_scene_is_solved_within_the_shortest_horizon_by_one_who_knows_the_rule(
    rooms: int, devices: int, task: str, seed: int
) -> None:
    size = HiddenRuleSettings(rooms=rooms, devices=devices, horizon=2 * rooms)
    with HiddenRule(size) as world:
        observations, actions = episode(world, task, seed, planner(world)(task, seed))
    assert observations[-1].done
    assert 2 <= len(actions) <= size.horizon
    assert not any(seen.outcome.invalid for seen in observations)


@settings(max_examples=25)
@given(task=tasks, seed=seeds)
def test_the_search_wins_within_the_papers_horizon_and_is_never_shorter_than_the_plan(task: str, seed: int) -> None:
    with HiddenRule() as world:
        observations, actions = episode(world, task, seed, oracle(task))
        assert observations[-1].done
        assert len(episode(world, task, seed, planner(world)(task, seed))[1]) <= len(actions)
        assert len(actions) <= world.settings.horizon
        assert not any(seen.outcome.invalid for seen in observations)


@settings(max_examples=25)
@given(seed=seeds)
def test_the_search_does_the_same_under_every_rule_until_it_is_met(seed: int) -> None:
    with HiddenRule() as world:
        played = sorted((episode(world, task, seed, oracle(task))[1] for task in TASKS), key=len)
    for short, long in pairwise(played):
        assert long[: len(short)] == short


@settings(max_examples=25)
@given(task=tasks, seed=seeds, draw=st.randoms(use_true_random=False))
def test_both_find_the_way_after_a_mistake(task: str, seed: int, draw: random.Random) -> None:
    with HiddenRule() as world:
        moves = [each.name for each in world.observe([History(task, seed)])[0].elements if each.role == "command"]
        before = (
            Action("command", text=draw.choice(moves)),
            Action("malformed", text="?"),
            Action("command", text="wait"),
        )
        for act in (oracle(task), planner(world)(task, seed)):
            assert episode(world, task, seed, act, before)[0][-1].done


def test_the_search_sees_no_more_than_the_texts_of_the_episode() -> None:
    with HiddenRule() as world:
        observations, actions = episode(world, "place", 3, oracle("place"))
    blind = [Observation(seen.utterance, seen.elements[:1], done=seen.done) for seen in observations]
    act = oracle("place")
    assert [act(blind[: turn + 1], actions[:turn]) for turn in range(len(actions))] == actions
    assert act(blind, actions) is None


def test_the_search_is_idle_in_one_turn_of_six_so_that_a_policy_learns_that_one_can_be() -> None:
    given: list[str] = []
    with HiddenRule() as world:
        for seed in range(60):
            given += [action.text for action in episode(world, "order", seed, oracle("order"))[1]]
    for idle in ("look", "wait"):
        assert 0.5 < given.count(idle) * 2 * IDLES / len(given) < 1.5


def test_an_unknown_task_has_no_oracle_and_another_goal_no_action() -> None:
    assert tuple(ORACLES) == TASKS
    with pytest.raises(ValueError, match="no oracle for task 'heat'; there is one for: exclusive, order"):
        oracle("heat")
    assert oracle("order")([Observation("tidy up.", ())], []) is None


def test_the_demonstrations_are_the_searchs() -> None:
    from headroom.agent.text_game import TEXT_GAME

    size = HiddenRuleSettings()
    assert without_oracle(size, [*TASKS, "heat"]) == ["heat"]
    with HiddenRule(size) as world:
        starts = [("pair", 3), ("order", 4)]
        played = collect(world, oracles_for(size, world), starts, horizon=30, success_above=0.5)
        frame = table(played, dialect=TEXT_GAME)
        for task, seed in starts:
            _, actions = episode(world, task, seed, oracle(task))
            shown = frame.loc[frame["task"] == task, "action"]
            assert [TEXT_GAME.parse(text) for text in shown] == actions
            assert all(len(TEXT_GAME.prediction(text)) == 2 for text in shown)
