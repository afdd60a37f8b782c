"""The world is a function of (task, seed, actions), however its answers come about."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headroom.config.models import MiniWobSettings
from headroom.worlds.base import Action, History, Observation, Outcome, World
from headroom.worlds.miniwob import pool as pool_module
from headroom.worlds.miniwob.tasks import EXCLUDED, TASKS
from headroom.worlds.miniwob.world import MiniWob

pytestmark = pytest.mark.browser

SCALE = Path(__file__).parents[2] / "workflow" / "scales" / "tiny.yaml"
STUDY_TASKS = tuple(yaml.safe_load(SCALE.read_text())["tasks"]["candidates"])
OTHER_TASKS = (
    "choose-date", "email-inbox-forward", "find-word", "multi-layouts", "order-food", "phone-book", "read-table",
    "social-media-some", "use-autocomplete",
)  # fmt: skip
"""Kinds of pages that the study's tasks lack: calendars, tables, mail, menus."""

TEXTS = ("a", "Ce", "12", "hello w", "10/11/2011", "")
KEYS = ("Enter", "Tab", "ArrowDown", "ArrowRight", "Escape", "x", "Space")


def some_action(rng: random.Random, observation: Observation) -> Action:
    """An action that mostly fits the page."""
    choices = [e for e in observation.elements if e.role not in ("text", "cell", "heading")] or observation.elements
    if not choices:
        return Action("press", text="Tab")
    e = rng.choice(choices)
    kind = rng.random()
    if e.role in ("textbox", "spinbutton") and kind < 0.7:
        return Action("fill", e.role, e.name, e.occurrence, rng.choice(TEXTS))
    if e.role in ("combobox", "listbox"):
        return Action("select", e.role, e.name, e.occurrence, rng.choice(e.options or ("",)))
    if kind < 0.1:
        return Action("press", e.role, e.name, e.occurrence, rng.choice(KEYS))
    if kind < 0.15:
        return Action("scroll", e.role, e.name, e.occurrence, rng.choice(("up", "down")))
    if kind < 0.18:
        return Action("malformed", text="zz")
    return Action("click", e.role, e.name, e.occurrence)


def wander(world: World, tasks: Sequence[str], seeds: Sequence[int], turns: int) -> dict[History, Observation]:
    """Every point of random episodes, one turn at a time for all of them together."""
    met: dict[History, Observation] = {}
    live = [(History(task, seed), random.Random(f"{task} {seed}")) for task in tasks for seed in seeds]
    for turn in range(turns + 1):
        observations = world.observe([history for history, _ in live])
        onwards = []
        for (history, rng), observation in zip(live, observations, strict=True):
            met[history] = observation
            if not observation.done and turn < turns:
                onwards.append((history.then(some_action(rng, observation)), rng))
        live = onwards
    return met


def shuffled(histories: Sequence[History]) -> list[History]:
    return random.Random(0).sample(histories, len(histories))


def differing(expected: dict[History, Observation], world: World) -> set[str]:
    asked = shuffled(list(expected))
    got = world.observe(asked)
    return {history.task for history, seen in zip(asked, got, strict=True) if seen != expected[history]}


def on_fresh_pages(
    tasks: Sequence[str], seeds: Sequence[int], turns: int, patch: pytest.MonkeyPatch
) -> dict[History, Observation]:
    """Reference: the page is loaded for every single question."""
    with patch.context() as patched, MiniWob(MiniWobSettings(memo_megabytes=0)) as world:
        patched.setattr(pool_module, "RELOAD", frozenset(TASKS))
        return wander(world, tasks, seeds, turns)


@pytest.fixture(scope="module")
def met() -> dict[History, Observation]:
    """Reference points of every task that the study may choose, and of other kinds of pages."""
    with pytest.MonkeyPatch.context() as patch:
        return on_fresh_pages(STUDY_TASKS + OTHER_TASKS, [11], 3, patch)


def test_the_reference_has_episodes_that_end_and_answers_of_several_kinds(met: dict[History, Observation]) -> None:
    assert not any(observation.failure for observation in met.values())
    assert any(observation.done for observation in met.values())
    assert len({observation.outcome for observation in met.values()}) > 1


def test_reused_pages_answer_as_fresh_ones_in_one_tab(met: dict[History, Observation]) -> None:
    with MiniWob(MiniWobSettings(memo_megabytes=0, tabs=1)) as world:
        assert differing(met, world) == set()


def test_reused_pages_answer_as_fresh_ones_in_many_tabs_again_and_again(met: dict[History, Observation]) -> None:
    with MiniWob(MiniWobSettings(memo_megabytes=0, tabs=8)) as world:
        assert differing(met, world) == set()
        assert differing(met, world) == set()


def test_going_on_from_where_a_page_stands_is_replaying_from_the_start(met: dict[History, Observation]) -> None:
    with MiniWob(MiniWobSettings(memo_megabytes=0, tabs=1)) as world:
        for history, expected in sorted(met.items(), key=lambda item: (item[0].task, len(item[0].actions))):
            assert world.observe([history]) == [expected]
        assert world.statistics.replays < sum(max(0, len(history.actions) - 1) for history in met)


