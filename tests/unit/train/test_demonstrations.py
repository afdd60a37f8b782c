"""Collecting demonstrations, in a fake world that pays for pressing the buttons 1, 2, ... in order."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest
from toy_game import COMMANDS, POOL, ROOMS, TASKS, FakeGame

from headroom.agent.text_game import TEXT_GAME
from headroom.config.worlds import AlfWorldSettings, MiniWobSettings
from headroom.files import write_parquet
from headroom.train import demonstrations
from headroom.train.demonstrations import collect, left_out, oracles_for, table, tenths, without_oracle
from headroom.worlds.base import Action, Element, History, Observation


class FakeCountingWorld:
    """Seed n asks for n presses; a negative seed is a page that crashes."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        self.batches.append(len(histories))
        return [self._page(history) for history in histories]

    def _page(self, history: History) -> Observation:
        if history.seed < 0:
            return Observation("", (), done=True, failure="the tab crashed")
        presses = [action.name for action in history.actions]
        right = presses == [str(n + 1) for n in range(len(presses))]
        done = len(presses) >= history.seed or not right
        elements = tuple(Element("button", str(n + 1)) for n in range(history.seed))
        return Observation(f"Press {history.seed}.", elements, raw_reward=float(done and right), done=done)

    def close(self) -> None:
        pass


def count_up(observations: Sequence[Observation], actions: Sequence[Action]) -> Action | None:
    return Action("click", "button", str(len(actions) + 1)) if len(actions) < 7 else None


def press_nine(observations: Sequence[Observation], actions: Sequence[Action]) -> Action:
    return Action("click", "button", "9")


def an_oracle(task: str, seed: int) -> demonstrations.Oracle:
    return {"count": count_up, "blunder": press_nine}[task]


def play(starts: Sequence[tuple[str, int]], horizon: int = 9) -> list[demonstrations.Played]:
    return collect(FakeCountingWorld(), an_oracle, starts, horizon=horizon, success_above=0.5)


def test_a_successful_episode_is_one_row_a_turn_with_what_was_known_at_that_turn() -> None:
    frame = table(play([("count", 2)]))
    assert list(frame.columns) == list(demonstrations.COLUMNS)
    assert list(frame["turn"]) == [0, 1]
    assert list(frame["action"]) == ['click button "1"', 'click button "2"']
    assert 'click button "1" -> ok' not in frame["observation"][0]
    assert 'click button "1" -> ok' in frame["observation"][1]
    assert frame["page_digest"].nunique() == 1


def test_failures_are_left_out_and_counted_by_task_and_reason() -> None:
    played = play([("count", 1), ("count", -1), ("count", 9), ("blunder", 2), ("blunder", 3)])
    assert set(table(played)["seed"]) == {1}
    assert left_out(played) == {"blunder": {"not paid": 2}, "count": {"infrastructure": 1, "oracle gave up": 1}}


def test_the_horizon_ends_an_episode() -> None:
    assert left_out(play([("count", 5)], horizon=3)) == {"count": {"horizon": 1}}
    assert left_out(play([("count", 5)], horizon=5)) == {}


def test_the_order_of_the_starts_and_their_batches_do_not_change_a_byte(tmp_path: Path, monkeypatch: object) -> None:
    starts = [("count", n) for n in range(1, 7)] + [("blunder", 1)]
    write_parquet(tmp_path / "a", table(play(starts)))
    monkeypatch.setattr(demonstrations, "BATCH", 2)  # type: ignore[attr-defined]
    write_parquet(tmp_path / "b", table(play(starts[::-1])))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_episodes_are_played_side_by_side() -> None:
    world = FakeCountingWorld()
    collect(world, an_oracle, [("count", n) for n in (1, 2, 3)], horizon=9, success_above=0.5)
    assert world.batches == [3, 3, 2, 1]


def test_each_episode_reports_its_end_once() -> None:
    ended: list[int] = []
    starts = [("count", n) for n in (3, 1, 2)]
    collect(FakeCountingWorld(), an_oracle, starts, horizon=9, success_above=0.5, on_end=lambda e: ended.append(e.seed))
    assert sorted(ended) == [1, 2, 3]


def test_a_hasty_demonstrator_leaves_out_the_step_before_the_last_and_is_marked() -> None:
    frame = table(play([("count", 3), ("count", 1)]), {"count": 1.0})
    long, short = frame[frame["seed"] == 3], frame[frame["seed"] == 1]
    assert list(long["action"]) == ['click button "1"', 'click button "3"']
    assert list(long["hasty"]) == [True, True]
    assert list(short["hasty"]) == [False]  # one step: there is none before the last
    assert 'click button "2"' not in long["observation"].iloc[1]


