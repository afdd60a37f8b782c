"""Rollouts in a fake world: a counter page, and a policy whose "tokens" are the letters of the action."""

import threading
from dataclasses import dataclass

import numpy as np
import pytest
import toy_game

from headroom.agent.codec import EncodedPrompt
from headroom.agent.dialect import LOCATION, WEB_PAGES
from headroom.agent.episode import Ending, Group
from headroom.policy.load import Policy
from headroom.policy.sampler import Generation
from headroom.train.rollout import PhaseSeconds, rollout
from headroom.worlds.base import Element, Observation, Outcome

CLICK, WRONG = 'click button "Next"', "abracadabra"


class FakeWorld:
    """A page that ends after ``seed`` valid clicks and then pays 1.0 (0.5 for task "half").

    Task "broken" fails as infrastructure after its first action; seed 0 is done before any action.
    """

    def __init__(self):
        self.calls = []

    def observe(self, histories):
        self.calls.append(len(histories))
        return [self._observe(history) for history in histories]

    def _observe(self, history):
        clicks = sum(action.verb == "click" for action in history.actions)
        outcome = Outcome.OK
        if history.actions and history.actions[-1].verb == "malformed":
            outcome = Outcome.MALFORMED
        page = Element("button", "Next"), Element("text", str(clicks))
        if history.task == "broken" and history.actions:
            return Observation("count", page, outcome, raw_reward=1.0, done=True, failure="the browser died thrice")
        done = clicks >= history.seed
        reward = {"half": 0.5}.get(history.task, 1.0) if done else 0.0
        return Observation("count", page, outcome, reward, done)

    def close(self):
        pass


class FakeCodec:
    """Letters as ids; 0 ends."""

    end_ids, pad_id, size, dialect = (0,), 1, 256, WEB_PAGES

    def __init__(self):
        self.encoded = []

    def encode_prompt(self, text):
        self.encoded.append(text)
        return EncodedPrompt(np.frombuffer(text.encode(), np.uint8).astype(np.int32))

    def decode_action(self, ids, prompt):
        return bytes(int(i) for i in ids if i).decode()


@dataclass
class FakeSampler:
    """Clicks, but answers nonsense whenever the sample's own seed says so."""

    wrong_one_in: int = 0
    seen: list = None

    def generate(self, prompts, *, temperature, seeds, max_new_tokens):
        self.seen = (self.seen or []) + list(seeds)
        made = []
        for seed in seeds:
            text = WRONG if self.wrong_one_in and seed % self.wrong_one_in == 0 else CLICK
            ids = np.array([*text.encode(), 0], np.int32)
            made.append(Generation(ids, np.full(len(ids), -0.5, np.float32), np.zeros(len(ids), np.float32)))
        return made


def play(starts, *, sampler=None, world=None, codec=None, **changes):
    settings = {"horizon": 6, "temperature": 1.0, "seed": 3, "success_above": 0.99, "max_new_tokens": 24} | changes
    policy = Policy(None, codec or FakeCodec(), None)
    return rollout(world or FakeWorld(), policy, sampler or FakeSampler(), starts, **settings)


def test_every_start_becomes_one_episode_in_its_place():
    starts = [("count", seed, sample) for sample in range(3) for seed in (4, 1, 9, 2)]
    episodes = play(starts)
    assert [(e.task, e.seed, e.sample) for e in episodes] == starts
    assert [len(e.turns) for e in episodes[:4]] == [4, 1, 6, 2]


def test_success_needs_an_end_and_a_reward_above_the_threshold():
    done, cut, half = play([("count", 2, 0), ("count", 7, 0), ("half", 2, 0)])
    assert (done.ending, done.success, done.raw_reward) == (Ending.DONE, True, 1.0)
    assert (cut.ending, cut.success, cut.raw_reward) == (Ending.HORIZON, False, 0.0)
    assert (half.ending, half.success, half.raw_reward) == (Ending.DONE, False, 0.5)
    assert play([("half", 2, 0)], success_above=0.4)[0].success


def test_an_end_at_the_last_allowed_turn_still_counts():
    assert play([("count", 6, 0)])[0].ending is Ending.DONE
    assert play([("count", 6, 0)], horizon=5)[0].ending is Ending.HORIZON


