"""What the figures write beside their axes: regimes, parameter groups, and what an open marker is against."""

from pathlib import Path

import pandas as pd
from matplotlib.text import Text

from headroom.config.jobs import ContrastJob, dump_job
from headroom.config.models import Statistics
from headroom.files import write_text
from headroom.present import graft_heatmap, grid_forest, movement_against_harm
from headroom.present.style import group_name, styled


def test_a_union_of_groups_is_written_with_the_fields_names() -> None:
    assert [group_name(name) for name in ("mlp", "attention+mlp", "norms")] == ["MLP", "attention + MLP", "norms"]
    assert group_name("attention+mlp", " x ") == "attention x MLP"


def test_a_regime_stands_once_centred_over_its_runs(study: dict[str, Path]) -> None:
    table = graft_heatmap.data(study["grafts"])
    table.loc[table["policy"] == table["policy"].iloc[-1], "regime"] = table["regime"].iloc[0]  # apart from its own
    with styled():
        figure, _ = graft_heatmap.draw(table)
    runs = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    (above,) = figure.axes[0].child_axes
    names = [label.get_text() for label in above.get_xticklabels()]
    assert names == list(dict.fromkeys(table["regime"]))
    of_run = dict(zip(table["policy"], table["regime"], strict=True))
    for name, centre in zip(names, above.get_xticks(), strict=True):
        own = [place for place, run in enumerate(runs) if of_run[run] == name]
        assert own == list(range(own[0], own[-1] + 1)), "the runs of a regime are neighbours"
        assert centre == (own[0] + own[-1]) / 2


def test_no_figure_of_parameter_groups_writes_a_key_of_the_code(study: dict[str, Path]) -> None:
    moved = movement_against_harm.data(*(study[n] for n in ("drift", "contrasts", "init_contrasts", "correlations")))
    for module, table in ((graft_heatmap, graft_heatmap.data(study["grafts"])), (movement_against_harm, moved)):
        with styled():
            figure, caption = module.draw(table)
        said = [*(text.get_text() for text in figure.findobj(Text)), caption]
        assert any("MLP" in text for text in said)
        assert not [text for text in said if "mlp" in text]


def test_the_forest_says_what_an_open_marker_is_against_only_where_it_has_one(
    study: dict[str, Path], tmp_path: Path
) -> None:
    write_text(tmp_path / "contrast.json", dump_job(ContrastJob(statistics=Statistics())))
    table = grid_forest.data(study["contrasts"], study["init_contrasts"], tmp_path / "contrast.json")
    for rows, entries in ((table, 2), (table[table["against"] == "sft"], 1)):
        with styled():
            figure, _ = grid_forest.draw(pd.DataFrame(rows))
        (legend,) = figure.legends
        assert len(legend.get_texts()) == entries
        assert ("started from" in legend.get_texts()[-1].get_text()) == (entries == 2)
