from pathlib import Path

import pandas as pd
import pytest

from headroom.config.jobs import Draw, OverlapJob, dump_job
from headroom.config.models import MiniWobSettings
from headroom.files import write_json
from headroom.measure import overlap
from headroom.train.groups import step_pages
from headroom.worlds.base import Element, History, Observation


class SevenTexts:
    """A world whose page shows the remainder of its seed by seven."""

    def observe(self, histories: list[History]) -> list[Observation]:
        return [Observation("goal", (Element("button", str(history.seed % 7)),)) for history in histories]


def test_a_page_is_met_in_demonstrations_in_a_run_or_in_either() -> None:
    found = overlap.shares(SevenTexts(), "x", [0, 1], [9, 10], {"evaluation": [70, 71, 72, 74]})
    assert found == {"evaluation_in_demonstrations": 0.5, "evaluation_in_grpo": 0.25, "evaluation_met": 0.75}
    untrained = overlap.shares(SevenTexts(), "x", [0, 1], [], {"evaluation": [70, 72]})
    assert untrained == {"evaluation_in_demonstrations": 0.5, "evaluation_in_grpo": 0.0, "evaluation_met": 0.5}


def test_the_pages_of_the_runs_are_those_that_training_draws() -> None:
    sets, seeds = {"mastered": ("a", "b", "c"), "headroom": ("d",)}, list(range(100, 120))
    runs = [Draw(tasks="mastered", seed=seed, steps=5, pages_per_step=4) for seed in (0, 1)]
    played = overlap.played_pages([*runs, Draw(tasks="headroom", seed=0, steps=1, pages_per_step=2)], sets, seeds)
    assert set(played) == {"a", "b", "c", "d"}
    assert len(played["d"]) == 2
    drawn = [step_pages(sets["mastered"], seeds, seed=seed, step=step, count=4) for seed in (0, 1) for step in range(5)]
    assert {("b", seed) for seed in played["b"]} == {page for pages in drawn for page in pages if page[0] == "b"}


@pytest.mark.browser
def test_a_task_of_one_text_is_met_everywhere_and_a_rich_one_nowhere(tmp_path: Path) -> None:
    job = OverlapJob(
        world=MiniWobSettings(),
        demonstrations={"click-test": 2, "focus-text": 1, "login-user": 5},
        runs=(Draw(tasks="mastered", seed=0, steps=3, pages_per_step=2),),
        held_out={"selection": 3, "evaluation": 4},
    )
    config, sets = tmp_path / "overlap.json", tmp_path / "task_sets.json"
    config.write_text(dump_job(job))
    write_json(sets, {"mastered": ["click-test", "login-user"], "headroom": ["focus-text"]})
    overlap.main(config=config, task_sets=sets, output=tmp_path / "results" / "smoke" / "overlap")
    table = pd.read_csv(tmp_path / "results" / "smoke" / "overlap" / "overlap.csv").set_index("task")
    met = [f"{name}_{how}" for name in ("selection", "evaluation") for how in ("in_demonstrations", "in_grpo", "met")]
    assert table.loc["click-test", met].tolist() == [1.0] * 6
    assert table.loc["login-user", met].tolist() == [0.0] * 6
    assert table.loc["focus-text", met].tolist() == [1.0, 0.0, 1.0] * 2
    assert table["evaluation_pages"].tolist() == [4, 4, 4]
    assert table["grpo_pages"].to_dict() == {"click-test": 3, "focus-text": 0, "login-user": 3}
    assert table["task_set"].to_dict() == {"click-test": "mastered", "focus-text": "headroom", "login-user": "mastered"}
