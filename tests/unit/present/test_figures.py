"""Every figure: numbers before pictures, no crash on a thin study, the same bytes twice, a caption that says n."""

import csv
import importlib
import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from docutils.core import publish_parts
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from headroom.config.jobs import ContrastJob, dump_job
from headroom.config.models import Statistics
from headroom.files import write_csv, write_text
from headroom.present.style import COLUMN, PAGE, PIXELS_PER_INCH, SCALE_LABELS, SMALLEST, save, scale_of, styled

PROJECT = Path(__file__).resolve().parents[3]
PAGE_HEIGHT = 9.0  # inches that a page of print leaves to a figure
with (PROJECT / "workflow/data/figures.tsv").open(encoding="utf-8", newline="") as stream:
    FIGURES = {row["figure"]: row for row in csv.DictReader(stream, delimiter="\t")}


def inputs(module, study: dict[str, Path], folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in inspect.signature(module.data).parameters:
        if name == "steps":
            found[name] = [path for key, path in study.items() if key.startswith("steps/")]
        elif name == "statistics":
            found[name] = folder / "contrast.json"
            write_text(folder / "contrast.json", dump_job(ContrastJob(statistics=Statistics())))
        else:
            found[name] = study[name]
    return found


def drawn(figure: str, study: dict[str, Path], folder: Path) -> tuple[pd.DataFrame, Path, str]:
    module = importlib.import_module(f"headroom.present.{FIGURES[figure]['module']}")
    numbers = folder / "data" / f"{figure}.csv"
    write_csv(numbers, module.data(**inputs(module, study, folder)))
    pdf = folder / "figures" / "tiny" / f"{figure}.pdf"
    table = pd.read_csv(numbers)
    with styled():
        picture, caption = module.draw(table)
        save(picture, pdf, caption=caption)
    return table, pdf, caption


@pytest.mark.parametrize("figure", FIGURES)
def test_a_whole_study_is_drawn_with_its_caption(figure: str, study: dict[str, Path], tmp_path: Path) -> None:
    table, pdf, caption = drawn(figure, study, tmp_path)
    assert len(table) > 0
    assert pdf.read_bytes().startswith(b"%PDF")
    with Image.open(pdf.with_suffix(".png")) as image:
        assert image.width >= 150 * 3
        assert round(image.info["dpi"][0]) == PIXELS_PER_INCH >= 150
        assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255), "the background is opaque white"
    text = (pdf.parent / "captions" / f"{figure}.txt").read_text()
    assert " ".join(text.split()) == " ".join(caption.split())
    assert re.search(r"\d", caption), "the caption says how many"
    assert "nan" not in caption
    assert "interval" in caption, "the caption says which interval, or that there is none"
    shown = publish_parts(text, writer="html", settings_overrides={"report_level": 2})["body"]
    assert "system-message" not in shown, "the report reads captions as reStructuredText"


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_fits_a_column_or_a_page_and_no_text_in_it_is_too_small_or_cut_off(
    figure: str, study: dict[str, Path], tmp_path: Path
) -> None:
    module = importlib.import_module(f"headroom.present.{FIGURES[figure]['module']}")
    write_csv(tmp_path / "numbers.csv", module.data(**inputs(module, study, tmp_path)))
    with styled():
        picture, caption = module.draw(pd.read_csv(tmp_path / "numbers.csv"))
        save(picture, tmp_path / "figures" / "tiny" / f"{figure}.pdf", caption=caption)
        canvas = FigureCanvasAgg(picture)
        canvas.draw()
        assert COLUMN <= picture.get_figwidth() <= PAGE
        assert picture.get_figheight() <= PAGE_HEIGHT
        shown = [text for text in picture.findobj(Text) if text.get_visible() and text.get_text().strip()]
        assert any("tiny scale" in text.get_text() for text in shown), "the scale is written on the figure itself"
        assert not [text.get_text() for text in shown if text.get_fontsize() < SMALLEST]
        drawn_in = picture.get_tightbbox(canvas.get_renderer())  # inches; ticks beyond an axis are not drawn
        assert drawn_in.x0 >= -0.01
        assert drawn_in.y0 >= -0.01
        assert drawn_in.x1 <= picture.get_figwidth() + 0.01
        assert drawn_in.y1 <= picture.get_figheight() + 0.01