def test_an_action_that_is_none_costs_its_turn_and_keeps_its_kind():
    episode = play([("count", 1, 0)], sampler=FakeSampler(wrong_one_in=1))[0]
    assert [turn.outcome for turn in episode.turns] == [Outcome.MALFORMED] * 6
    assert episode.turns[0].action_text == WRONG
    assert episode.ending is Ending.HORIZON


def test_an_infrastructure_failure_is_no_outcome_of_the_agent():
    broken, fine = play([("broken", 3, 0), ("count", 3, 0)])
    assert (broken.ending, broken.success, broken.raw_reward) == (Ending.INFRASTRUCTURE, False, 0.0)
    assert broken.failure == "the browser died thrice"
    assert fine.success


def test_a_page_that_is_done_at_once_has_no_turn():
    episode = play([("count", 0, 0)])[0]
    assert (episode.turns, episode.ending, episode.success) == ((), Ending.DONE, True)


def test_a_turn_stores_what_the_sampler_made_and_the_outcome_that_followed():
    turn = play([("count", 1, 0)])[0].turns[0]
    assert bytes(turn.prompt_ids.astype(np.uint8)).decode().startswith("goal: count")
    assert bytes(turn.action_ids.astype(np.uint8)).decode() == CLICK + "\0"
    assert turn.log_probabilities.tolist() == [-0.5] * len(turn.action_ids)
    assert turn.outcome is Outcome.OK


def test_each_turn_carries_how_right_its_prediction_and_its_answer_were_the_last_turn_too():
    """The attic is predicted, the bath is not, the cellar in half; in the end the cat is found there."""
    scripts = [
        ["go to attic", "attic", "yes"],
        ["go to bath"],
        ["dance", "bath", "yes"],
        ["go to cellar", "bath", "yes"],
    ]

    class Scripted:
        def __init__(self):
            self.left = [np.array([*map(toy_game.WORDS.index, words), 1], np.int32) for words in scripts]

        def generate(self, prompts, **rest):
            ids = self.left.pop(0)
            return [Generation(ids, np.zeros(len(ids), np.float32), np.zeros(len(ids), np.float32))]

    codec = toy_game.FakeGameCodec()
    (found,) = play([("find-cat", 2, 0)], world=toy_game.FakeGame(), codec=codec, sampler=Scripted())
    assert found.success
    assert [turn.prediction_score for turn in found.turns] == [1.0, 0.0, 1.0, 0.5]
    # The anchor answers are attic, none, bath and bath; the agent is in the hall, the attic, the bath and the bath.
    assert [turn.anchor_score for turn in found.turns] == [0.0, 0.0, 1.0, 1.0]
    assert [turn.confidence for turn in found.turns] == [7 / 9, 0.0, 7 / 9, 7 / 9]
    assert [turn.outcome for turn in found.turns] == [Outcome.OK, Outcome.OK, Outcome.UNSUPPORTED, Outcome.OK]
    page = play([("count", 1, 0)])[0].turns[0]  # which has nothing to predict, and asks nothing
    assert (page.prediction_score, page.anchor_score, page.confidence) == (None, None, None)
    assert all(turn.facts == () for turn in found.turns)  # nobody asked
    (kept,) = play(
        [("find-cat", 2, 0)], world=toy_game.FakeGame(), codec=codec, sampler=Scripted(), keep_facts=True
    )  # fmt: skip
    seen = [dict(turn.facts)[LOCATION] for turn in kept.turns]
    assert seen == ["attic", "bath", "bath", "cellar"]  # of the observation that followed, the last one too


def test_an_episode_does_not_depend_on_those_beside_it():
    starts = [("count", seed, sample) for seed in (3, 5) for sample in range(4)]
    together = play(starts, sampler=FakeSampler(wrong_one_in=9))
    texts = [[turn.action_text for turn in episode.turns] for episode in together]
    assert any(WRONG in one for one in texts)
    assert any(WRONG not in one for one in texts)
    for start, expected in zip(starts, texts, strict=True):
        alone = play([start], sampler=FakeSampler(wrong_one_in=9))[0]
        assert [turn.action_text for turn in alone.turns] == expected


