"""Playing and evaluating a policy through the real rollout, in a fake world with a fake policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headroom.agent.codec import EncodedPrompt
from headroom.agent.dialect import WEB_PAGES
from headroom.config.models import MiniWobSettings
from headroom.measure import evaluate, play
from headroom.policy.load import Policy
from headroom.policy.sampler import Generation
from headroom.worlds.base import Element, History, Observation


class FakeButtonWorld:
    """One page, two buttons; "Yes" succeeds. A negative seed never loads."""

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        return [self._page(history) for history in histories]

    def _page(self, history: History) -> Observation:
        if history.seed < 0:
            return Observation("", (), done=True, failure="the tab crashed")
        elements = (Element("button", "Yes"), Element("button", "No"))
        pressed = history.actions[-1].name if history.actions else ""
        return Observation("Press Yes.", elements, raw_reward=float(pressed == "Yes"), done=bool(pressed))

    def close(self) -> None:
        pass


class FakeCodec:
    """Id 1 is a press of "Yes", anything else of "No"."""

    end_ids = (0,)
    dialect = WEB_PAGES

    def encode_prompt(self, text: str) -> EncodedPrompt:
        return EncodedPrompt(np.array([len(text)], np.int32))

    def decode_action(self, ids: Sequence[int], prompt: EncodedPrompt) -> str:
        return f'click button "{"Yes" if ids[0] == 1 else "No"}"'


class FakeCoinSampler:
    """Greedy says "No"; sampled, the seed's parity decides."""

    def __init__(self) -> None:
        self.temperatures: list[float] = []

    def generate(
        self, prompts: Sequence[object], *, temperature: float, seeds: Sequence[int], max_new_tokens: int
    ) -> list[Generation]:
        self.temperatures.append(temperature)
        ids = [seed % 2 if temperature > 0 else 0 for seed in seeds]
        zero = np.zeros(1, np.float32)
        return [Generation(np.array([i], np.int32), zero, zero) for i in ids]


def player(seed: int = 1) -> play.PolicyPlayer:
    policy = Policy(None, FakeCodec(), Path("fake"))  # type: ignore[arg-type]
    return play.PolicyPlayer(
        FakeButtonWorld(),
        policy,
        FakeCoinSampler(),  # type: ignore[arg-type]
        MiniWobSettings(horizon=3),
        seed=seed,
        max_new_tokens=4,
    )


def run(seeds: list[int], samples: int = 4) -> pd.DataFrame:
    return evaluate.evaluate(
        player(),
        policy="p",
        greedy_tasks=["a", "b"],
        sampled_tasks=["b"],
        task_sets={"mastered": ("a",), "headroom": ("b",)},
        seeds=seeds,
        samples=samples,
        temperature=1.0,
    )


def test_greedy_plays_each_page_once_and_sampled_as_often_as_asked() -> None:
    frame = run([1, 2, 3])
    counts = frame.groupby(["task", "mode"]).size().to_dict()
    assert counts == {("a", "greedy"): 3, ("b", "greedy"): 3, ("b", "sampled"): 12}
    assert frame.loc[frame["mode"] == "greedy", "success"].sum() == 0
    assert 0 < frame.loc[frame["mode"] == "sampled", "success"].sum() < 12


def test_the_number_of_episodes_at_once_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run([1, 2, 3])
    monkeypatch.setattr(play, "EPISODES_AT_ONCE", 5)
    pd.testing.assert_frame_equal(run([1, 2, 3]), whole)


def test_episodes_are_played_as_wide_as_allowed_a_page_of_every_task_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "EPISODES_AT_ONCE", 4)
    starts = [(task, seed, 0) for task in "ab" for seed in (1, 2, 3)]
    wide = [[("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("b", 2, 0)], [("a", 3, 0), ("b", 3, 0)]]
    assert play._batches(starts) == wide


def test_another_sampler_seed_gives_other_samples() -> None:
    one, two = (
        [episode.success for episode in player(seed).sampled(["a"], range(20), 2)]
        for seed in (1, 2)
    )  # fmt: skip
    assert one != two


def test_a_page_that_never_loads_is_excluded_and_the_summary_says_so() -> None:
    frame = run([1, -1])
    notes = evaluate.summary(frame)
    assert notes["excluded episodes"] == 6  # one greedy a task, four samples
    assert notes["mastered greedy success"] == 0.0
    assert notes["episodes"] == len(frame) == 12


def test_sampling_at_temperature_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature above 0"):
        player().sampled(["a"], [1], 2, temperature=0.0)


def test_nothing_sampled_is_a_whole_table() -> None:
    frame = evaluate.evaluate(
        player(),
        policy="p",
        greedy_tasks=["a"],
        sampled_tasks=[],
        task_sets={"mastered": ("a",), "headroom": ()},
        seeds=[1],
        samples=4,
        temperature=1.0,
    )
    assert frame["mode"].tolist() == ["greedy"]


def test_progress_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    player().greedy(["a"], range(3))
    assert "greedy: 3/3 episodes, success 0.0%" in capsys.readouterr().err


def test_a_policy_without_finite_probabilities_says_nothing_and_its_neighbours_are_heard() -> None:
    import numpy as np

    from headroom.policy.sampler import Generation

    class HalfBroken:  # a stand-in: no probabilities after a prompt that begins with 9
        def generate(self, prompts, *, temperature, seeds, max_new_tokens):
            if any(prompt[0] == 9 for prompt in prompts):
                raise FloatingPointError
            return [Generation(prompt[:1], np.zeros(1, np.float32), np.zeros(1, np.float32)) for prompt in prompts]

    sampler = play.SilentWhenBroken(HalfBroken(), end_id=1)
    prompts = [np.array([first, 2], dtype=np.int32) for first in (3, 9, 4, 9, 5)]
    answers = sampler.generate(prompts, temperature=1.0, seeds=range(5), max_new_tokens=4)
    assert [int(answer.ids[0]) for answer in answers] == [3, 1, 4, 1, 5]
    assert sampler.silenced == 2


def test_a_checkpoint_of_another_world_is_refused_before_the_world_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headroom.worlds.open.open_world", lambda *_: pytest.fail("the world was opened"))
    (tmp_path / "agent.json").write_text('{"dialect": "text game"}')
    with (
        pytest.raises(ValueError, match=r"speaks the dialect 'text game', but world\.kind miniwob needs 'web pages'"),
        play.open_player(tmp_path, MiniWobSettings(), seed=0, max_new_tokens=8),
    ):
        pass
