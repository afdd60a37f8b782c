from pathlib import Path

import pandas as pd
import pytest

from headroom.config.jobs import OverlapJob, dump_job
from headroom.config.models import WorldSettings
from headroom.measure import overlap


@pytest.mark.browser
def test_a_task_of_one_text_is_met_everywhere_and_a_rich_one_nowhere(tmp_path: Path) -> None:
    job = OverlapJob(
        world=WorldSettings(),
        demonstrations={"click-test": 2, "login-user": 5},
        held_out={"selection": 3, "evaluation": 4},
    )
    config = tmp_path / "overlap.json"
    config.write_text(dump_job(job))
    overlap.main(config=config, output=tmp_path / "results" / "smoke" / "overlap")
    table = pd.read_csv(tmp_path / "results" / "smoke" / "overlap" / "overlap.csv").set_index("task")
    assert table.loc["click-test", ["selection_met", "evaluation_met"]].tolist() == [1.0, 1.0]
    assert table.loc["login-user", ["selection_met", "evaluation_met"]].tolist() == [0.0, 0.0]
    assert table["evaluation_pages"].tolist() == [4, 4]