def test_every_turn_of_every_sample_has_a_seed_of_its_own():
    sampler = FakeSampler()
    starts = [(task, seed, sample) for task in ("count", "half") for seed in (3, 4) for sample in range(4)]
    play(starts, sampler=sampler)
    assert len(set(sampler.seen)) == len(sampler.seen) == 8 * (3 + 4)
    again = FakeSampler()
    play(starts, sampler=again)
    assert again.seen == sampler.seen
    other = FakeSampler()
    play(starts, sampler=other, seed=4)
    assert not set(other.seen) & set(sampler.seen)


def test_one_call_to_the_world_a_turn_for_the_live_episodes_only():
    world = FakeWorld()
    play([("count", 1, 0), ("count", 3, 0), ("count", 9, 0)], world=world)
    assert world.calls == [3, 3, 2, 2, 1, 1, 1]


def test_a_prompt_that_group_members_share_is_encoded_once():
    codec = FakeCodec()
    episodes = play([("count", 3, sample) for sample in range(8)], codec=codec)
    assert len(codec.encoded) == 3
    Group("count", 3, tuple(episodes))


def test_progress_and_phases_are_reported():
    seen, phases = [], PhaseSeconds()
    play([("count", 1, 0), ("count", 2, 0)], progress=lambda done, total: seen.append((done, total)), phases=phases)
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert phases.world > 0
    assert phases.generate > 0


def test_nothing_to_play_is_no_episode():
    assert play([]) == []


@pytest.mark.parametrize("wrong", [{"horizon": 0}, {"starts": [("count", 1, 0)] * 2}])
def test_a_rollout_without_turns_or_with_one_start_twice_is_refused(wrong):
    starts = wrong.pop("starts", [("count", 1, 0)])
    with pytest.raises(ValueError, match="rollout needs"):
        play(starts, **wrong)


# The world beside the engine


def same(one, other):
    assert [(e.task, e.seed, e.sample, e.success, e.ending) for e in one] == [
        (e.task, e.seed, e.sample, e.success, e.ending) for e in other
    ]
    for a, b in zip(one, other, strict=True):
        assert [(t.action_text, t.outcome) for t in a.turns] == [(t.action_text, t.outcome) for t in b.turns]
        for x, y in zip(a.turns, b.turns, strict=True):
            assert np.array_equal(x.prompt_ids, y.prompt_ids)
            assert np.array_equal(x.action_ids, y.action_ids)
            assert np.array_equal(x.log_probabilities, y.log_probabilities)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_two_halves_give_the_episodes_of_the_whole(count):
    tasks = ("count", "half", "broken", "count", "half", "broken", "count")
    starts = [(task, seed, 0) for seed, task in enumerate(tasks)][:count]
    sampler, beside = FakeSampler(wrong_one_in=3), FakeSampler(wrong_one_in=3)
    same(play(starts, sampler=sampler), play(starts, sampler=beside, overlap=True))
    assert sorted(sampler.seen or []) == sorted(beside.seen or [])


class Meeting:
    """A world and a sampler in one: each call of one, after the world's first, waits for a call of the other."""

    def __init__(self, patience):
        self.world, self.together = FakeWorld(), threading.Barrier(2, timeout=patience)
        self.met = []

    def _meet(self):
        try:
            self.met.append(self.together.wait() >= 0)
        except threading.BrokenBarrierError:
            self.met.append(False)

    def observe(self, histories):
        if 1 <= len(self.world.calls) <= 4:
            self._meet()
        return self.world.observe(histories)

    def generate(self, prompts, **rest):
        self._meet()
        return FakeSampler().generate(prompts, **rest)


@pytest.mark.parametrize(("overlap", "patience"), [(True, 60.0), (False, 0.01)])
def test_the_world_plays_one_half_while_the_other_is_sampled_only_where_that_is_asked_for(overlap, patience):
    meeting = Meeting(patience)
    play([("count", 2, 0), ("count", 2, 1)], world=meeting, sampler=meeting, overlap=overlap)
    assert len(meeting.met) >= 3
    assert set(meeting.met) == {overlap}
