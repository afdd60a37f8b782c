"""Claims: a verdict is what its rule says, no null comes from a wide interval, no table says more than ran."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from docutils.core import publish_parts
from hypothesis import given
from hypothesis import strategies as st
from synthetic_study import REGIMES

from headroom.config.resolve import resolve
from headroom.files import write_text
from headroom.present.claim_inside import NEAR_ZERO, inert, moved_less, not_repaired, rank_tracks, repairs
from headroom.present.claim_success import best_not_significant, harm, no_gain, ordered_harm
from headroom.present.claim_tables import Tables, decide
from headroom.present.claims import NOT_RUN, NOT_TESTABLE, RULES, UNTESTED, main, read_claims, verdicts
from headroom.present.claims_page import (
    HEADLINES,
    MARKS,
    SHOWN,
    between,
    deviations_markdown,
    markdown,
    page,
    readme,
    restructured,
    summary,
)
from headroom.present.deviations import ABSENT, look_up, read_deviations, said, settings_files, table

PROJECT = Path(__file__).resolve().parents[3]
CLAIMS = PROJECT / "workflow/data/claims.yaml"
DEVIATIONS = PROJECT / "workflow/data/deviations.yaml"
MARGIN = 0.05
NAMES = (
    *("contrasts", "init_contrasts", "task_contrasts", "replication", "reading", "rank", "agreement", "drift"),
    *("correlations", "grafts", "failures", "runs"),
)


def tables_of(study: dict[str, Path]) -> Tables:
    return Tables({name: study[name] for name in NAMES}, MARGIN, REGIMES, draws=200)


def made_up(**frames: pd.DataFrame) -> Tables:
    """Tables that exist in memory alone."""
    paths = {name: Path(f"{name}.csv") for name in frames}
    return Tables(paths, MARGIN, REGIMES, _read=dict(frames))


def grid(differences: list[float], half: float, p: float = 1.0) -> pd.DataFrame:
    count = len(differences)
    centre = np.array(differences)
    return pd.DataFrame(
        {
            "policy": [f"grid-{number:02d}" for number in range(count)],
            **{"family": "grid", "mode": "greedy", "task_set": "mastered", "tasks_trained": "mastered"},
            **{"pairs": 275, "tasks": 11, "policy_success": 0.9, "gained": 3, "lost": 1, "equivalent": False},
            **{"difference": centre, "ci_low": centre - half, "ci_high": centre + half},
            **{"mcnemar_p": p, "holm_p": p, "minimum_detectable_effect": 0.04},
        }
    )


def cell(level: str, difference: float, half: float, *, equivalent: bool = False) -> dict[str, object]:
    return {
        **{"learning_rate_level": level, "tasks_trained": "mastered", "task_set": "mastered", "mode": "greedy"},
        **{"init": "sft", "schedule": "constant", "seeds": 6, "pairs": 1650, "difference": difference},
        **{"ci_low": difference - half, "ci_high": difference + half, "equivalent": equivalent, "tost_p": 0.5},
        **{"minimum_detectable_effect": 0.04, "reference_success": 0.9, "policy_success": 0.9 + difference},
    }


def test_every_claim_names_a_rule_that_exists_and_takes_its_arguments() -> None:
    claims = read_claims(CLAIMS)
    assert {claim.statistic for claim in claims} - set(UNTESTED) == set(RULES)
    assert all(len(claim.rule) > 20 and claim.source.startswith("arXiv") for claim in claims)
    own = {"gate": "tiny", "dark room": "dark-room-tiny"}
    assert all(claim.elsewhere for claim in claims if claim.statistic in RULES and own[claim.study] not in claim.scales)
    assert all(claim.arguments["reason"] for claim in claims if claim.statistic in UNTESTED)
    assert {claim.study for claim in claims} == {"gate", "dark room"}


def test_a_study_of_the_papers_shape_reproduces_the_headline_claims(study: dict[str, Path]) -> None:
    found = verdicts(read_claims(CLAIMS), tables_of(study), "tiny").set_index("id")["verdict"]
    for name in ("gate-harm", "gate-harm-order", "gate-collapse", "degrade-localised", "embedding-inert"):
        assert found[name] == "reproduced", name
    assert found["collapse-moved-less"] == found["movement-no-predictor"] == "not reproduced", (
        "in the synthetic study the collapse moved more"
    )
    assert found["gate-pages"] == "inconclusive", "four pages a task are not twenty-five"
    assert found["gate-8b"] == found["rank-scale"] == NOT_TESTABLE
    assert (found[[name for name in found.index if name.startswith("dark-")]] == NOT_TESTABLE).all()


@pytest.mark.parametrize("thin", ["sparse", "empty"])
def test_a_study_without_the_runs_decides_nothing_that_rests_on_them(thin: str, request: pytest.FixtureRequest) -> None:
    tables = tables_of(request.getfixturevalue(thin))
    tables = Tables(tables.paths, MARGIN, {"supervised": ["sft"]}, draws=200)
    found = verdicts(read_claims(CLAIMS), tables, "tiny").set_index("id")["verdict"]
    assert found["gate-null"] == found["gate-harm"] == found["degrade-localised"] == "inconclusive"
    assert "reproduced" not in set(found[["collapse-diffuse", "embedding-inert", "collapse-agreement", "gate-seeds"]])


def test_smoke_numbers_never_get_a_verdict(study: dict[str, Path]) -> None:
    found = verdicts(read_claims(CLAIMS), tables_of(study), "smoke")
    assert set(found["verdict"]) == {NOT_TESTABLE, NOT_RUN}
    assert found[["effect", "ci_low", "ci_high"]].isna().all(axis=None)
    assert "evidence of nothing" in " ".join(found["detail"])


@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_a_claim_about_a_model_that_no_scale_has_is_never_judged(scale: str, study: dict[str, Path]) -> None:
    found = verdicts(read_claims(CLAIMS), tables_of(study), scale).set_index("id")
    assert set(found.loc[["gate-8b", "rank-8b"], "verdict"]) == {NOT_TESTABLE}
    assert found.loc[["gate-8b", "rank-8b"], "detail"].str.contains("8B").all()


def test_a_row_says_which_files_it_rests_on(study: dict[str, Path]) -> None:
    found = verdicts(read_claims(CLAIMS), tables_of(study), "tiny").set_index("id")["files"]
    assert found["gate-null"] == str(study["contrasts"])
    names = ("contrasts", "reading", "runs", "task_contrasts")
    assert found["headroom-predicts"].split() == [str(study[name]) for name in names]


@given(
    differences=st.lists(st.floats(-0.9, 0.2), min_size=1, max_size=18),
    half=st.floats(0.001, 0.3),
    p=st.floats(0.0, 1.0),
)
def test_a_null_is_reproduced_only_if_every_interval_excludes_a_gain_of_the_margin(
    differences: list[float], half: float, p: float
) -> None:
    table = grid(differences, half, p)
    found = no_gain(made_up(contrasts=table), family="grid", at_least=len(differences))
    excluded = (table["ci_high"] < MARGIN).all() and (table["ci_low"] <= 0).all()
    assert (found.verdict == "reproduced") == bool(excluded)
    if found.verdict == "not reproduced":
        assert max(differences) - half > 0
        assert p <= 0.05
    assert "detectable effect" in found.detail
    assert "equivalent" in found.detail
    shuffled = table.sample(frac=1.0, random_state=1)
    assert no_gain(made_up(contrasts=shuffled), family="grid", at_least=len(differences)).verdict == found.verdict


def test_a_null_needs_all_runs_and_all_pages() -> None:
    tables = made_up(contrasts=grid([0.0] * 17, 0.01))
    assert no_gain(tables, family="grid", at_least=18).verdict == "inconclusive"
    assert no_gain(tables, family="grid", at_least=17).verdict == "reproduced"
    assert no_gain(tables, family="grid", at_least=17, pages_a_task=26).verdict == "inconclusive"


def test_a_wide_interval_around_zero_is_no_null() -> None:
    tables = made_up(contrasts=grid([0.0] * 18, 0.09))
    assert no_gain(tables, family="grid", at_least=18).verdict == "inconclusive"
    assert best_not_significant(tables, family="grid").verdict == "inconclusive"


def test_a_gain_that_survives_the_correction_refutes_the_null() -> None:
    table = grid([0.0] * 17 + [0.2], 0.05)
    table.loc[17, ["mcnemar_p", "holm_p"]] = 0.001
    assert no_gain(made_up(contrasts=table), family="grid", at_least=18).verdict == "not reproduced"
    assert best_not_significant(made_up(contrasts=table), family="grid").verdict == "not reproduced"
    table.loc[17, "holm_p"] = 0.2
    assert no_gain(made_up(contrasts=table), family="grid", at_least=18).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("middle", "high", "harmed", "ordered"),
    [
        (cell("middle", -0.15, 0.05), cell("high", -0.8, 0.1), "reproduced", "reproduced"),
        (cell("middle", -0.15, 0.2), cell("high", -0.8, 0.1), "inconclusive", "reproduced"),
        (cell("middle", 0.0, 0.02, equivalent=True), cell("high", -0.8, 0.1), "not reproduced", "reproduced"),
        (cell("middle", -0.5, 0.1), cell("high", -0.4, 0.1), "reproduced", "inconclusive"),
        (cell("middle", -0.7, 0.1), cell("high", -0.4, 0.1), "reproduced", "not reproduced"),
        (cell("middle", -0.1, 0.3), cell("high", -0.3, 0.4), "inconclusive", "inconclusive"),
        (cell("middle", -0.5, 0.3), cell("high", -0.6, 0.3), "reproduced", "inconclusive"),
    ],
)
def test_harm_and_its_order_follow_the_intervals(
    middle: dict[str, object], high: dict[str, object], harmed: str, ordered: str
) -> None:
    tables = made_up(replication=pd.DataFrame([middle, high]))
    assert harm(tables, levels=["middle", "high"]).verdict == harmed
    assert ordered_harm(tables, levels=["middle", "high"]).verdict == ordered


def test_no_decision_without_its_cell() -> None:
    tables = made_up(replication=pd.DataFrame([cell("high", -0.8, 0.1)]), contrasts=grid([], 0.1).astype(object))
    tables["contrasts"].insert(0, "learning_rate_level", "high")
    tables["contrasts"].insert(0, "init", "sft")
    assert harm(tables, levels=["middle", "high"]).verdict == "inconclusive"


def graft_rows(repair: float, against_control: float, *, half: float = 0.02, damage: float = -0.3) -> pd.DataFrame:
    rows = []
    for run in ("grid-08", "grid-14"):
        shared = {"policy": run, "regime": "degrade", "pages": 80, "tasks": 11}
        rows.append(
            shared | {"graft": "rl", "kind": "endpoint", "direction": "", "groups": "", "sft_ci_high": damage + 0.05}
        )
        for direction in ("sufficiency", "necessity"):
            for group in ("embedding", "attention", "mlp"):
                change = repair if group != "embedding" else 0.0
                to_sft = 0.0 if group == "embedding" else -repair
                rows.append(
                    shared
                    | {
                        **{"graft": f"{direction}/{group}", "kind": "group", "direction": direction, "groups": group},
                        **{"difference_to_rl": change, "rl_ci_low": change - half, "rl_ci_high": change + half},
                        **{"difference_to_sft": to_sft, "sft_ci_low": to_sft - half, "sft_ci_high": to_sft + half},
                        **{"difference_to_control": against_control, "control_ci_low": against_control - half},
                        **{"control_ci_high": against_control + half, "controls": 2 * (group != "embedding")},
                    }
                )
    return pd.DataFrame(rows)


def test_a_repair_counts_only_beyond_its_random_controls() -> None:
    def verdict(table: pd.DataFrame) -> str:
        return repairs(made_up(grafts=table), regime="degrade", groups=["attention", "mlp"]).verdict

    assert verdict(graft_rows(0.2, 0.2)) == "reproduced"
    assert verdict(graft_rows(0.2, 0.0)) == "inconclusive"
    assert verdict(graft_rows(0.0, 0.0)) == "not reproduced"
    assert verdict(graft_rows(0.2, 0.2, half=0.3)) == "inconclusive"
    assert verdict(graft_rows(0.0, 0.0, half=0.3)) == "inconclusive"
    assert verdict(graft_rows(0.2, 0.2, damage=0.1)) == "inconclusive", "a run without damage localises nothing"


def test_inertness_needs_intervals_inside_the_margin_both_ways() -> None:
    def verdict(table: pd.DataFrame) -> str:
        return inert(made_up(grafts=table), group="embedding", regimes=["degrade", "collapse"]).verdict

    assert verdict(graft_rows(0.2, 0.2)) == "reproduced"
    assert verdict(graft_rows(0.2, 0.2, half=0.06)) == "inconclusive"
    moved = graft_rows(0.2, 0.2)
    moved.loc[moved["groups"] == "embedding", ["rl_ci_low", "sft_ci_low"]] = 0.01
    assert verdict(moved) == "reproduced", "small, and known to be"
    moved.loc[moved["groups"] == "embedding", ["rl_ci_high", "sft_ci_high"]] = 0.09
    assert verdict(moved) == "not reproduced"


def test_a_collapse_is_diffuse_only_if_no_group_repairs_it() -> None:
    table = graft_rows(0.0, 0.0).assign(regime="collapse")
    assert not_repaired(made_up(grafts=table), regime="collapse").verdict == "reproduced"
    assert not_repaired(made_up(grafts=graft_rows(0.0, 0.0, half=0.3)), regime="degrade").verdict == "inconclusive"
    table = graft_rows(0.3, 0.3).assign(regime="collapse")
    assert not_repaired(made_up(grafts=table), regime="collapse").verdict == "not reproduced"


@given(low=st.floats(-1, 1), width=st.floats(0, 1))
def test_rank_tracks_by_the_sign_of_its_interval(low: float, width: float) -> None:
    row = {
        **{"quantity": "effective_rank", "primary": True, "subset": "alive", "checkpoints": 20},
        **{"spearman": low + width / 2, "spearman_ci_low": low, "spearman_ci_high": low + width},
    }
    found = rank_tracks(made_up(correlations=pd.DataFrame([row])), subset="alive").verdict
    none = low + width <= 0 or (low > -NEAR_ZERO and low + width < NEAR_ZERO)
    yes = low > 0
    assert found == ("inconclusive" if yes == none else "reproduced" if yes else "not reproduced")


def test_movement_that_is_not_finite_decides_nothing() -> None:
    drift = pd.DataFrame(
        {
            "scope": "model",
            "policy": ["grid-08", "grid-11"],
            "relative_movement": [0.1, np.nan],
        }
    )
    assert moved_less(made_up(drift=drift), less="collapse", more="degrade").verdict == "inconclusive"


def test_neither_rule_and_both_rules_are_inconclusive() -> None:
    assert [decide(yes=yes, no=no) for yes, no in ((True, False), (False, True), (False, False))] == list(MARKS)
    assert decide(yes=True, no=True) == "inconclusive"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The resolved settings of scale tiny."""
    folder = tmp_path_factory.mktemp("settings")
    for name, text in resolve({"scale": "tiny"}, PROJECT).files.items():
        write_text(folder / name, text)
    return folder / "results/tiny/config"


