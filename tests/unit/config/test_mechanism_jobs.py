"""The mechanism's settings files: the regimes of a scale, and what is left when fewer runs are made."""

import shutil
from pathlib import Path
from typing import get_args

import pytest
import yaml

from headroom.config import jobs, resolve
from headroom.config.models import Settings

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


SCALES = sorted(path.stem for path in (PROJECT / "workflow/scales").glob("*.yaml"))
REVISION = "a" * 40  # a hub name needs a commit; none of these tests asks the hub


def complete(project, scale):
    """Fill in the revision that a scale of a released model leaves to its user."""
    path = project / f"workflow/scales/{scale}.yaml"
    path.write_text(path.read_text().replace("revision: null", f"revision: {REVISION}"))


def test_all_scales_are_tested():
    assert set(SCALES) == set(get_args(Settings.model_fields["scale"].annotation))


@pytest.mark.parametrize("scale", SCALES)
def test_every_ranked_policy_and_grafted_run_has_a_settings_file_that_its_stage_reads(project, scale):
    complete(project, scale)
    resolved = resolve.resolve({"scale": scale}, project)
    resolve.write(resolved, project)
    folder = project / f"results/{scale}/config"
    what = resolved.mechanism
    assert set(resolved.inits) <= set(what.ranked) <= set(resolved.policies)
    gate = resolved.study.study == "gate"
    assert ("base" in what.ranked) == gate
    for policy in what.ranked:
        assert jobs.load_job(folder / "rank" / f"{policy}.json", jobs.RankJob).policy == policy
    assert what.grafted
    for run, regime in what.grafted.items():
        job = jobs.load_job(folder / "graft" / f"{run}.json", jobs.GraftJob)
        assert (job.policy, job.regime) == (run, regime)
    failures = jobs.load_job(folder / "failures.json", jobs.FailuresJob)
    assert set(failures.regimes) == {"supervised", *what.regimes}
    of_study = ("filmstrip", jobs.FilmstripJob) if gate else ("dark_room", jobs.DarkRoomJob)
    for name, model in (("probe", jobs.ProbeJob), ("mechanism", jobs.MechanismJob), of_study):
        jobs.load_job(folder / f"{name}.json", model)
    assert (folder / "filmstrip.json").exists() == gate


@pytest.mark.parametrize("scale", SCALES)
def test_the_inside_is_measured_on_pages_that_were_played(project, scale):
    complete(project, scale)
    study = resolve.load_study(project, scale)
    assert study.mechanism.probe.seeds <= study.evaluation.seeds, "the probe replays the reading's pages"
    assert study.mechanism.graft.seeds <= study.evaluation.seeds, "grafts are played on the evaluation's first pages"


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_a_scale_of_a_released_model_says_what_its_mechanism_asks_of_a_cluster(project, scale):
    complete(project, scale)
    study = resolve.load_study(project, scale)
    assert {"probe", "rank", "graft"} <= set(study.resources)
    assert study.resources["graft"].gpu == study.resources["evaluate"].gpu


@pytest.mark.parametrize("scale", [scale for scale in SCALES if "smoke" not in scale])  # which makes one run a regime
def test_several_training_seeds_of_every_grafted_regime_are_grafted(project, scale):
    complete(project, scale)
    study = resolve.load_study(project, scale)
    runs = {run.run: run for run in resolve.load_runs(project, study, scale)}
    for regime in study.mechanism.graft_regimes:
        members = study.mechanism.regimes[regime]
        assert len({runs[run].seed for run in members}) >= 2
        assert len({runs[run].setting if study.study != "gate" else runs[run].learning_rate for run in members}) == 1


def test_a_study_of_fewer_runs_takes_apart_those_that_it_makes(project):
    change(project, runs=["grid-05"], mechanism={"regimes": {"low": ["grid-05"]}})
    what = resolve.resolve({"scale": "tiny"}, project).mechanism
    assert what.regimes == {"low": ("grid-05",)}
    assert what.grafted == {"grid-05": "low"}


def test_a_regime_of_a_run_that_is_not_made_is_one_error(project):
    change(project, runs=["grid-05"], mechanism={"regimes": {"low": ["grid-05", "grid-06"]}})
    with pytest.raises(
        resolve.ConfigError, match=r"tiny.yaml: mechanism.regimes.low: 'grid-06' is not made, .* or add it to runs$"
    ):
        resolve.resolve({"scale": "tiny"}, project)


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
