"""The set of every candidate: written by selection, read by whoever plays, and never mixed with the chosen sets."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from headroom.config.jobs import SelectJob, dump_job
from headroom.config.models import AlfWorldSettings, Tasks
from headroom.files import write_json, write_text
from headroom.measure import select
from headroom.measure.run_table import ARM, cell_of, read_runs
from headroom.measure.task_sets import labels, read_task_sets, tasks_of
from headroom.train.groups import task_set

PROJECT = Path(__file__).parents[3]
CHOSEN = {"mastered": ["a"], "headroom": ["b"], "filled": {"mastered": [], "headroom": []}}


def test_a_selection_of_no_set_plays_nothing_and_names_every_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def opened(*arguments: object, **options: object):
        raise AssertionError("nothing needs to be played")
        yield

    monkeypatch.setattr(select, "open_player", opened)
    results = tmp_path / "results" / "dark-room-smoke"
    tasks = Tasks(candidates=("z", "b", "a"), mastered=0, headroom=0)
    write_text(results / "config.json", dump_job(SelectJob(world=AlfWorldSettings(), tasks=tasks)))
    write_text(results / "checkpoint" / "config.json", "{}")
    select.main(results / "config.json", results / "checkpoint", results / "select")
    path = results / "select" / "task_sets.json"
    assert json.loads(path.read_text())["all"] == ["a", "b", "z"]
    sets = read_task_sets(path)
    assert (sets["mastered"], sets["headroom"], sets["all"]) == ((), (), ("a", "b", "z"))
    assert labels(sets) == {"all": ("a", "b", "z")}
    assert tasks_of(sets, ["all"], path) == ["a", "b", "z"] == task_set(path, "all")
    assert pd.read_parquet(results / "select" / "episodes.parquet").empty
    assert len(pd.read_csv(results / "select" / "tasks.csv")) == 3


def test_a_study_that_chose_sets_is_labelled_by_them_also_where_every_task_is_named(tmp_path: Path) -> None:
    path = tmp_path / "task_sets.json"
    write_json(path, {**CHOSEN, "all": ["a", "b", "c"]})
    sets = read_task_sets(path)
    assert labels(sets) == {"mastered": ("a",), "headroom": ("b",)}
    assert tasks_of(sets, ["mastered", "all"], path) == ["a", "b", "c"], "each once"


def test_a_file_of_before_the_set_of_every_candidate_is_read_and_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "task_sets.json"
    write_json(path, CHOSEN)
    sets = read_task_sets(path)
    assert sets == {"mastered": ("a",), "headroom": ("b",)}
    with pytest.raises(SystemExit, match="the set all is not there"):
        tasks_of(sets, ["all"], path)
    with pytest.raises(SystemExit, match="no task set 'all'"):
        task_set(path, "all")


@pytest.mark.parametrize("every", [["a", "a"], "ab", [1]])
def test_a_damaged_set_of_every_candidate_is_one_line(tmp_path: Path, every: object) -> None:
    path = tmp_path / "task_sets.json"
    write_json(path, {**CHOSEN, "all": every})
    with pytest.raises(SystemExit, match="select"):
        read_task_sets(path)


def test_a_window_of_no_task_is_empty_although_tasks_qualify() -> None:
    numbers = pd.DataFrame(
        {
            "task": ["a", "b", "c"], "pages": 5, "greedy": [0.9, 0.8, 0.2], "sampled": [0.8, 0.8, 0.5],
            "gap": [-0.1, 0.0, 0.3], "mixed_share": 0.5, "excluded": 0,
        }
    )  # fmt: skip
    chosen = select.choose(numbers, Tasks(candidates=("a", "b", "c"), mastered=0, headroom=1))
    assert dict(zip(chosen["task"], chosen["chosen_as"], strict=True)) == {"a": "", "b": "", "c": "headroom"}


def test_the_run_table_of_the_dark_room_has_columns_of_its_own() -> None:
    arms = read_runs(PROJECT / "workflow/data/dark_room.tsv", {})
    assert cell_of(arms) == ARM
    assert set(arms["init"]) == {"sft"}
    assert arms.loc["arm-04", "weight"] == "0.1"
    assert arms.loc["arm-01", "form"] == "-"
    assert arms.loc[["arm-01", "arm-26"], ["auxiliary", "auxiliary_weight"]].to_numpy().tolist() == [
        ["none", "-"], ["random_words", "0.1"],
    ]  # fmt: skip
    assert arms.groupby(ARM)["seed"].nunique().max() == 3
