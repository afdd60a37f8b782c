"""The tables of claims and deviations as Markdown for the README and as one HTML page."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headroom.present.style import SCALE_LABELS
from headroom.present.tables import counted, records

CLAIMS, DEVIATIONS = "claims", "deviations"
MARKS = {"reproduced": "✔", "not reproduced": "✘", "inconclusive": "?"}
UNITS = {"points": " points", "rho": "", "share": "", "ratio": "", "effective rank": ""}
NAMES = {"rho": "rho ", "share": "share ", "ratio": "ratio ", "effective rank": "rank "}


def estimate(row: Any) -> str:
    """``+1.2 points [-0.3, 2.7]``; empty where there is no estimate."""
    if not isinstance(row.effect, float) or math.isnan(row.effect):
        return ""
    digits, sign = (1, "+") if row.unit == "points" else (2, "+" if row.unit == "rho" else "")
    text = f"{NAMES.get(row.unit, '')}{row.effect:{sign}.{digits}f}{UNITS.get(row.unit, '')}"
    if math.isnan(row.ci_low):
        return text
    return f"{text} [{row.ci_low:.{digits}f}, {row.ci_high:.{digits}f}]"


def summary(claims: pd.DataFrame) -> str:
    """One sentence: how many claims came out how, of those that were tested."""
    counts = claims["verdict"].value_counts()
    tested = [f"{int(counts.get(name, 0))} {name}" for name in MARKS]
    other = [f"{count} {name}" for name, count in counts.items() if name not in MARKS]
    return f"Of {len(claims)} claims: {', '.join(tested)}" + (f"; {', '.join(sorted(other))}." if other else ".")


def markdown(claims: pd.DataFrame) -> str:
    """The README's table: tested claims first, the others folded away."""
    tested = claims[claims["verdict"].isin(list(MARKS))]
    lines = [summary(claims), "", "| verdict | claim | what came out | n |", "|---|---|---|---|"]
    for row in records(tested):
        cells = (f"{MARKS[row.verdict]} {row.verdict}", row.claim, estimate(row) or _short(row.detail), row.n)
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    rest = claims[~claims["verdict"].isin(list(MARKS))]
    if len(rest):
        lines += ["", f"<details><summary>{counted(len(rest), 'claim')} that this run does not test</summary>", ""]
        lines += [f"- {row.claim} *{row.verdict}.* {_text(row.detail)}".rstrip() for row in records(rest)]
        lines += ["", "</details>"]
    return "\n".join(lines)


def plain(claims: pd.DataFrame) -> str:
    """The table for a terminal: a line a claim, the estimate below it."""
    lines = []
    for row in records(claims):
        numbers = "; ".join(part for part in (estimate(row), _text(row.n), _text(row.detail)) if part)
        lines += [f"{row.verdict.upper():<28}{row.claim}", *([f"{'':<28}{numbers}"] if numbers else [])]
    return "\n".join([*lines, "", summary(claims)])


HEADLINES = {
    "gate": ("gate-null", "gate-harm", "headroom-gain", "headroom-only", "degrade-localised", "embedding-inert"),
    "dark room": (
        *("dark-collapse", "dark-normaliser", "dark-noise", "dark-anneal", "dark-auxiliary", "dark-placebo"),
    ),
}
"""Study -> the claims on the report's first screen: those of the abstract that the other figures explain."""
COUNTED = {
    "gate": "where training seeds are repeated they count seeds and tasks, elsewhere tasks for one trained policy",
    "dark room": "where training seeds are repeated they are over seeds, elsewhere for the episodes of one validation",
}
"""Study -> what its intervals are over."""


def restructured(claims: pd.DataFrame, scale: str, study: str = "gate") -> str:
    """What came out and how sure it is, for the report's first screen."""
    own = claims[claims["study"] == study]
    lines = [f"**What came out.** {summary(own)} The headlines:", ""]
    for row in records(own[own["id"].isin(HEADLINES[study])]):
        numbers = ", ".join(part for part in (estimate(row), _text(row.n)) if part) or _short(row.detail)
        lines.append(f"- **{MARKS.get(row.verdict, '–')} {row.verdict}**: {row.claim} {numbers}".rstrip())
    label = SCALE_LABELS.get(scale, "")
    lines += [
        "",
        f"**How sure.** {label[:1].upper()}{label[1:]}. Each verdict follows a rule that was fixed before "
        f"the run. Brackets are 95% intervals; {COUNTED[study]}. A null counts only where a gain of the declared "
        "margin is excluded.",
        "",
    ]
    return "\n".join(lines)


def deviations_markdown(deviations: pd.DataFrame) -> str:
    """The README's table of settings that were ours to choose."""
    lines = ["| setting | paper | here | why |", "|---|---|---|---|"]
    for row in records(deviations):
        cells = (row.setting, row.paper, row.ours, row.reason)
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _text(value: object) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _short(value: object) -> str:
    text = _text(value)
    return text if len(text) <= 120 else text[:117].rsplit(" ", 1)[0] + " ..."


