"""An edit reruns exactly what it can change, and nothing else."""

from __future__ import annotations

import os
import time

import pytest
import yaml

RUNS = {"grid-05", "grid-11", "grid-15", "replication-01", "group_size-01", "headroom-01"}
POLICIES = RUNS | {"sft", "base"}
RANKED = POLICIES - {"group_size-01", "headroom-01"}

# What each figure is drawn from. Films and failures are of the runs that a regime names; movement is set against harm.
FROM_CONTRASTS = {"gate", "grid_forest", "headroom_control", "movement_against_harm", "replication"}
FROM_INSIDE = {"graft_heatmap", "movement_against_harm", "rank_against_success", "rank_by_layer"}
FROM_EPISODES = {"failure_kinds", "film_strips"}
FROM_STEPS = {"training_curves"}
FIGURES = FROM_CONTRASTS | FROM_INSIDE | FROM_EPISODES | FROM_STEPS


def of(policies: set[str], *rules: str) -> set[str]:
    """Jobs of rules that run once a policy."""
    return {f"{rule} {policy}" for rule in rules for policy in policies}


def drawn(figures: set[str]) -> set[str]:
    """Both jobs of each figure"""
    return of(figures, "figure_data", "figure")


TABLES = {"contrast", "failures", "filmstrip", "mechanism"}
AFTER_TRAINING = of(RUNS, "evaluate") | of(RUNS & RANKED, "rank") | {"graft grid-11"} | TABLES | {"claims"}
ALL_TRAINED = of(RUNS, "grpo") | AFTER_TRAINING | drawn(FIGURES)
ALL_BUT_PAGES = (
    {"sft sft", "sft base", "select", "reading", "probe", "evaluate sft", "evaluate base", "rank sft", "rank base"}
    | {"overlap"}  # of the pages that the runs play, on the tasks that were selected
    | ALL_TRAINED
)  # fmt: skip
"""Everything after the demonstrations."""


def test_after_a_finished_run_there_is_nothing_to_do(study) -> None:
    assert study.stale() == set()


def test_touching_every_source_makes_nothing_stale_because_the_bytes_are_the_same(study) -> None:
    later = time.time() + 10
    kept = {}
    made = {"results", "figures", ".snakemake"}  # not touched: only an input newer than an output can make it stale
    for path in sorted(study.folder.rglob("*")):
        if path.is_file() and path.relative_to(study.folder).parts[0] not in made:
            kept[path] = path.stat()
            os.utime(path, (later, later))
    try:
        assert study.stale() == set()
        by_time_alone = study.stale("--max-checksum-file-size", "0")
        assert by_time_alone == ALL_BUT_PAGES | {"demonstrations"}
    finally:
        for path, times in kept.items():
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_editing_the_loss_retrains_every_run_but_not_the_supervised_policy(study) -> None:
    with study.edited("src/headroom/train/loss.py"):
        stale = study.stale()
    assert stale == ALL_TRAINED


def test_editing_the_statistics_repeats_no_episode(study) -> None:
    with study.edited("src/headroom/measure/contrast.py"):
        stale = study.stale()
    assert stale == {"contrast", "claims"} | drawn(FROM_CONTRASTS)


def test_editing_the_supervised_training_reruns_all_that_follows_from_it(study) -> None:
    with study.edited("src/headroom/train/sft.py"):
        stale = study.stale()
    assert stale == ALL_BUT_PAGES


def test_editing_an_oracle_collects_again_and_all_that_follows(study) -> None:
    with study.edited("src/headroom/worlds/miniwob/oracles/__init__.py"):
        stale = study.stale()
    assert stale == ALL_BUT_PAGES | {"demonstrations"}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("style", {"claims"} | drawn(FIGURES)),
        ("gate", drawn({"gate"})),  # its caption is written there too
        ("film_strips", drawn({"film_strips"})),
        ("claims_page", {"claims"}),
    ],
)
def test_editing_how_results_look_measures_nothing_again(study, module: str, expected: set[str]) -> None:
    with study.edited(f"src/headroom/present/{module}.py"):
        stale = study.stale()
    assert stale == expected


@pytest.mark.parametrize(
    "name",
    ["src/headroom/provenance/record.py", "src/headroom/config/models.py", "src/headroom/cli.py", "pyproject.toml"],
)
def test_editing_what_cannot_change_a_result_reruns_nothing(study, name: str) -> None:
    with study.edited(name):
        assert study.stale() == set()