def test_every_value_of_the_deviations_stands_in_a_settings_file(settings: Path) -> None:
    rows = [row for row in read_deviations(DEVIATIONS) if row.study != "dark room"]
    assert all((settings / f"{name}.json").is_file() for name in settings_files(rows))
    found = table(rows, settings)
    assert not found["ours"].str.contains(re.escape(ABSENT)).any()
    assert not found["ours"].str.contains(r"[{}]").any()
    assert found["setting"].is_unique


@pytest.mark.parametrize("scale", ["dark-room-smoke", "hidden-rule-tiny", "paper-qwen3-4b"])
def test_each_study_declares_its_own_settings_and_those_of_both(scale: str, tmp_path: Path) -> None:
    for name, text in resolve({"scale": scale}, PROJECT).files.items():
        write_text(tmp_path / name, text)
    rows, folder = read_deviations(DEVIATIONS), tmp_path / f"results/{scale}/config"
    found = table(rows, folder, "dark room").set_index("setting")["ours"]
    assert not {"model", "training steps", "the 18 cells one by one"} & set(found.index)
    steps = look_up(folder, "grpo/arm-01#grpo.steps")
    assert f"{steps} steps" in found["recipe of the dark room's runs"]
    assert found["equivalence margin"] != ABSENT
    assert "recipe of the dark room's runs" not in set(table(rows, folder)["setting"])


