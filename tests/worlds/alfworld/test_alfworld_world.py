"""ALFWorld's engine is a function of (task, seed, actions), however its answers come about."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.config.worlds import AlfWorldSettings
from headroom.worlds.alfworld import world as world_module
from headroom.worlds.alfworld.scenes import TASKS
from headroom.worlds.alfworld.world import AlfWorld
from headroom.worlds.base import Action, Element, History, Observation, Outcome, World

pytestmark = pytest.mark.usefixtures("engine_here")

MUG = "look_at_obj_in_light"
UNPLAYABLE = (Action("command", text="fly"), Action("malformed", text="zz"), Action("click", "button", "Ok"))


def command(text: str) -> Action:
    return Action("command", text=text)


def commands(observation: Observation) -> list[str]:
    return [element.name for element in observation.elements if element.role == "command"]


def said(observation: Observation) -> str:
    assert observation.elements[0].role == "text"
    return observation.elements[0].name


def play(world: World, task: str, seed: int, *texts: str) -> Observation:
    return world.observe([History(task, seed, tuple(map(command, texts)))])[0]


def walks(world: World, tasks: Sequence[str] = TASKS, seeds: int = 2, turns: int = 12) -> dict[History, Observation]:
    """Every point of random episodes, some of their actions unplayable, all of them one turn at a time."""
    met: dict[History, Observation] = {}
    live = [(History(task, seed), random.Random(f"{task} {seed}")) for task in tasks for seed in range(seeds)]
    for _ in range(turns + 1):
        onwards = []
        for (history, draw), seen in zip(live, world.observe([history for history, _ in live]), strict=True):
            met[history] = seen
            action = draw.choice(UNPLAYABLE) if draw.random() < 0.2 else command(draw.choice(commands(seen)))
            onwards.append((history.then(action), draw))
        live = onwards
    return met


@pytest.fixture(scope="module")
def expected(world: AlfWorld) -> dict[History, Observation]:
    return walks(world)


def shuffled(histories: Sequence[History]) -> list[History]:
    return random.Random(0).sample(histories, len(histories))


def differing(expected: dict[History, Observation], world: World) -> list[History]:
    asked = shuffled(list(expected))
    return [each for each, seen in zip(asked, world.observe(asked), strict=True) if seen != expected[each]]


def test_a_fresh_world_answers_whole_histories_as_stepwise_play_did(expected: dict[History, Observation]) -> None:
    with AlfWorld(AlfWorldSettings(memo_megabytes=0)) as fresh:
        assert differing(expected, fresh) == []


def test_the_same_world_answers_the_same_again(expected: dict[History, Observation], world: AlfWorld) -> None:
    assert differing(expected, world) == []


def test_the_order_within_a_batch_changes_nothing(expected: dict[History, Observation], world: AlfWorld) -> None:
    asked = [*shuffled(list(expected)), *list(expected)[:20]]
    assert world.observe(asked) == [expected[history] for history in asked]


@pytest.mark.parametrize("megabytes", [1, 64])
def test_memory_on_or_off_changes_no_answer(expected: dict[History, Observation], megabytes: int) -> None:
    with AlfWorld(AlfWorldSettings(memo_megabytes=megabytes)) as remembering:
        assert differing(expected, remembering) == []
        assert differing(expected, remembering) == []
        assert remembering._memo.bytes <= megabytes * 1_000_000
        assert remembering.statistics.memo_hits > 0


def test_a_world_that_was_closed_starts_again(expected: dict[History, Observation]) -> None:
    world = AlfWorld(AlfWorldSettings(memo_megabytes=0))
    some = dict(list(expected.items())[-40:])
    assert differing(some, world) == []
    world.close()
    world.close()
    assert differing(some, world) == []
    world.close()


@pytest.mark.parametrize(("games", "positions"), [(2, 10_000), (512, 5)])
def test_what_was_forgotten_is_played_again(
    expected: dict[History, Observation], monkeypatch: pytest.MonkeyPatch, games: int, positions: int
) -> None:
    monkeypatch.setattr(world_module, "MOST_GAMES", games)
    monkeypatch.setattr(world_module, "MOST_POSITIONS", positions)
    with AlfWorld(AlfWorldSettings(memo_megabytes=0)) as forgetful:
        for history in shuffled(list(expected))[::4]:
            assert forgetful.observe([history]) == [expected[history]]
        assert len(forgetful._games) <= games


def test_threads_get_the_answers_that_one_thread_gets(expected: dict[History, Observation]) -> None:
    wrong: list[History] = []
    with AlfWorld() as world:
        threads = [threading.Thread(target=lambda: wrong.extend(differing(expected, world))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@settings(max_examples=200, deadline=None)
@given(
    verb=st.sampled_from(["command", "command", "malformed", "click", ""]),
    text=st.text()
    | st.sampled_from(["look ", " go to", "{r.name}", "#intro#", "help", "[x|y(a:b)]", "\ud800", "a" * 9999]),
    before=st.integers(0, 2),
)
def test_no_action_can_raise_or_end_an_episode(world: AlfWorld, verb: str, text: str, before: int) -> None:
    history = History(TASKS[0], 1, (command("look"),) * before)
    old, new = world.observe([history, history.then(Action(verb, text=text))])
    if verb != "command":
        assert new.outcome is Outcome.MALFORMED
    elif new.outcome is not Outcome.OK:
        assert new.outcome is Outcome.UNSUPPORTED
    if new.outcome.invalid:
        assert said(new) == "Nothing happens."
        assert commands(new) == commands(old)
        assert world.observe([history.then(Action(verb, text=text)).then(command("look"))]) == world.observe(
            [history.then(command("look"))]
        )
    assert not new.failure


def test_the_first_page_shows_the_room_and_every_command_but_help(world: AlfWorld) -> None:
    first = play(world, "pick_clean_then_place_in_recep", 0)
    assert first.utterance == "clean some cloth and put it in bathtubbasin."
    assert said(first) == (
        "You are in the middle of a room. Looking quickly around you, you see a bathtubbasin 1, a countertop 1, "
        "a drawer 1, a handtowelholder 1, a sinkbasin 1, and a toiletpaperhanger 1."
    )
    places = ("bathtubbasin", "countertop", "drawer", "handtowelholder", "sinkbasin", "toiletpaperhanger")
    assert commands(first) == [*(f"go to {place} 1" for place in places), "inventory", "look"]
    assert (first.raw_reward, first.done, first.outcome) == (0.0, False, Outcome.OK)
    assert first.facts == (("location", "nowhere"), ("objects", "no"), ("anchor", "nothing"))


@pytest.mark.parametrize(
    ("texts", "text", "location", "objects"),
    [
        (["go to fridge 1"], "You arrive at fridge 1. The fridge 1 is closed.", "fridge 1", "no"),
        (
            ["go to fridge 1", "open fridge 1"],
            "You open the fridge 1. The fridge 1 is open. In it, you see a tomato 1.",
            "fridge 1",
            "yes",
        ),
        (["go to fridge 1", "look"], "You are facing the fridge 1. Next to it, you see nothing.", "fridge 1", "no"),
        (["inventory"], "You are not carrying anything.", "nowhere", "no"),
        (["go to fridge 1", "fly"], "Nothing happens.", "fridge 1", "no"),
        (
            ["go to fridge 1", "open fridge 1", "take tomato 1 from fridge 1", "go to shelf 2", "inventory"],
            "You are carrying: a tomato 1.",
            "shelf 2",
            "yes",
        ),
        (
            ["go to fridge 1", "open fridge 1", "take tomato 1 from fridge 1", "close fridge 1", "open fridge 1"],
            "You open the fridge 1. The fridge 1 is open. In it, you see nothing.",
            "fridge 1",
            "no",
        ),
    ],
)
def test_facts_say_where_the_agent_stands_and_whether_an_object_is_named(
    world: AlfWorld, texts: list[str], text: str, location: str, objects: str
) -> None:
    seen = play(world, "pick_heat_then_place_in_recep", 2, *texts)
    assert said(seen) == text
    assert seen.facts[:2] == (("location", location), ("objects", objects))


@pytest.mark.parametrize(
    ("texts", "carried"),
    [
        (["go to fridge 1", "open fridge 1"], "nothing"),
        (["go to fridge 1", "open fridge 1", "take tomato 1 from fridge 1"], "tomato 1"),
        (["go to fridge 1", "open fridge 1", "take tomato 1 from fridge 1", "fly", "go to shelf 2"], "tomato 1"),
        (["go to fridge 1", "open fridge 1", "take tomato 1 from fridge 1", "move tomato 1 to fridge 1"], "nothing"),
    ],
)
def test_the_anchor_is_what_the_agent_carries_at_this_very_point(
    world: AlfWorld, texts: list[str], carried: str
) -> None:
    points = [play(world, "pick_heat_then_place_in_recep", 2, *texts[:count]) for count in range(len(texts) + 1)]
    assert all(point.outcome is Outcome.OK for point in points if "Nothing happens" not in said(point))
    assert [point.facts[2] for point in points[:3]] == [("anchor", "nothing")] * 3
    assert points[-1].facts[2] == ("anchor", carried)


def test_the_anchor_agrees_with_what_the_inventory_says(expected: dict[History, Observation], world: AlfWorld) -> None:
    carrying = 0
    for history, seen in expected.items():
        if not seen.done:
            told = said(world.observe([history.then(command("inventory"))])[0])
            what = dict(seen.facts)["anchor"]
            assert told == ("You are not carrying anything." if what == "nothing" else f"You are carrying: a {what}.")
            carrying += what != "nothing"
    assert carrying


def test_winning_pays_one_and_nothing_happens_after_the_end(world: AlfWorld) -> None:
    plan = world.plan(History(TASKS[0], 0))
    assert plan is not None
    end = world.observe([History(TASKS[0], 0, plan)])[0]
    assert (end.raw_reward, end.done, end.outcome) == (1.0, True, Outcome.OK)
    assert world.observe([History(TASKS[0], 0, plan[:-1])])[0].raw_reward == 0.0
    later = [History(TASKS[0], 0, (*plan, command("look"), *UNPLAYABLE))]
    assert world.observe(later) == [end]
    assert world.plan(later[0]) == ()


def test_a_repeated_action_gives_the_same_page_or_nothing(
    expected: dict[History, Observation], world: AlfWorld
) -> None:
    nothing = 0
    for history, seen in expected.items():
        if history.actions and not seen.done:
            again = world.observe([history.then(history.actions[-1])])[0]
            assert again.facts[0] == seen.facts[0]
            if again != seen:
                assert said(again) == "Nothing happens."
                assert again.outcome is Outcome.UNSUPPORTED
                nothing += 1
    assert nothing


def test_commands_are_listed_only_when_the_settings_say_so(expected: dict[History, Observation]) -> None:
    with AlfWorld(AlfWorldSettings(list_commands=False)) as terse:
        for history, seen in list(expected.items())[:60]:
            bare = terse.observe([history])[0]
            assert bare.elements == (Element("text", said(seen)),)
            assert (bare.facts, bare.outcome) == (seen.facts, seen.outcome)


def test_help_is_no_suggestion_and_answers(world: AlfWorld) -> None:
    answer = play(world, MUG, 0, "help")
    assert answer.outcome is Outcome.OK
    assert said(answer).startswith("Available commands:")
    assert "help" not in commands(answer)


def test_an_unknown_task_is_refused_before_anything_is_played(world: AlfWorld) -> None:
    with pytest.raises(ValueError, match="no task is called 'click-button'; ALFWorld's are pick_and_place_simple, "):
        world.observe([History(TASKS[0], 0), History("click-button", 0)])
    with pytest.raises(ValueError, match="no task is called"):
        world.plan(History("pick_and_place_with_movable_recep", 0))


def test_the_arguments_and_the_output_of_the_process_are_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    before = [*sys.argv], sys.stdout
    with AlfWorld() as world:
        world.plan(History(MUG, 77))
    assert ([*sys.argv], sys.stdout) == before
    assert capfd.readouterr() == ("", "")
    assert "jericho" not in sys.modules


def test_two_worlds_at_once_do_not_disturb_each_other(expected: dict[History, Observation]) -> None:
    with AlfWorld(AlfWorldSettings(memo_megabytes=0)) as one, AlfWorld(AlfWorldSettings(receptacles=5)) as other:
        small = walks(other, TASKS[:2])
        for history in list(expected)[::7]:
            other.observe(list(small)[:3])
            assert one.observe([history]) == [expected[history]]
        one.close()
        assert differing(small, other) == []


def test_a_process_that_opened_many_worlds_ends_well(engine_here: None) -> None:
    script = (
        "from headroom.worlds.alfworld.world import AlfWorld; from headroom.worlds.base import History\n"
        "for seed in range(40):\n"
        "    with AlfWorld() as world: world.plan(History('look_at_obj_in_light', seed))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_settings_bound_a_scene(engine_here: None) -> None:
    with pytest.raises(ValueError, match=r"^world.receptacles: 2 is too few; the tasks need at least 3$"):
        AlfWorld(AlfWorldSettings(receptacles=2))
    with pytest.raises(ValueError, match=r"^world.objects: 1 is too few"):
        AlfWorld(AlfWorldSettings(objects=1))