@pytest.mark.slow
def test_a_redraw_takes_little_more_than_importing_seaborn_and_an_empty_plot(
    study: dict[str, Path], tmp_path: Path
) -> None:
    path = PROJECT / "benchmarks" / "redraw.py"
    spec = importlib.util.spec_from_file_location("redraw", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    tables = {}
    for figure, row in FIGURES.items():
        module = importlib.import_module(f"headroom.present.{row['module']}")
        tables[figure] = tmp_path / "data" / f"{figure}.csv"
        write_csv(tables[figure], module.data(**inputs(module, study, tmp_path)))
    found = benchmark.measure(tables, tmp_path)
    assert found["figures"].keys() == FIGURES.keys()
    for figure, row in found["figures"].items():
        assert row["to_empty_plot"] <= 2.5, (figure, found)


@pytest.mark.parametrize("thin", ["sparse", "empty"])
@pytest.mark.parametrize("figure", FIGURES)
def test_a_thin_study_is_drawn_without_a_crash(
    figure: str, thin: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    _, pdf, caption = drawn(figure, request.getfixturevalue(thin), tmp_path)
    assert pdf.is_file()
    assert pdf.with_suffix(".png").is_file()
    assert caption
    assert "nan" not in caption


@pytest.mark.parametrize("figure", ["gate", "graft_heatmap", "film_strips"])
def test_equal_numbers_give_equal_bytes(figure: str, study: dict[str, Path], tmp_path: Path) -> None:
    _, one, _ = drawn(figure, study, tmp_path / "one")
    _, other, _ = drawn(figure, study, tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()
    assert one.with_suffix(".png").read_bytes() == other.with_suffix(".png").read_bytes()
    assert b"CreationDate" not in one.read_bytes()


@pytest.mark.parametrize("figure", FIGURES)
def test_the_table_of_figures_names_the_inputs_of_each_module(figure: str) -> None:
    module = importlib.import_module(f"headroom.present.{FIGURES[figure]['module']}")
    assert sorted(FIGURES[figure]["tables"].split(",")) == sorted(inspect.signature(module.data).parameters)


def test_the_command_writes_numbers_then_picture_and_their_records(
    study: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headroom.present.command import figure_command
    from headroom.present.failure_kinds import data, draw

    numbers, pdf = tmp_path / "figures/tiny/data/failure_kinds.csv", tmp_path / "figures/tiny/failure_kinds.pdf"
    monkeypatch.setattr(sys, "argv", ["x", "data", "--failures", str(study["failures"]), "--output", str(numbers)])
    figure_command("failure_kinds", data, draw)
    monkeypatch.setattr(sys, "argv", ["x", "draw", "--data", str(numbers), "--output", str(pdf)])
    figure_command("failure_kinds", data, draw)
    records = sorted(path.name for path in (tmp_path / "figures/tiny/records").iterdir())
    assert records == ["failure_kinds.data.run.json", "failure_kinds.draw.run.json"]
    made = json.loads((tmp_path / "figures/tiny/records/failure_kinds.draw.run.json").read_text())["outputs"]
    assert sorted(Path(name).suffix for name in made) == [".pdf", ".png", ".txt"]


@pytest.mark.parametrize(("content", "said"), [("a,b\n1,2\n", "lacks the column"), ("", "No columns to parse")])
def test_a_wrong_table_is_one_line_that_names_it(
    content: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headroom.present.command import figure_command
    from headroom.present.failure_kinds import data, draw

    (tmp_path / "failures.csv").write_text(content)
    output = tmp_path / "figures/tiny/data/failure_kinds.csv"
    arguments = ["x", "data", "--failures", str(tmp_path / "failures.csv"), "--output", str(output)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match=said) as error:
        figure_command("failure_kinds", data, draw)
    assert "failures.csv" in str(error.value)
    assert "\n" not in str(error.value)
    assert not output.exists()


def test_the_scale_is_read_off_the_folder_and_written_on_the_figure(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    assert [scale_of(tmp_path / "figures" / name / "x.pdf") for name in SCALE_LABELS] == list(SCALE_LABELS)
    assert scale_of(tmp_path / "elsewhere" / "x.pdf") == ""
    with styled():
        figure = plt.figure()
        save(figure, tmp_path / "figures/smoke/x.pdf", caption="n = 1")
    assert SCALE_LABELS["smoke"] in [text.get_text() for text in figure.texts]
    assert "not evidence" in SCALE_LABELS["smoke"]
    assert "mechanism reproduction" in SCALE_LABELS["tiny"]


def test_the_gate_keeps_the_runs_from_the_supervised_policy_only(study: dict[str, Path], tmp_path: Path) -> None:
    table, _, _ = drawn("gate", study, tmp_path)
    assert set(table["family"]) == {"grid", "replication", "collapse"}
    assert set(table["init"]) == {"sft"}


def test_a_layout_that_differs_in_the_tenth_digit_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    lay_out = ConstrainedLayoutEngine.execute

    def elsewhere_in_memory(engine: ConstrainedLayoutEngine, figure: Figure) -> None:
        lay_out(engine, figure)
        for axes in figure.axes:
            axes._set_position([edge + 1e-10 for edge in axes.get_position(original=True).bounds], which="original")

    for folder in ("a", "b"):
        with styled():
            figure, axes = plt.subplots(1, 2)
            axes[0].plot([0, 1], [1, 0])
            axes[0].set_ylabel("success")
            save(figure, tmp_path / folder / "x.pdf", caption="n = 1")
        monkeypatch.setattr(ConstrainedLayoutEngine, "execute", elsewhere_in_memory)
    assert (tmp_path / "a/x.pdf").read_bytes() == (tmp_path / "b/x.pdf").read_bytes()


def test_a_caption_breaks_no_name_at_its_hyphen(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    caption = " ".join(["click-collapsible-2"] * 20)
    with styled():
        save(plt.figure(layout="constrained"), tmp_path / "x.pdf", caption=caption)
    assert " ".join((tmp_path / "captions" / "x.txt").read_text().split()) == caption


def test_the_gates_caption_says_which_evaluation_pages_repeat_a_page_trained_on(
    study: dict[str, Path], tmp_path: Path
) -> None:
    _, _, caption = drawn("gate", study, tmp_path)
    assert "still, 4 evaluation pages repeat the goal and text of a page trained on (mastered-03 4)" in caption
    overlap = pd.read_csv(study["overlap"]).assign(evaluation_met=0.0)
    write_csv(tmp_path / "overlap.csv", overlap)
    _, _, caption = drawn("gate", study | {"overlap": tmp_path / "overlap.csv"}, tmp_path)
    assert "nor does an evaluation page repeat the goal and text" in caption


def test_the_forest_shows_all_cells_and_both_references_of_another_start(
    study: dict[str, Path], tmp_path: Path
) -> None:
    table, _, caption = drawn("grid_forest", study, tmp_path)
    assert table["policy"].nunique() == 18
    assert set(table.loc[table["init"] == "base", "against"]) == {"sft", "base"}
    assert set(table.loc[table["init"] == "sft", "against"]) == {"sft"}
    assert "18 cells" in caption
    assert table["minimum_detectable_effect"].notna().all()


@pytest.mark.parametrize("figure", ["graft_heatmap", "grid_forest", "headroom_control", "movement_against_harm"])
def test_no_text_beside_the_axes_covers_another(figure: str, study: dict[str, Path], tmp_path: Path) -> None:
    module = importlib.import_module(f"headroom.present.{FIGURES[figure]['module']}")
    write_csv(tmp_path / "numbers.csv", module.data(**inputs(module, study, tmp_path)))
    with styled():
        picture, caption = module.draw(pd.read_csv(tmp_path / "numbers.csv"))
        save(picture, tmp_path / "figures" / "tiny" / f"{figure}.pdf", caption=caption)
        canvas = FigureCanvasAgg(picture)
        canvas.draw()
        texts = [text for legend in picture.legends for text in legend.get_texts()] + picture.texts
        for axes in [own for outer in picture.axes for own in (outer, *outer.child_axes)]:
            if not axes.axison:
                texts += axes.texts
                continue
            texts.append(axes.title)
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=False)
                texts += [text for place, text in ticks if low <= place <= high]
        straight = [text for text in texts if text.get_visible() and text.get_text() and not text.get_rotation()]
        shown = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in straight]
        covered = [
            (one, other)
            for place, (one, box) in enumerate(shown)
            for other, under in shown[place + 1 :]
            if box.overlaps(under)
        ]
        assert not covered


def test_a_control_of_the_heat_map_is_the_mean_of_its_draws(study: dict[str, Path], tmp_path: Path) -> None:
    table, _, _ = drawn("graft_heatmap", study, tmp_path)
    grafts = pd.read_csv(study["grafts"])
    row = table[(table["kind"] == "control") & (table["direction"] == "necessity")].iloc[0]
    draws = grafts[
        (grafts["kind"] == "control")
        & (grafts["direction"] == "necessity")
        & (grafts["groups"] == row["groups"])
        & (grafts["policy"] == row["policy"])
    ]
    assert row["change"] == pytest.approx(draws["difference_to_rl"].mean())
    assert row["draws"] == len(draws) == 2


def test_the_heat_maps_caption_says_what_its_nulls_could_show_and_how_pairs_interact(
    study: dict[str, Path], tmp_path: Path
) -> None:
    table, _, caption = drawn("graft_heatmap", study, tmp_path)
    own = table[table["kind"] != "control"]
    assert own["minimum_detectable_effect"].notna().all()
    largest = f"{100 * own['minimum_detectable_effect'].max():.0f} points"
    assert f"Minimum detectable effect of an entry: {100 * own['minimum_detectable_effect'].min():.0f}" in caption
    assert largest in caption
    pairs = table[table["interaction"].notna()]
    assert set(pairs["kind"]) == {"pair"}
    for row in pairs.itertuples():
        term = f"in {row.policy}, {row.direction}: {100 * row.interaction:+.0f} [{100 * row.interaction_ci_low:+.0f},"
        assert term in caption


def test_the_gates_caption_names_the_margin_and_the_detectable_effect(study: dict[str, Path], tmp_path: Path) -> None:
    table, _, caption = drawn("gate", study, tmp_path)
    assert f"equivalence margin, {100 * table['equivalence_margin'].iloc[0]:g} points" in caption
    effects = 100 * table["minimum_detectable_effect"]
    assert f"Minimum detectable effect: {effects.min():.1f} to {effects.max():.1f} points" in caption
    null = table[(table["ci_low"] <= 0) & (table["ci_high"] >= 0)]
    assert f"of the {len(null)} run" in caption
    assert f"{null['equivalent'].sum()} passed the equivalence test" in caption


def test_movement_and_harm_are_against_the_policy_a_run_started_from(study: dict[str, Path], tmp_path: Path) -> None:
    table, _, _ = drawn("movement_against_harm", study, tmp_path)
    own = pd.read_csv(study["init_contrasts"]).set_index(["policy", "task_set", "mode"])["difference"]
    row = table[(table["row"] == "policy") & (table["policy"] == "grid-15")].iloc[0]
    assert row["difference"] == pytest.approx(own["grid-15", "mastered", "greedy"])


def test_rates_of_failure_kinds_add_up_to_all_failures(study: dict[str, Path], tmp_path: Path) -> None:
    table, _, _ = drawn("failure_kinds", study, tmp_path)
    main = table[table["invalid_kind"].isna()]
    for _, own in main.groupby(["regime", "task_set"]):
        assert own["count"].sum() == own["failures"].iloc[0]