def test_engineered_headroom_and_uneven_demonstrations_are_declared_task_by_task(settings: Path) -> None:
    found = table(read_deviations(DEVIATIONS), settings).set_index("read_from")["ours"]
    for key in ("hasty", "episodes_override"):
        chosen = look_up(settings, f"demonstrations#demonstrations.{key}")
        assert chosen, "this scale has such tasks"
        row = found[f"demonstrations#demonstrations.{key}"]
        assert all(f"{task} {said(value)}" in row for task, value in chosen.items())


def test_every_run_of_a_regime_is_declared(settings: Path) -> None:
    found = table(read_deviations(DEVIATIONS), settings).set_index("read_from")["ours"]
    regimes = look_up(settings, "failures#regimes")
    assert all(f"{name} {' and '.join(runs)}" in found["failures#regimes"] for name, runs in regimes.items())


def test_a_changed_setting_changes_the_table_and_no_hand(settings: Path, tmp_path: Path) -> None:
    steps = look_up(settings, "grpo/grid-05#grpo.steps")
    for name in settings_files([row for row in read_deviations(DEVIATIONS) if row.study != "dark room"]):
        text = (settings / f"{name}.json").read_text()
        write_text(tmp_path / f"{name}.json", text.replace(f'"steps": {steps},', f'"steps": {steps + 1},'))
    before, after = (table(read_deviations(DEVIATIONS), folder) for folder in (settings, tmp_path))
    changed = before[before["ours"] != after["ours"]]
    assert list(changed["setting"]) == ["training steps"]
    assert look_up(tmp_path, "grpo/grid-05#grpo.steps * grpo/grid-05#grpo.pages_per_step") == (steps + 1) * 8


