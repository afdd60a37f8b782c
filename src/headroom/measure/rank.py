"""What became of one policy inside: rank of its hidden states, agreement with its reference, drift of its weights.

Policy and reference walk through the probe side by side, one block of each in memory at a time. Per site and token
choice: effective rank (centred and not), participation ratio and stable rank, each with its interval or the reason
why it has none (column ``interval``), and CKA with the reference; over the action tokens: argmax agreement and KL;
over the weights: :mod:`headroom.measure.drift`. Works on any checkpoint whose text decoder ``transformers`` knows, and
on a LoRA adapter of one: its hidden states are read with the adapter on, its updates from their factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pandas as pd
import typer

from headroom.agent.spoken import spoken, spoken_here
from headroom.config.jobs import RankJob, load_job
from headroom.config.models import Rank
from headroom.files import write_csv
from headroom.measure.adapted import open_pair, switched
from headroom.measure.agreement import episode_interval, linear_cka, token_agreement
from headroom.measure.drift import weight_drift
from headroom.measure.hidden import MEASURES, TOKENS, RankIntervals, episode_weights, rank_intervals, rows_of
from headroom.measure.layers import LayerWalk, Site
from headroom.measure.lora import is_adapter
from headroom.measure.probe_turns import ProbeTurns, read_probe, tokenizer_digest
from headroom.measure.spectrum import Ranks, matrix_ranks
from headroom.measure.weights import Checkpoint

States = list[npt.NDArray[np.float32]]


def measure(
    policy: Checkpoint, reference: Checkpoint, probe: ProbeTurns, settings: Rank, confidence: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables of rank (a row a site, token choice and centring) and of agreement (a row a measure).

    Raises:
        ValueError: a checkpoint cannot be walked.
    """
    number = {name: place for place, name in enumerate(np.unique(probe.episode))}
    episode = np.array([number[name] for name in probe.episode], dtype=np.int64)
    weights = episode_weights(len(number), settings.bootstrap_draws, settings.bootstrap_seed)
    ours = LayerWalk(policy, probe.sequences, batch_tokens=settings.batch_tokens)
    same = not switched(reference, policy)
    theirs = ours if same else LayerWalk(reference, probe.sequences, batch_tokens=settings.batch_tokens)
    rank_rows, agreement_rows = [], []
    for site, states, other in _side_by_side(ours, theirs):
        for tokens in TOKENS:
            rows, owner = rows_of(states, tokens, probe.action_positions, episode)
            for centred in (True, False):
                found = matrix_ranks(rows, centred=centred)
                intervals = rank_intervals(
                    rows, owner, weights, centred=centred, confidence=confidence, up_to=settings.bootstrap_up_to
                )
                rank_rows.append(
                    {
                        "site": site.name,
                        "layer": site.layer,
                        "tokens": tokens,
                        "centred": centred,
                        **_with_intervals(found, intervals),
                        "rows": len(rows),
                        "width": rows.shape[1],
                        "episodes": len(number),
                    }
                )
            compared = rows if same else rows_of(other, tokens, probe.action_positions, episode)[0]
            agreement_rows.append(_row("cka", site, tokens, linear_cka(rows, compared), len(rows)))
    ranks = pd.DataFrame(rank_rows)
    last = Site("block", ours.blocks - 1)
    ranks["primary"] = (
        (ranks["site"] == last.name)
        & (ranks["layer"] == last.layer)
        & (ranks["tokens"] == settings.primary_tokens)
        & (ranks["centred"] == settings.primary_centred)
    )
    agreement_rows += _tokens_agree(ours, theirs, probe, episode, weights, confidence)
    return ranks, pd.DataFrame(agreement_rows)


def check_tokenizers(policy: Path, reference: Path, probe: ProbeTurns) -> None:
    """Refuse a checkpoint to which the probe's ids mean something else; an adapter without a tokenizer has its base's.

    Raises:
        ValueError: the tokenizer is missing, or not the one that the probe was written with.
    """
    for folder in (reference, policy):
        own = folder / "tokenizer.json"
        if is_adapter(folder) and not own.exists():
            continue
        if tokenizer_digest(folder) != probe.tokenizer:
            raise ValueError(f"{own}: not the tokenizer that the probe was written with")