def _cell(value: object) -> str:
    return _text(value).replace("|", "\\|").replace("\n", " ")


def between(text: str, name: str, content: str) -> str:
    """Replace what stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``.

    Raises:
        ValueError: the text does not hold the pair of markers exactly once.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"needs the line {begin} and, after it, the line {end}, once each")
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n{content}\n{end}{tail}"


SHOWN = {"tiny": "gate", "dark-room-tiny": "dark room", "hidden-rule-tiny": "dark room"}
"""Scale whose verdicts the README shows, where they stand in the checkout -> its study."""


def verdict_tables(tables: Mapping[str, pd.DataFrame]) -> str:
    """The README's tables of verdicts, one a scale, each with the claims of that scale's study; those of a study that
    has no table here stand with the others, which say why, so that nobody takes silence for success."""
    parts = []
    studies = {SHOWN[scale] for scale in tables}
    for scale, claims in tables.items():
        own = claims[(claims["study"] == SHOWN[scale]) | ~claims["study"].isin(studies)]
        label = SCALE_LABELS.get(scale, "")
        parts.append(f"**The {SHOWN[scale]}, scale `{scale}`**{f' ({label})' if label else ''}. {markdown(own)}")
    return "\n\n".join(parts)


def readme(text: str, figures: Path) -> str:
    """The README with its tables rewritten from ``figures/SCALE/data`` of the scales in :data:`SHOWN` that are there:
    the verdicts of each, and the first one's deviations.

    Raises:
        ValueError: the markers are missing.
        OSError: no table is there, or the first scale has no deviations.
    """
    places = {scale: figures / scale / "data" for scale in SHOWN}
    there = {scale: folder for scale, folder in places.items() if (folder / "claims.csv").is_file()}
    if not there:
        raise FileNotFoundError(f"no claims.csv of {', '.join(SHOWN)}")
    tables = {scale: pd.read_csv(folder / "claims.csv") for scale, folder in there.items()}
    text = between(text, CLAIMS, verdict_tables(tables))
    chosen = pd.read_csv(next(iter(there.values())) / "deviations.csv")
    return between(text, DEVIATIONS, deviations_markdown(chosen))


STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #006b4e; --bad: #b04400; --open: #6b5900; --none: #666; }
@media (prefers-color-scheme: dark) { :root { --good: #4cc9a0; --bad: #ff9a5c; --open: #e6cf5c; --none: #aaa; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 1.5rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem .6rem; border-bottom: 1px solid var(--line); }
td.verdict { font-weight: 600; width: 8.5rem; } small { opacity: .8; }
.reproduced { color: var(--good); } .not-reproduced { color: var(--bad); } .inconclusive { color: var(--open); }
.other { color: var(--none); } summary { cursor: pointer; } code { overflow-wrap: anywhere; }
"""


def page(claims: pd.DataFrame, deviations: pd.DataFrame, scale: str) -> str:
    """One HTML page without scripts or outside resources: verdicts, rules, files, deviations."""
    rows = "".join(_claim_row(row) for row in records(claims))
    chosen = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_text(cell))}</td>" for cell in row[:4]) + "</tr>"
        for row in deviations.itertuples(index=False)
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Claims and verdicts</title><style>{STYLE}</style></head><body>
<h1>Claims and verdicts</h1>
<p><strong>{html.escape(summary(claims))}</strong> {html.escape(SCALE_LABELS.get(scale, ""))}.
Every verdict is computed by a rule that was fixed before the run; rules decide on regimes and on the signs of
intervals, never on the size of an effect. Intervals are 95%.</p>
<table><thead><tr><th>verdict</th><th>claim</th><th>what came out</th></tr></thead><tbody>{rows}</tbody></table>
<h1>Settings that were ours to choose</h1>
<table><thead><tr><th>setting</th><th>paper</th><th>here</th><th>why</th></tr></thead><tbody>{chosen}</tbody></table>
</body></html>
"""


def _claim_row(row: Any) -> str:
    kind = row.verdict.replace(" ", "-") if row.verdict in MARKS else "other"
    files = " ".join(f"<code>{html.escape(name)}</code>" for name in _text(row.files).split())
    numbers = "; ".join(part for part in (estimate(row), _text(row.n)) if part)
    return (
        f'<tr id="{row.id}"><td class="verdict {kind}">{MARKS.get(row.verdict, "–")} {row.verdict}</td>'
        f"<td>{html.escape(row.claim)}<br><small>{html.escape(row.source)} ({row.mark})</small></td>"
        f"<td>{html.escape(numbers)}<details><summary>rule, detail, files</summary><p>{html.escape(row.rule)}</p>"
        f"<p>{html.escape(_text(row.detail))}</p><p>{files}</p></details></td></tr>"
    )