def test_what_another_job_saw_changes_no_answer_and_spares_the_browser(
    met: dict[History, Observation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADROOM_PAGES", str(tmp_path))
    settings = MiniWobSettings(memo_megabytes=0, share_memory=True)
    every_other = dict(list(met.items())[::2])
    with MiniWob(settings) as world:
        assert differing(every_other, world) == set()
        assert world.counts()["remembered"] == 0
    with MiniWob(settings) as world:
        assert differing(met, world) == set()
        counts = world.counts()
    assert counts["remembered"] + counts["remembered_and_played"] >= len(every_other)
    assert counts["played"] < len(met)
    assert counts["remembered_wrongly"] == 0
    with MiniWob(settings) as world:
        assert differing(met, world) == set()
        assert world.counts()["played"] == world.counts()["remembered_and_played"]


def test_the_memo_changes_no_answer_and_is_used(met: dict[History, Observation]) -> None:
    with MiniWob(MiniWobSettings(memo_megabytes=4)) as world:
        assert differing(met, world) == set()
        resets = world.statistics.resets
        assert differing(met, world) == set()
        assert world.statistics.resets == resets
        assert world.statistics.memo_hits >= len(met)


def test_equal_questions_of_a_batch_are_asked_once(world: MiniWob) -> None:
    before = world.statistics.resets
    first, *others = world.observe([History("click-test-2", 5)] * 6)
    assert others == [first] * 5
    assert world.statistics.resets == before + 1


def test_an_episode_that_has_ended_stays_as_it_ended(world: MiniWob) -> None:
    end = History("click-test", 1, (Action("click", "button", "Click Me!"),))
    at_end, later = world.observe([end, end.then(Action("click", "button", "Click Me!"))])
    assert at_end.done
    assert at_end.raw_reward == 1.0
    assert later == at_end


def test_seeds_give_different_pages(world: MiniWob) -> None:
    pages = world.observe([History("click-link", seed) for seed in range(20)])
    assert len({page.elements for page in pages}) > 15


def test_every_task_loads_and_shows_something() -> None:
    with MiniWob(MiniWobSettings(tabs=4)) as world:
        pages = dict(zip(TASKS, world.observe([History(task, 3) for task in TASKS]), strict=True))
    assert len(TASKS) == 128
    assert {task: page.failure for task, page in pages.items() if page.failure} == {}
    assert [task for task, page in pages.items() if not page.utterance or not page.elements or page.done] == []


@pytest.mark.parametrize("task", [*EXCLUDED, "no-such-task", "../click-test", ""])
def test_an_unknown_or_excluded_task_raises_before_any_page_is_touched(world: MiniWob, task: str) -> None:
    before = world.statistics.resets
    with pytest.raises(ValueError, match="task"):
        world.observe([History("click-test", 1), History(task, 1)])
    assert world.statistics.resets == before


def test_a_screenshot_is_a_png_of_the_task_and_does_not_disturb_the_episode(world: MiniWob) -> None:
    start = History("click-tab-2", 3)
    onwards = start.then(Action("click", "tab", "Tab #2"))
    expected = world.observe([start, onwards])
    picture = world.screenshot(start)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", picture[16:24]) == (160, 210)
    assert len(picture) > 1000  # more than one colour
    assert world.observe([onwards, start]) == expected[::-1]


def test_boxes_lie_where_the_elements_are(world: MiniWob) -> None:
    history = History("click-test-2", 3)
    boxes = world.boxes(history)
    assert tuple(element for element, *_ in boxes) == world.observe([history])[0].elements
    for _, left, top, width, height in boxes:
        assert 0 <= left <= 160
        assert 0 <= top <= 210
        assert width == pytest.approx(40)
        assert height == pytest.approx(40)


anything = st.text(max_size=12)
actions = st.builds(
    Action,
    st.sampled_from(["click", "fill", "select", "press", "scroll", "malformed", "hover", ""]),
    st.sampled_from(["button", "textbox", "combobox", "tab", "", "nothing"]) | anything,
    st.sampled_from(["Submit", "", "Tab #2"]) | anything,
    st.integers(-2, 5),
    anything | st.sampled_from(["Enter", "Control+a", "down", "__proto__"]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    task=st.sampled_from(["enter-text", "click-tab-2", "choose-list", "use-spinner"]),
    played=st.lists(actions, max_size=4),
)
def test_no_action_raises_or_fails(world: MiniWob, task: str, played: list[Action]) -> None:
    observation = world.observe([History(task, 1, tuple(played))])[0]
    assert observation.failure == ""
    assert observation.outcome in Outcome
    str(observation).encode("utf-8")


@pytest.mark.slow
def test_every_task_is_deterministic_on_reused_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = on_fresh_pages(TASKS, [1, 2, 3], 5, monkeypatch)
    with MiniWob(MiniWobSettings(memo_megabytes=0, tabs=4)) as world:
        assert differing(expected, world) == set()
