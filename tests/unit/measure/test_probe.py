"""The probe: replayed from the reading's greedy episodes, and from nothing that chose the tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_episodes import episode

import headroom.worlds.miniwob.world as miniwob
from headroom.agent.dialect import WEB_PAGES
from headroom.agent.spoken import write_spoken
from headroom.config.jobs import ProbeJob, dump_job
from headroom.config.models import MiniWobSettings, Probe, WorldSettings
from headroom.files import write_json, write_parquet, write_text
from headroom.measure import episodes, probe
from headroom.worlds.base import Element, History, Observation
from headroom.worlds.seeds import pool

PAGES = Probe(seeds=2, turns=4)
SETS = {"mastered": ("a",), "headroom": ("b",)}


class FakeWorld:
    """Answers every history with one button; a context manager like the real one."""

    def __init__(self, settings: WorldSettings) -> None:
        self.asked: list[History] = []

    def counts(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        pass

    def observe(self, histories: list[History]) -> list[Observation]:
        return [Observation(f"page {point.seed}", (Element("button", "Ok"),)) for point in histories]


@dataclass
class Encoded:
    ids: np.ndarray


class FakeCodec:
    """One id a character."""

    dialect = WEB_PAGES

    def encode_prompt(self, text: str) -> Encoded:
        return Encoded(np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32))

    def encode_action(self, text: str, prompt: Encoded) -> np.ndarray:
        return self.encode_prompt(text).ids


def played(name: str, count: int = 3) -> pd.DataFrame:
    """Greedy and sampled episodes of both tasks on the first pages of a pool."""
    starts = [(task, seed) for task in ("a", "b") for seed in pool(name, count)]
    tables = [
        episodes.table([episode(task, seed) for task, seed in starts], policy="sft", mode=mode, task_sets=SETS)
        for mode in ("greedy", "sampled")
    ]
    return episodes.ordered(pd.concat(tables, ignore_index=True))


def test_the_greedy_episodes_of_the_asked_tasks_and_pages_are_chosen() -> None:
    seeds = list(pool("reading", 2))
    rows = probe.chosen_episodes(played("reading"), ["a"], seeds)
    assert set(rows["mode"]) == {"greedy"}
    assert set(rows["task"]) == {"a"}
    assert sorted(rows["seed"]) == sorted(seeds)


def test_pages_that_the_reading_did_not_play_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"1 of the probe's 4 seeds; mechanism\.probe\.seeds must not exceed"):
        probe.chosen_episodes(played("reading", 3), ["a"], list(pool("reading", 4)))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """run(episodes) -> the probe's table, from the stage's own main."""
    monkeypatch.setattr(miniwob, "MiniWob", FakeWorld)
    monkeypatch.setattr(probe, "load_codec", lambda folder: FakeCodec())
    results = tmp_path / "results" / "tiny"
    write_text(results / "sft/sft/checkpoint/tokenizer.json", '{"model": {}, "added_tokens": []}')
    write_spoken("web pages", results / "sft/sft/checkpoint")
    write_json(results / "select/task_sets.json", SETS)
    write_text(results / "config/probe.json", dump_job(ProbeJob(world=MiniWobSettings(), probe=PAGES)))

    def run(table: pd.DataFrame) -> pd.DataFrame:
        write_parquet(results / "reading/episodes.parquet", table)
        probe.main(
            config=results / "config/probe.json",
            checkpoint=results / "sft/sft/checkpoint",
            reading=results / "reading",
            task_sets=results / "select/task_sets.json",
            output=results / "probe",
        )
        return pd.read_parquet(results / "probe/probe.parquet")

    return run


def test_the_probe_is_made_of_pages_of_the_reading_pool(stage: Any) -> None:
    table = stage(played("reading"))
    assert set(table["seed"]) == set(pool("reading", 2))
    assert set(table["task"]) == {"a"}
    assert table.groupby("seed")["turn"].max().tolist() == [1, 1]


def test_a_checkpoint_of_another_world_writes_no_probe(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "chosen_episodes", lambda *_: pytest.fail("the work began"))
    checkpoint = tmp_path / "results/tiny/sft/sft/checkpoint"
    write_spoken("text game", checkpoint)
    with pytest.raises(SystemExit, match=r"speaks the dialect 'text game', but world\.kind miniwob"):
        stage(played("reading"))
    (checkpoint / "agent.json").unlink()
    with pytest.raises(SystemExit, match=r"agent\.json is missing"):
        stage(played("reading"))


def test_episodes_on_the_selections_pages_are_refused(stage: Any) -> None:
    with pytest.raises(SystemExit, match="the reading played no page"):
        stage(played("selection"))