def test_editing_a_comment_of_the_settings_reruns_nothing(study) -> None:
    with study.edited("workflow/scales/smoke.yaml"):
        assert study.stale() == set()


def test_one_learning_rate_reruns_its_runs_only(study) -> None:
    with study.edited("workflow/scales/smoke.yaml", "high: 3.0e-3", "high: 4.0e-3"):
        stale = study.stale()
    assert stale == of({"grid-11"}, "grpo", "evaluate", "rank", "graft") | TABLES | {"claims"} | drawn(FIGURES)
    assert study.stale() == set()


def test_one_cell_of_the_run_table_reruns_its_run_only(study) -> None:
    line = "replication-01\treplication\tmastered\tsft\tlow\tconstant\t0.05\t0.2\t0.28\t8\t2"
    with study.edited("workflow/data/runs.tsv", line + "\n", line[:-1] + "7\n"):
        stale = study.stale()
    expected = of({"replication-01"}, "grpo", "evaluate", "rank") | {"overlap", "contrast", "mechanism", "claims"}
    assert stale == expected | drawn(FIGURES - FROM_EPISODES)


def test_more_evaluation_seeds_evaluate_again_and_train_nothing(study) -> None:
    settings = yaml.safe_load((study.folder / "workflow/scales/smoke.yaml").read_text())
    old = f"evaluation:\n  seeds: {settings['evaluation']['seeds']}"
    with study.edited("workflow/scales/smoke.yaml", old, "evaluation:\n  seeds: 4"):
        stale = study.stale()
    measured = of(POLICIES, "evaluate") | {"reading", "graft grid-11", "overlap"}
    measured |= of(RANKED, "rank") | {"probe"}  # which read hidden states on the reading's pages
    assert stale == measured | TABLES | {"claims"} | drawn(FIGURES - FROM_STEPS)


@pytest.mark.parametrize(
    ("environment", "package", "expected"),
    [
        (
            "analysis",
            "scipy",
            {"contrast", "failures", "mechanism", "claims"} | drawn(FIGURES - FROM_STEPS - {"film_strips"}),
        ),
        ("figures", "seaborn", {"claims"} | drawn(FIGURES)),
        ("train", "torch", ALL_BUT_PAGES),
        ("worlds", "miniwob", ALL_BUT_PAGES | {"demonstrations"}),
        ("audit", "rocrate", set()),
        ("rollout", "vllm", set()),
    ],
)
def test_one_pin_reruns_the_jobs_of_its_environment(study, environment: str, package: str, expected: set[str]) -> None:
    with study.edited(f"envs/{environment}.yaml", f"      - {package}==", f"      - {package}==9."):
        stale = study.stale()
    assert stale == expected


def test_a_lost_result_is_made_again_with_what_reads_it_and_no_other_run(study) -> None:
    path = study.folder / "results/smoke/grpo/grid-05/manifest.json"
    content, times = path.read_bytes(), path.stat()
    path.unlink()
    try:
        stale = study.stale()
    finally:
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    # Before it is made again nobody knows whether its bytes will be the old ones.
    assert stale == of({"grid-05"}, "grpo", "evaluate", "rank") | TABLES | {"claims"} | drawn(FIGURES)


def test_another_scale_shares_nothing_with_this_one(study) -> None:
    stale = study.stale(scale="tiny")
    assert "demonstrations" in stale
    assert len([job for job in stale if job.startswith("grpo ")]) == 34


def test_another_file_in_the_folder_that_a_model_is_read_from_trains_it_again(study) -> None:
    given = study.folder / "checkpoints" / "given"
    given.mkdir(parents=True)
    (given / "config.json").write_text("{}")
    scale = "workflow/scales/smoke.yaml"
    tiny = yaml.safe_dump({"model": yaml.safe_load((study.folder / scale).read_text())["model"]})
    text = (study.folder / scale).read_text()
    block = text[text.index("model:") : text.index("world:")]
    assert yaml.safe_dump(yaml.safe_load(block)) == tiny
    try:
        with study.edited(scale, block, "model: {kind: pretrained, name_or_path: checkpoints/given}\n\n"):
            supervised = "results/smoke/sft/sft/manifest.json"
            made = study.snakemake(supervised)
            assert made.returncode == 0, made.stdout + made.stderr
            assert study.stale(supervised) == set()
            (given / "config.json").write_text('{"model_type": "llama"}')
            assert study.stale(supervised) == {"sft sft"}
    finally:
        made = study.snakemake()  # the study is shared: as it was
        assert made.returncode == 0, made.stdout + made.stderr
