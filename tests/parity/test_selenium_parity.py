"""Our pages are the wheel's pages: equal seed, equal utterance; equal actions, equal raw reward.

The reference is the wheel's own Selenium environment, through gymnasium, in full Chromium with a real clock.
Per page three action sequences are compared step by step: the oracle's, the oracle's last action at once
(submitted too early), and a click on something else.
"""

import random
from collections.abc import Iterator

import pytest
from selenium_environment import SeleniumEnvironment, missing

from headroom.config.models import MiniWobSettings
from headroom.worlds.base import Action, History, Observation
from headroom.worlds.miniwob.oracles import oracle
from headroom.worlds.miniwob.world import MiniWob

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing() or "here")]

SEEDS = range(5)
TASKS = (
    "choose-list", "click-button", "click-checkboxes", "click-checkboxes-large", "click-checkboxes-soft",
    "click-collapsible-2", "click-dialog", "click-dialog-2", "click-link", "click-option", "click-tab",
    "click-tab-2-hard", "click-test", "click-test-2", "enter-password", "enter-text", "enter-text-2", "find-word",
    "form-sequence-2", "login-user", "multi-orderings", "navigate-tree", "odd-or-even", "read-table", "search-engine",
    "simple-algebra", "simple-arithmetic", "social-media-some", "unicode-test",
)  # fmt: skip
# Pages that animate: ours move a simulated clock, theirs have to wait.
WAITS = {"click-collapsible-2": 600.0, "navigate-tree": 300.0}


@pytest.fixture(scope="module")
def world() -> Iterator[MiniWob]:
    with MiniWob(MiniWobSettings()) as browser:
        yield browser


def follow(
    world: MiniWob, task: str, seed: int, actions: list[Action] | None = None
) -> tuple[list[Observation], list[Action]]:
    """Our episode of these actions, or of the oracle's; it stops when the page is done."""
    history = History(task, seed)
    observations, taken = world.observe([history]), list[Action]()
    act = oracle(task)
    while not observations[-1].done and len(taken) < 16:
        if actions is not None and len(taken) == len(actions):
            break
        action = act(observations, taken) if actions is None else actions[len(taken)]
        assert action is not None
        history = history.then(action)
        taken.append(action)
        observations += world.observe([history])
    return observations, taken


def other_click(first: Observation, oracles: Action, seed: int) -> list[Action]:
    """A click on something that the oracle does not click first; empty when the page has nothing else."""
    clickable = [
        Action("click", element.role, element.name, element.occurrence)
        for element in first.elements
        if element.role in ("button", "link", "tab", "checkbox", "radio") and "disabled" not in element.states
    ]
    others = [action for action in clickable if (action.role, action.name) != (oracles.role, oracles.name)]
    return [random.Random(seed).choice(others)] if others else []


@pytest.mark.parametrize("task", TASKS)
def test_equal_seeds_and_actions_give_the_reference_environments_utterance_and_raw_reward(
    world: MiniWob, task: str
) -> None:
    rewards = set()
    with SeleniumEnvironment(task, wait_milliseconds=WAITS.get(task, 0.0)) as reference:
        for seed in SEEDS:
            observations, solution = follow(world, task, seed)
            for actions in (solution, solution[-1:], other_click(observations[0], solution[0], seed)):
                ours, taken = follow(world, task, seed, actions)
                assert reference.reset(seed) == ours[0].utterance
                for before, action, after in zip(ours, taken, ours[1:], strict=False):
                    if after.outcome.invalid:
                        break  # not on this page yet, or covered: their click would go through what covers it
                    assert reference.step(before, action) == (after.raw_reward, after.done), (seed, action)
                    rewards.add(after.raw_reward)
    assert 1.0 in rewards