def test_a_setting_that_is_not_there_is_named(settings: Path) -> None:
    with pytest.raises(SystemExit, match=r"select\.json: has no setting tasks\.nothing"):
        look_up(settings, "select#tasks.nothing")
    assert look_up(settings, "graft/none#graft.seeds") == ABSENT


def test_values_are_said_plainly() -> None:
    assert said({"low": 0.1, "high": 0.2}) == "low 0.1, high 0.2"
    assert said({"low": ["one", "two"], "high": ["three"]}) == "low one and two, high three"
    assert said({}) == "none"
    assert [said(value) for value in (3e-3, 10, True, "token_mean", ["a", "b"], None)] == [
        *("0.003", "10", "yes", "token mean", "2", "none")
    ]


def test_the_page_is_one_file_without_scripts_or_outside_resources(study: dict[str, Path], settings: Path) -> None:
    found = verdicts(read_claims(CLAIMS), tables_of(study), "tiny")
    text = page(found, table(read_deviations(DEVIATIONS), settings), "tiny")
    assert not re.search(r"<script|src=|href=|url\(|@import|http", text)
    assert all(f'id="{name}"' in text for name in found["id"])
    assert summary(found) in text
    assert "prefers-color-scheme: dark" in text


def test_the_summary_of_the_report_is_sound_and_says_the_scale(study: dict[str, Path]) -> None:
    for scale in ("tiny", "smoke"):
        text = restructured(verdicts(read_claims(CLAIMS), tables_of(study), scale), scale)
        shown = publish_parts(text, writer="html", settings_overrides={"report_level": 1})["body"]
        assert "system-message" not in shown
        assert all(f"<strong>{words}</strong>" in shown for words in ("What came out.", "How sure."))
        assert shown.count("<li>") == len(HEADLINES["gate"])
        assert ("not evidence" in shown) == (scale == "smoke")


