"""Every oracle solves its task on every seed, from what the agent sees, without a wasted action."""

import itertools
from collections.abc import Iterator
from random import Random

import pytest

from headroom.config.models import MiniWobSettings
from headroom.worlds.base import Action, Element, History, Observation, Outcome
from headroom.worlds.miniwob.oracles import ORACLES, oracle
from headroom.worlds.miniwob.world import MiniWob

pytestmark = pytest.mark.browser
TURNS = 16
# These place two buttons at random; on one page in two hundred TWO covers ONE, and no click can reach it.
COVERED = {"click-test-2", "click-test-transfer", "click-button-sequence"}


@pytest.fixture(scope="module")
def world() -> Iterator[MiniWob]:
    with MiniWob(MiniWobSettings(memo_megabytes=16)) as browser:
        yield browser


Episode = tuple[list[Observation], list[Action]]


def play(world: MiniWob, task: str, seed: int, opening: tuple[Action, ...] = ()) -> Episode:
    """The oracle's episode on this seed, after the ``opening`` actions. One at a time: no page is played twice."""
    act = oracle(task)
    history = History(task, seed)
    observations, actions = world.observe([history]), list[Action]()
    while len(actions) < TURNS and not observations[-1].done:
        action = opening[len(actions)] if len(actions) < len(opening) else act(observations, actions)
        if action is None:
            break
        actions.append(action)
        history = history.then(action)
        observations += world.observe([history])
    return observations, actions


def solved(episode: Episode) -> bool:
    last = episode[0][-1]
    return last.done and not last.failure and last.raw_reward == 1.0


def check(task: str, episodes: dict[int, Episode]) -> None:
    """Every episode is solved, but for the pages whose button is covered."""
    failures = {seed: observations for seed, (observations, _) in episodes.items() if not solved(episodes[seed])}
    for seed, observations in failures.items():
        covered = task in COVERED and observations[-1].outcome is Outcome.OCCLUDED
        assert covered, (seed, observations[-1])
    assert len(failures) <= 1, f"{task}: seeds {sorted(failures)}"


@pytest.mark.parametrize("task", sorted(ORACLES))
def test_the_oracle_solves_three_pages_and_every_action_reaches_the_page(world: MiniWob, task: str) -> None:
    episodes = {seed: play(world, task, seed) for seed in range(3)}
    check(task, episodes)
    for observations, actions in filter(solved, episodes.values()):
        assert all(observation.outcome is Outcome.OK for observation in observations)
        assert all(after.elements != before.elements or after.done for before, after in pairs(task, observations)), (
            actions
        )


def pairs(task: str, observations: list[Observation]) -> list[tuple[Observation, Observation]]:
    """Consecutive observations; but the number generator may draw the number that it showed already."""
    return [] if task == "generate-number" else list(itertools.pairwise(observations))


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(ORACLES))
def test_the_oracle_solves_fifty_pages(world: MiniWob, task: str) -> None:
    check(task, {seed: play(world, task, seed) for seed in range(1000, 1050)})


@pytest.mark.parametrize("task", ["click-checkboxes", "click-checkboxes-large", "click-option", "choose-date-easy"])
def test_the_oracle_recovers_from_a_mistake(world: MiniWob, task: str) -> None:
    """A demonstration can start anywhere: also after the first box, option or day was clicked, right or wrong."""
    (first,) = world.observe([History(task, 5)])
    target = next(element for element in first.elements if element.role in ("checkbox", "radio", "textbox"))
    opening = [Action("click", target.role, target.name, target.occurrence)]
    if task == "choose-date-easy":
        opening.append(Action("click", "link", "7"))
    episode = play(world, task, 5, tuple(opening))
    assert solved(episode)


def test_an_oracle_does_not_depend_on_how_the_episode_came_to_its_page(world: MiniWob) -> None:
    observations, actions = play(world, "login-user", 7)
    for turn, action in enumerate(actions):
        assert oracle("login-user")(observations[: turn + 1], actions[:turn]) == action
        assert oracle("login-user")([observations[turn]], []) == action


@pytest.mark.parametrize("task", sorted(ORACLES))
def test_an_oracle_never_raises_whatever_was_done_before(world: MiniWob, task: str) -> None:
    random = Random(task)
    for seed in range(2):
        history = History(task, seed)
        observations, actions = world.observe([history]), list[Action]()
        while len(actions) < 5 and not observations[-1].done and observations[-1].elements:
            element = random.choice(observations[-1].elements)
            verb = random.choice(("click", "click", "fill"))
            actions.append(Action(verb, element.role, element.name, element.occurrence, "7" if verb == "fill" else ""))
            history = history.then(actions[-1])
            observations += world.observe([history])
            proposed = oracle(task)(observations, actions)
            assert proposed is None or proposed.verb in ("click", "fill", "select")


def test_an_oracle_that_finds_nothing_to_do_says_so() -> None:
    act = oracle("click-button")
    assert act([Observation('Click on the "ok" button.', (Element("button", "cancel"),))], []) is None
    assert act([Observation("Something else entirely.", ())], []) is None
    assert act([Observation('Click on the "ok" button.', (Element("button", "ok"),), done=True)], []) is None


def test_an_oracle_does_not_repeat_what_the_page_refused() -> None:
    act = oracle("click-test-2")
    page = (Element("button", "ONE"), Element("button", "TWO"))
    click = act([Observation("Click button ONE.", page)], [])
    assert click == Action("click", "button", "ONE")
    assert (
        act([Observation("Click button ONE.", page), Observation("Click button ONE.", page, Outcome.OCCLUDED)], [click])
        is None
    )


def test_a_task_without_an_oracle_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="no oracle for task 'drag-box'"):
        oracle("drag-box")
