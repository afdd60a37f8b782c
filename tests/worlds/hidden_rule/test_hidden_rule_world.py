"""Our HiddenRule: a function of (task, seed, actions), whose rule shows in its consequences alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headroom.config.worlds import HiddenRuleSettings
from headroom.worlds.base import Action, Element, History, Observation, Outcome, World
from headroom.worlds.hidden_rule.oracles import plan
from headroom.worlds.hidden_rule.scenes import DEVICES, ROOMS, TASKS, Rule, layout, scene
from headroom.worlds.hidden_rule.world import HiddenRule
from headroom.worlds.open import open_world

SIZES = [(3, 3), (3, 6), (5, 6), (10, 3), (10, 12)]
seeds = st.integers(0, 2**31 - 1)
UNPLAYABLE = (Action("command", text="fly"), Action("malformed", text="zz"), Action("click", "button", "Ok"))


def command(text: str) -> Action:
    return Action("command", text=text)


def commands(observation: Observation) -> list[str]:
    return [element.name for element in observation.elements if element.role == "command"]


def said(observation: Observation) -> str:
    assert observation.elements[0].role == "text"
    return observation.elements[0].name


def walk(world: World, history: History, turns: int, draw: random.Random, never: str = "") -> list[History]:
    """Histories of a random episode, some of its actions unplayable; the command ``never`` is not given."""
    met = [history]
    for _ in range(turns):
        listed = [text for text in commands(world.observe(met[-1:])[0]) if text != never]
        met.append(met[-1].then(draw.choice(UNPLAYABLE) if draw.random() < 0.2 else command(draw.choice(listed))))
    return met


def walks(world: World, turns: int = 25) -> dict[History, Observation]:
    met = [
        h for task in TASKS for seed in range(4) for h in walk(world, History(task, seed), turns, random.Random(seed))
    ]
    return dict(zip(met, world.observe(met), strict=True))


def differing(expected: dict[History, Observation], world: World) -> list[History]:
    asked = random.Random(0).sample(list(expected), len(expected))
    return [each for each, seen in zip(asked, world.observe(asked), strict=True) if seen != expected[each]]


@pytest.fixture(scope="module")
def expected() -> dict[History, Observation]:
    with HiddenRule(HiddenRuleSettings(memo_megabytes=0)) as world:
        return walks(world)


def test_a_fresh_world_answers_whole_histories_as_stepwise_play_did(expected: dict[History, Observation]) -> None:
    with HiddenRule(HiddenRuleSettings(memo_megabytes=0)) as fresh:
        assert differing(expected, fresh) == []
        layout.cache_clear()
        scene.cache_clear()
        assert differing(expected, fresh) == []


@pytest.mark.parametrize("megabytes", [1, 64])
def test_memory_on_or_off_changes_no_answer(expected: dict[History, Observation], megabytes: int) -> None:
    with HiddenRule(HiddenRuleSettings(memo_megabytes=megabytes)) as remembering:
        for _ in range(2):
            assert differing(expected, remembering) == []
        assert len(set(remembering.observe([next(iter(expected))] * 2))) == 1
        assert remembering._memo.hits > 0
        assert remembering._memo.bytes <= megabytes * 1_000_000


def test_its_settings_open_it() -> None:
    with open_world(HiddenRuleSettings(rooms=3)) as world:
        assert isinstance(world, HiddenRule)
        assert len(world.scene("order", 1).layout.doors) == 3


def test_a_scene_is_the_same_on_every_machine() -> None:
    made = scene("place", 7, 3, 4)
    assert (made.layout.start, made.layout.goal, made.rule) == ("garage", "fan", Rule("place", "garage"))
    assert made.layout.devices == {"dryer": "garage", "fan": "bathroom", "printer": "garage", "toaster": "study"}
    assert made.layout.on == {"toaster"}
    assert {*map(len, made.layout.doors.values())} == {2}


@pytest.mark.parametrize(("rooms", "devices"), SIZES)
@given(seed=seeds)
def test_rooms_are_connected_and_every_kind_of_rule_is_in_the_way_at_first(rooms: int, devices: int, seed: int) -> None:
    made = layout(seed, rooms, devices)
    assert (len(made.doors), len(made.devices)) == (rooms, devices)
    assert made.devices.keys() <= {*DEVICES}
    assert {*made.devices.values()} <= made.doors.keys() <= {*ROOMS}
    reached = [made.start]
    for room in reached:
        assert all(room in made.doors[beside] and beside != room for beside in made.doors[room])
        reached += [beside for beside in made.doors[room] if beside not in reached]
    assert set(reached) == made.doors.keys()
    assert made.devices[made.goal] != made.start
    assert made.goal not in made.on
    for task in TASKS:
        of = scene(task, seed, rooms, devices)
        assert of.layout == made, "the tasks of a seed look alike"
        assert of.rule.what != made.goal
        assert not of.rule.met(made.on, frozenset(), made.devices)


def test_rules_are_met_by_what_they_name() -> None:
    where = {"fan": "hall", "lamp": "attic", "radio": "attic"}
    cases = {
        Rule("order", "fan"): [({"fan"}, {"fan"}, True), (set(), {"fan"}, True), ({"fan"}, set(), False)],
        Rule("pair", "fan"): [({"fan"}, set(), True), ({"lamp"}, {"fan"}, False)],
        Rule("exclusive", "fan"): [({"lamp"}, set(), True), ({"fan", "lamp"}, set(), False)],
        Rule("place", "attic"): [({"radio"}, set(), True), ({"fan"}, {"lamp"}, False)],
    }
    assert {rule.kind for rule in cases} == {*TASKS}
    for rule, points in cases.items():
        for on, switched_on, met in points:
            assert rule.met(on, switched_on, where) == met, (rule, on, switched_on)


@settings(max_examples=30)
@given(seed=seeds, walked=st.randoms(use_true_random=False))
def test_scenes_that_differ_in_their_rule_alone_look_alike_until_the_goal_is_tried(
    seed: int, walked: random.Random
) -> None:
    with HiddenRule() as world:
        try_it = f"switch on {world.scene(TASKS[0], seed).layout.goal}"
        histories = walk(world, History(TASKS[0], seed), 12, walked, never=try_it)
        for history in histories:
            seen = world.observe([History(task, seed, history.actions) for task in TASKS])
            assert all(each == seen[0] for each in seen)


@pytest.mark.parametrize("task", TASKS)
def test_what_meets_one_rule_leaves_the_goal_dark_under_another(task: str) -> None:
    with HiddenRule() as world:
        for other in set(TASKS) - {task}:
            after = []
            for seed in range(10):
                actions = plan(world, History(task, seed))
                after.append(world.observe([History(kind, seed, actions) for kind in (task, other)]))
            assert all(seen.done for seen, _ in after)
            assert any(not seen.done and "stays dark" in said(seen) for _, seen in after), other


def test_a_goal_stays_dark_until_its_rule_is_met_and_then_ends_the_episode() -> None:
    with HiddenRule(HiddenRuleSettings(rooms=3, devices=3)) as world:
        for seed in range(20):
            of = world.scene("pair", seed)
            try_it, meet_it = (command(f"switch on {name}") for name in (of.layout.goal, of.rule.what))
            here, there = of.layout.devices[of.rule.what], of.layout.devices[of.layout.goal]
            if of.layout.start != here or there not in of.layout.doors[here]:
                continue
            go, back = command(f"go to {there}"), command(f"go to {here}")
            dark = world.observe([History("pair", seed, (go, try_it))])[0]
            assert said(dark).startswith(f"The {of.layout.goal} stays dark. You are in the {there}.")
            assert (dark.outcome, dark.done, dark.raw_reward) == (Outcome.OK, False, 0.0)
            won = History("pair", seed, (go, try_it, back, meet_it, go, try_it))
            light = world.observe([won])[0]
            assert (light.outcome, light.done, light.raw_reward) == (Outcome.OK, True, 1.0)
            assert said(light).startswith(f"The {of.layout.goal} turns on.")
            assert world.observe([won.then(back), won.then(UNPLAYABLE[0])]) == [light, light], "nothing after the end"
            return
    pytest.fail("no such scene")


def test_facts_say_what_the_texts_of_the_episode_say(expected: dict[History, Observation]) -> None:
    lit: dict[str, int] = {}
    for history, seen in expected.items():
        facts, text = dict(seen.facts), said(seen)
        assert f"You are in the {facts['location']}." in text
        assert facts["objects"] == ("yes" if " is on." in text else "no")
        if not history.actions:
            lit = {}
        for device in DEVICES:
            if f"The {device} is " in text:
                lit[device] = f"The {device} is on." in text
        assert facts["anchor"] == str(sum(lit.values()))
    values = [dict(seen.facts)["objects"] for seen in expected.values()]
    assert 0.2 < values.count("yes") / len(values) < 0.8, "a constant would be no prediction"


def test_looking_and_waiting_change_nothing_and_are_always_accepted(expected: dict[History, Observation]) -> None:
    with HiddenRule() as world:
        for history, seen in expected.items():
            if seen.done:
                continue
            looked, waited, nothing = world.observe([history.then(action) for action in (
                command("look"), command("wait"), UNPLAYABLE[0]
            )])  # fmt: skip
            assert looked.outcome is waited.outcome is Outcome.OK
            assert said(waited) == f"Time passes. {said(looked)}"
            assert said(nothing) == f"Nothing happens. {said(looked)}"
            assert looked.facts == waited.facts == nothing.facts == seen.facts
            assert commands(looked) == commands(waited) == commands(nothing) == commands(seen)


def test_what_is_not_listed_is_not_accepted_and_lists_can_be_left_out(expected: dict[History, Observation]) -> None:
    every = [f"{verb}{name}" for verb in ("go to ", "switch on ", "switch off ") for name in (*ROOMS, *DEVICES)]
    with HiddenRule() as world, HiddenRule(HiddenRuleSettings(list_commands=False)) as silent:
        for history, seen in list(expected.items())[::25]:
            if seen.done:
                continue
            assert silent.observe([history])[0].elements == (Element("text", said(seen)),)
            for text in (*every, "look", "wait", "look "):
                outcome = world.observe([history.then(command(text))])[0].outcome
                assert outcome is (Outcome.OK if text.strip() in commands(seen) else Outcome.UNSUPPORTED), text


@given(
    verb=st.sampled_from(["command", "malformed", "click", ""]), text=st.text() | st.sampled_from(["go to ", "\ud800"])
)
def test_no_action_can_raise(verb: str, text: str) -> None:
    with HiddenRule() as world:
        old, new = world.observe([History("order", 1), History("order", 1, (Action(verb, text=text),))])
    assert new.outcome is (Outcome.UNSUPPORTED if verb == "command" else Outcome.MALFORMED) or text.strip() in commands(
        old
    )
    assert not new.failure
    assert not new.done


def won(world: World, task: str, seed: int, horizon: int) -> bool:
    draw, history = random.Random(seed), History(task, seed)
    for _ in range(horizon):
        history = history.then(command(draw.choice(commands(world.observe([history])[0]))))
    return world.observe([history])[0].done


def test_random_play_seldom_wins() -> None:
    with HiddenRule() as world:
        wins = [won(world, task, seed, world.settings.horizon) for task in TASKS for seed in range(25)]
    assert 0 < sum(wins) / len(wins) < 0.25


def test_an_unknown_task_is_refused() -> None:
    with (
        HiddenRule() as world,
        pytest.raises(ValueError, match="no task is called 'click-button'; HiddenRule's are exc"),
    ):
        world.observe([History("click-button", 0)])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rooms": 2}, "rooms"),
        ({"rooms": len(ROOMS) + 1, "horizon": 50}, "rooms"),
        ({"devices": 2}, "devices"),
        ({"devices": len(DEVICES) + 1}, "devices"),
        ({"horizon": 9}, "horizon: is 9, but a scene of 5 rooms may take 10 turns; raise it, or lower rooms"),
        ({"objects": 5}, "objects"),
    ],
)
def test_a_world_that_cannot_be_is_refused(changes: dict[str, int], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        HiddenRuleSettings.model_validate(changes)


def test_the_largest_world_that_settings_allow_has_names_for_all() -> None:
    HiddenRuleSettings(rooms=len(ROOMS), devices=len(DEVICES))
    for rooms, devices in ((2, 6), (5, 2), (len(ROOMS) + 1, 6), (5, len(DEVICES) + 1)):
        with pytest.raises(ValueError, match=f"world.rooms is {rooms} and world.devices {devices}"):
            layout(0, rooms, devices)


def test_names_are_single_words_that_texts_are_read_by() -> None:
    names: Sequence[str] = (*ROOMS, *DEVICES)
    assert len(set(names)) == len(names)
    assert all(name.isalpha() and name.islower() for name in names)
