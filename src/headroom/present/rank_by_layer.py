"""Effective rank of the hidden states by layer, a line a policy: where the representation narrows or widens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from headroom.present.command import figure_command
from headroom.present.style import LEVEL_LINES, LEVELS, PAGE, empty, spans
from headroom.present.tables import counted, records, true

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOKENS = {"mean": "mean of a turn", "all": "all tokens", "action": "action position"}


def data(rank: Path, policy_success: Path, runs: Path) -> pd.DataFrame:
    """Every policy, site and token choice, centred as the primary choice is; ``primary_tokens`` marks that choice."""
    table = pd.read_csv(rank)
    chosen = table.loc[table["primary"], ["tokens", "centred"]].iloc[0] if table["primary"].any() else None
    if chosen is not None:
        table = table[table["centred"] == chosen["centred"]].assign(primary_tokens=table["tokens"] == chosen["tokens"])
    else:
        table = table.assign(primary_tokens=False)
    settings = pd.read_csv(runs, sep="\t", comment="#")[["run", "learning_rate", "init", "seed"]]
    settings.columns = pd.Index(["policy", "learning_rate_level", "init", "seed"])
    table = table.merge(settings, on="policy", how="left").merge(pd.read_csv(policy_success), on="policy", how="left")
    kept = ["policy", "learning_rate_level", "init", "seed", "success", "tokens", "primary_tokens", "centred", "site"]
    kept += ["layer", "effective_rank", "ci_low", "ci_high", "bootstrap_bias", "participation_ratio", "stable_rank"]
    return table[[*kept, "rows", "width", "episodes"]].sort_values(["tokens", "policy", "layer"], kind="stable")


BASE_LINE = (0, (6, 1, 1, 1, 1, 1))
"""Of runs from the base initialisation; no learning-rate level has it."""


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """A panel a token choice; the supervised policy black with its interval, runs coloured by learning rate."""
    import matplotlib.pyplot as plt

    kinds = [kind for kind in TOKENS if (table["tokens"] == kind).any()]
    figure, grid = plt.subplots(1, max(len(kinds), 1), figsize=(PAGE, 2.8), squeeze=False)
    if not kinds:
        empty(grid[0, 0], "no hidden states were measured at this scale")
        return figure, "No hidden states were measured at this scale."
    for axes, kind in zip(grid[0], kinds, strict=True):
        own = table[table["tokens"] == kind]
        _panel(axes, own)
        axes.set_title(TOKENS[kind] + (" (primary)" if own["primary_tokens"].all() else ""))
    grid[0, 0].set_ylabel("effective rank")
    found = dict(zip(*reversed(grid[0, 0].get_legend_handles_labels()), strict=True))
    names = [name for name in ("SFT policy", "base policy", *LEVELS) if name in found]
    figure.legend([found[name] for name in names], names, loc="outside right center", title="learning rate")
    first = table.iloc[0]
    runs = table.loc[table["learning_rate_level"].notna(), "policy"].nunique()
    caption = (
        f"Effective rank (Roy and Vetterli 2007, {'centred' if true(first['centred']) else 'not centred'}) "
        f"of hidden states by layer, for the supervised policy, the base initialisation and {counted(runs, 'run')}, on "
        f"the same turns of {int(first['episodes'])} probe episodes (width {int(first['width'])}). Bars, on "
        "the supervised "
        "policy: 95% bootstrap intervals over episodes; every run's stands in the CSV. A thin line is one run, "
        "broken as its learning rate's; dash-dot-dot: a run from the base initialisation."
    )
    return figure, caption


def _panel(axes: Axes, table: pd.DataFrame) -> None:
    sites = table.drop_duplicates("layer").sort_values("layer")
    seen = set()
    for _, own in table.groupby("policy", sort=True):
        line = own.sort_values("layer")
        level = line["learning_rate_level"].iloc[0]
        if pd.isna(level):
            continue
        name = level if level not in seen else None
        seen.add(level)
        style = LEVEL_LINES[level] if line["init"].iloc[0] == "sft" else BASE_LINE
        axes.plot(
            line["layer"], line["effective_rank"], linestyle=style, color=LEVELS[level], linewidth=0.9, alpha=0.8,
            label=name,
        )  # fmt: skip
    for policy, style, label in (("base", ":", "base policy"), ("sft", "-", "SFT policy")):
        line = table[table["policy"] == policy].sort_values("layer")
        if len(line):
            arms = spans(line["effective_rank"], line["ci_low"], line["ci_high"])
            axes.errorbar(
                line["layer"], line["effective_rank"], yerr=arms if policy == "sft" else None, fmt="o", linestyle=style,
                color="black", linewidth=1.4, markersize=3, capsize=2, elinewidth=0.8, label=label,
            )  # fmt: skip
    names = {"embedding": "emb.", "final_norm": "norm"}
    ticks = sites if len(sites) <= 8 else sites.iloc[:: max(len(sites) // 6, 1)]
    axes.set_xticks(ticks["layer"], [names.get(row.site, f"{row.layer:.0f}") for row in records(ticks)])
    axes.set_xlabel("block")
    axes.set_ylim(bottom=0)


if __name__ == "__main__":
    figure_command("rank_by_layer", data, draw)
