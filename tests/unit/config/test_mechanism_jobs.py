"""The mechanism's settings files: the regimes of a scale, and what is left when fewer runs are made."""

import shutil
from pathlib import Path

import pytest
import yaml

from headroom.config import jobs, resolve

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path):
    for name in ("config.yaml", "workflow/scales", "workflow/data"):
        source = PROJECT / name
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    return tmp_path


def change(project, **settings):
    path = project / "workflow/scales/tiny.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))


@pytest.mark.parametrize("scale", ["smoke", "tiny"])
def test_every_ranked_policy_and_grafted_run_has_a_settings_file_that_its_stage_reads(project, scale):
    resolved = resolve.resolve({"scale": scale}, project)
    resolve.write(resolved, project)
    folder = project / f"results/{scale}/config"
    what = resolved.mechanism
    assert {"sft", "base"} <= set(what.ranked) <= set(resolved.policies)
    for policy in what.ranked:
        assert jobs.load_job(folder / "rank" / f"{policy}.json", jobs.RankJob).policy == policy
    assert what.grafted
    for run, regime in what.grafted.items():
        job = jobs.load_job(folder / "graft" / f"{run}.json", jobs.GraftJob)
        assert (job.policy, job.regime) == (run, regime)
    failures = jobs.load_job(folder / "failures.json", jobs.FailuresJob)
    assert set(failures.regimes) == {"supervised", *what.regimes}
    for name, model in (("probe", jobs.ProbeJob), ("filmstrip", jobs.FilmstripJob), ("mechanism", jobs.MechanismJob)):
        jobs.load_job(folder / f"{name}.json", model)


def test_several_training_seeds_of_degrade_and_collapse_are_grafted(project):
    study = resolve.load_study(project, "tiny")
    runs = {run.run: run for run in resolve.load_runs(project, study, "tiny")}
    for regime in ("degrade", "collapse"):
        members = study.mechanism.regimes[regime]
        assert len({runs[run].seed for run in members}) >= 2
        assert len({runs[run].learning_rate for run in members}) == 1


def test_a_study_of_fewer_runs_takes_apart_those_that_it_makes(project):
    change(project, runs=["grid-05"])
    what = resolve.resolve({"scale": "tiny"}, project).mechanism
    assert what.regimes == {"low": ("grid-05",)}
    assert what.grafted == {"grid-05": "low"}


@pytest.mark.parametrize(
    ("regimes", "words"),
    [
        ({"low": ["grid-99"]}, "mechanism.regimes.low: there is no run in workflow/data/runs.tsv 'grid-99'"),
        ({"low": ["grid-05"], "collapse": ["grid-05"]}, "'grid-05' is in collapse already"),
    ],
)
def test_a_regime_of_an_unknown_run_or_of_anothers_is_one_error(project, regimes, words):
    change(project, mechanism={"regimes": regimes})
    with pytest.raises(resolve.ConfigError) as error:
        resolve.resolve({"scale": "tiny"}, project)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