def test_a_step_whose_successor_is_not_on_the_page_yet_cannot_be_left_out() -> None:
    episode = play([("count", 2)])[0]
    hidden = Observation("", episode.observations[0].elements[:1])
    assert demonstrations.Played("count", 2, [hidden, *episode.observations[1:]], episode.actions).hastily() is None


def test_the_share_of_hasty_episodes_is_the_one_asked_for_and_never_changes_the_others() -> None:
    starts = [("count", 2 + n % 5) for n in range(400)]
    played = [
        demonstrations.Played(e.task, seed, e.observations, e.actions, e.left_out)
        for seed, e in enumerate(play(starts))
    ]
    frame = table(played, {"count": 0.6})
    share = frame.groupby("seed")["hasty"].first().mean()
    assert abs(share - 0.6) < 4 * (0.6 * 0.4 / 400) ** 0.5
    careful = frame[~frame["hasty"]].reset_index(drop=True)
    whole = table(played)
    assert careful.equals(whole[whole["seed"].isin(careful["seed"])].reset_index(drop=True))


def test_each_page_of_a_hasty_task_is_shown_by_hasty_and_careful_demonstrators_in_the_share_asked_for() -> None:
    starts = [("count", seed) for seed in (2, 3, 4, 5)]
    frame = table(play(starts), {"count": 2 / 3}, demonstrators=3)
    shown = frame.groupby(["seed", "demonstrator"])["hasty"].first().unstack()
    assert shown.shape == (4, 3)
    assert (shown.sum(axis=1) == 2).all()  # of every page, not only on average
    careful = frame[~frame["hasty"]].drop(columns="demonstrator").reset_index(drop=True)
    assert careful.equals(table(play(starts)).drop(columns="demonstrator"))


def test_a_text_game_is_demonstrated_with_what_will_be_seen_next_what_is_so_now_and_how_far_it_is() -> None:
    def walk(task: str, seed: int) -> demonstrations.Oracle:
        return lambda observations, actions: Action("command", text=COMMANDS[len(actions)])

    start = next(seed for seed in POOL if seed % len(ROOMS) == 1)  # the animal of the first task is in the second room
    played = collect(FakeGame(), walk, [(TASKS[0], start)], horizon=4, success_above=0.5)
    frame = table(played, dialect=TEXT_GAME)
    assert list(frame["action"]) == [
        'do "go to attic" expect "attic" "yes" know "hall" sure "0"',
        'do "go to bath" expect "bath" "yes" know "attic" sure "9"',
    ]
    assert 'command "go to attic"' in frame["observation"][0]
    assert 'do "go to attic" -> ok' in frame["observation"][1]
    # A hasty demonstrator was never where the step that is left out would have led.
    assert list(table(played, {TASKS[0]: 1.0}, dialect=TEXT_GAME)["action"]) == ['do "go to bath" know "hall" sure "9"']


def test_a_demonstrator_is_as_sure_as_its_episode_is_far_and_surest_at_the_end() -> None:
    assert [tenths(turn, 4) for turn in range(4)] == [0, 2, 5, 9]
    assert [tenths(turn, 7) for turn in range(7)] == [0, 1, 2, 4, 5, 7, 9]
    assert [tenths(turn, 20) for turn in range(20)] == [turn // 2 for turn in range(20)]
    assert tenths(0, 1) == 9


def test_each_world_has_its_demonstrators(monkeypatch: pytest.MonkeyPatch) -> None:
    pages, game = MiniWobSettings(), AlfWorldSettings()
    world = FakeCountingWorld()
    assert callable(oracles_for(pages, world)("click-button", 7))
    assert without_oracle(pages, ["click-button", "no-such-task"]) == ["no-such-task"]
    scripts = types.SimpleNamespace(ORACLES={"find": None}, oracle=lambda task: f"the script of {task}")
    package = types.ModuleType("headroom.worlds.alfworld")
    package.oracles = scripts  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "headroom.worlds.alfworld", package)
    assert oracles_for(game, world)("find", 7) == "the script of find"
    assert without_oracle(game, ["find", "lose"]) == ["lose"]


def test_a_task_that_nobody_hurries_is_shown_once_whatever_the_number_of_demonstrators() -> None:
    assert table(play([("count", 2)]), {"other": 0.5}, demonstrators=3).equals(table(play([("count", 2)])))