def test_the_tables_of_a_readme_are_rewritten_in_place_and_only_there(study: dict[str, Path], tmp_path: Path) -> None:
    found = verdicts(read_claims(CLAIMS), tables_of(study), "tiny")
    folder = tmp_path / "tiny/data"
    folder.mkdir(parents=True)
    found.to_csv(folder / "claims.csv", index=False)
    pd.DataFrame({"setting": ["a"], "paper": ["b|c"], "ours": ["d"], "reason": ["e"]}).to_csv(
        folder / "deviations.csv", index=False
    )
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    once = readme(text, tmp_path)
    assert readme(once, tmp_path) == once
    assert "| a | b\\|c | d | e |" in once
    for name in ("claims", "deviations"):
        once, text = (between(each, name, "") for each in (once, text))
    assert once == text


@pytest.mark.parametrize("text", ["", "<!-- claims:begin -->", "<!-- claims:end --><!-- claims:begin -->"])
def test_missing_or_misplaced_markers_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="claims:begin"):
        between(text, "claims", "")


def test_every_tested_claim_has_its_row_and_every_other_its_line(study: dict[str, Path]) -> None:
    found = verdicts(read_claims(CLAIMS), tables_of(study), "tiny")
    text = markdown(found)
    tested = found["verdict"].isin(list(MARKS))
    assert text.count("\n| ") == tested.sum() + 1
    assert text.count("\n- ") == (~tested).sum()


