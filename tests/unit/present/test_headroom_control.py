"""The positive control: engineered headroom is told from natural headroom in the numbers, the picture and the words."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer
from synthetic_study import HEADROOM, MASTERED

from headroom.config.jobs import ContrastJob, DemonstrationsJob, dump_job, load_job
from headroom.config.models import Demonstrations, Statistics
from headroom.files import write_csv, write_text
from headroom.present.headroom_control import data, draw
from headroom.present.style import styled
from headroom.present.tables import true

ENGINEERED = HEADROOM[-4:]


def numbers(study: dict[str, Path], folder: Path, demonstrations: Path | None = None) -> pd.DataFrame:
    """The figure's table after its way through the CSV."""
    statistics = folder / "contrast.json"
    write_text(statistics, dump_job(ContrastJob(statistics=Statistics(bootstrap_draws=200))))
    names = ("contrasts", "task_contrasts", "reading", "runs", "tasks", "demonstrations")
    paths = {name: study[name] for name in names} | {"statistics": statistics}
    if demonstrations is not None:
        paths["demonstrations"] = demonstrations
    write_csv(folder / "numbers.csv", data(**paths))
    return pd.read_csv(folder / "numbers.csv")


def test_every_task_says_whether_its_headroom_is_engineered_and_whether_it_filled_a_place(
    study: dict[str, Path], tmp_path: Path
) -> None:
    table = numbers(study, tmp_path)
    tasks = table[table["row"] == "task"]
    assert set(tasks["task"]) == {*HEADROOM, *MASTERED}
    assert set(tasks.loc[tasks["engineered"].map(true), "task"]) == set(ENGINEERED)
    assert tasks.loc[tasks["filled"].map(true), "task"].tolist() == [HEADROOM[1]]
    assert table.loc[table["row"] == "set", "engineered"].isna().all()


def test_the_mean_gain_of_natural_tasks_leaves_the_engineered_ones_out(study: dict[str, Path], tmp_path: Path) -> None:
    table = numbers(study, tmp_path)
    tasks = table[(table["row"] == "task") & (table["task_set"] == "headroom")]
    means = table[table["row"] == "mean"]
    assert [true(value) for value in means["engineered"]] == [False, True]
    for _, row in means.iterrows():
        own = tasks[tasks["engineered"].map(true) == true(row["engineered"])]
        assert row["tasks"] == len(own)
        assert row["difference"] == pytest.approx(own["difference"].mean())
        assert row["ci_low"] <= row["difference"] <= row["ci_high"]


def test_engineered_tasks_have_another_marker_and_their_names_in_the_caption(
    study: dict[str, Path], tmp_path: Path
) -> None:
    with styled():
        figure, caption = draw(numbers(study, tmp_path))
    faces = {
        points.get_label(): points.lines[0].get_markerfacecolor()
        for points in figure.axes[1].containers
        if isinstance(points, ErrorbarContainer)
    }
    assert faces["headroom tasks, engineered"] == "white" != faces["headroom tasks"]
    assert f"hasty demonstrators ({', '.join(ENGINEERED)})" in caption
    assert "6 headroom tasks that are not engineered: " in caption
    assert f"too few tasks qualified: {HEADROOM[1]}." in caption


def test_without_hasty_demonstrators_nothing_is_called_engineered(study: dict[str, Path], tmp_path: Path) -> None:
    job = load_job(study["demonstrations"], DemonstrationsJob).model_copy(update={"demonstrations": Demonstrations()})
    write_text(tmp_path / "plain.json", dump_job(job))
    with styled():
        _, caption = draw(numbers(study, tmp_path, tmp_path / "plain.json"))
    assert "No task here has engineered headroom." in caption
    assert "10 headroom tasks that are not engineered" in caption