def check_dialects(policy: Path, reference: Path, dialect: str) -> None:
    """Refuse checkpoints that were not trained on what the probe shows; an adapter speaks as its base does.

    Raises:
        ValueError: a dialect is another one, is missing, or cannot be read.
    """
    for folder in (reference, policy):
        if is_adapter(folder) and spoken(folder) is None:
            continue
        if (said := spoken_here(folder)) != dialect:
            raise ValueError(f"{folder}: the checkpoint speaks the dialect {said!r}, but the probe is of {dialect!r}")


def _with_intervals(found: Ranks, intervals: RankIntervals) -> dict[str, object]:
    """The columns of the three measures; those of the effective rank's interval have no prefix."""
    row: dict[str, object] = {}
    for name in MEASURES:
        own = intervals.of[name]
        prefix = "" if name == "effective_rank" else f"{name}_"
        row |= {
            name: getattr(found, name),
            f"{prefix}ci_low": own.low,
            f"{prefix}ci_high": own.high,
            f"{prefix}bootstrap_bias": own.bias,
        }
    return row | {"interval": intervals.reason}


def _side_by_side(ours: LayerWalk, theirs: LayerWalk) -> Iterator[tuple[Site, States, States]]:
    if ours is theirs:
        for site, states in ours.states():
            yield site, states, states
        return
    for (site, states), (_, other) in zip(ours.states(), theirs.states(), strict=True):
        yield site, states, other


def _tokens_agree(
    ours: LayerWalk,
    theirs: LayerWalk,
    probe: ProbeTurns,
    episode: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    confidence: float,
) -> list[dict[str, object]]:
    positions = probe.action_positions
    logits = ours.logits(positions)
    found = token_agreement(logits, logits if ours is theirs else theirs.logits(positions))
    lengths = [len(at) for at in positions]
    owner = np.repeat(episode, lengths)
    first = np.zeros(len(owner), dtype=bool)
    first[np.cumsum([0, *lengths[:-1]])] = True
    site = Site("logits", ours.blocks + 1)
    rows = []
    for name, values in found.items():
        for tokens, chosen in (("first", first), ("action_tokens", np.ones(len(owner), dtype=bool))):
            interval = episode_interval(values[chosen], owner[chosen], weights, confidence)
            rows.append(_row(name, site, tokens, float(values[chosen].mean()), int(chosen.sum()), interval))
    return rows


def _row(
    measure_name: str,
    site: Site,
    tokens: str,
    value: float,
    count: int,
    interval: tuple[float, float] = (float("nan"), float("nan")),
) -> dict[str, object]:
    return {
        "measure": measure_name,
        "site": site.name,
        "layer": site.layer,
        "tokens": tokens,
        "value": value,
        "ci_low": interval[0],
        "ci_high": interval[1],
        "rows": count,
    }


def main(
    config: Annotated[Path, typer.Option(help="Resolved RankJob.")],
    checkpoint: Annotated[Path, typer.Option(help="The policy's checkpoint, or its LoRA adapter.")],
    reference: Annotated[Path, typer.Option(help="The supervised checkpoint that it started from.")],
    probe: Annotated[Path, typer.Option(help="Directory of the probe.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write rank.csv, agreement.csv and drift.csv."""
    import torch

    from headroom.provenance import record

    torch.set_num_threads(1)
    settings = load_job(config, RankJob)
    with record.job(
        stage="measure.rank",
        output=output,
        inputs={"checkpoint": checkpoint, "reference": reference, "probe": probe},
        config=config,
        seeds={"bootstrap": settings.rank.bootstrap_seed},
    ) as job:
        turns = read_probe(probe)
        check_dialects(checkpoint, reference, turns.dialect)
        theirs, ours = open_pair(reference, checkpoint)  # before the walk: a bad file costs no time
        check_tokenizers(checkpoint, reference, turns)
        ranks, agreement = measure(ours, theirs, turns, settings.rank, settings.statistics.confidence)
        drift = weight_drift(theirs, ours, spectrum_up_to=settings.rank.spectrum_up_to)
        for name, table in (("rank", ranks), ("agreement", agreement), ("drift", drift)):
            table.insert(0, "policy", settings.policy)
            write_csv(job.output / f"{name}.csv", table)
        primary = ranks.loc[ranks["primary"], "effective_rank"]
        job.notes["effective rank"] = round(float(primary.iloc[0]), 6) if primary.notna().all() else None
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