def test_the_readme_says_what_the_committed_tables_say() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    if any((PROJECT / f"figures/{scale}/data/claims.csv").is_file() for scale in SHOWN):
        assert readme(text, PROJECT / "figures") == text, "type: headroom claims --readme"
    else:
        assert between(text, "claims", "") != text
        assert "No run of scale `tiny` stands in this checkout" in text


def test_the_stage_writes_claims_deviations_and_page(study: dict[str, Path], settings: Path, tmp_path: Path) -> None:
    output = tmp_path / "figures/tiny/data/claims.csv"
    main(
        claims=CLAIMS,
        deviations=DEVIATIONS,
        settings=settings,
        output=output,
        **{name: study[name] for name in NAMES},
    )
    assert len(pd.read_csv(output)) == len(read_claims(CLAIMS))
    assert deviations_markdown(pd.read_csv(output.with_name("deviations.csv"))).count("\n") > 20
    assert (tmp_path / "figures/tiny/claims.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "figures/tiny/records/claims.data.run.json").is_file()


@pytest.mark.parametrize(
    ("change", "said_so"),
    [
        (("statistic: no_gain", "statistic: no_gane"), "names the rule no_gane"),
        (("id: gate-null", "id: gate-harm"), "stands there twice"),
        (("  mark: abstract", "  mark: rumour"), "not a list of claims"),
    ],
)
def test_a_wrong_claims_file_is_one_clear_error(change: tuple[str, str], said_so: str, tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(CLAIMS.read_text(encoding="utf-8").replace(*change, 1), encoding="utf-8")
    with pytest.raises(SystemExit, match=said_so):
        read_claims(path)
