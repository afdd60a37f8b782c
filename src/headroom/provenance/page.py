"""One HTML page, without script or network: for each figure its lineage as a graph, down to commits and digests.

Every box of a graph is a link to what is known of that run; a column is a stage, the figure stands on the right.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from headroom.provenance.audit import Audit
from headroom.provenance.tree import STAGES
from headroom.provenance.walk import Node, Project

WIDTH, HEIGHT, GAP, COLUMN = 168, 22, 6, 204
"""Of a box, between boxes, and of a column, in pixels."""

STYLE = """
:root { color-scheme: light dark; --line: #8a8f98; --good: #2b7a4b; --bad: #c0392b; --box: #f3f5f7; --text: #1c1e21 }
@media (prefers-color-scheme: dark) {
  :root { --line: #6f7680; --good: #6fcf97; --bad: #ff8a7a; --box: #23272d; --text: #e8eaed }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 100rem; padding: 0 1rem; color: var(--text) }
svg { display: block; height: auto; max-width: 100% } .scroll { overflow-x: auto } code, td, .run { font-size: 13px }
code { overflow-wrap: anywhere } table { border-collapse: collapse } td, th { padding: 1px 10px 1px 0; text-align: left;
vertical-align: top } section.run { border-top: 1px solid var(--line); padding: .5rem 0 } section.run:target { outline:
2px solid var(--good) } .bad { color: var(--bad) } .good { color: var(--good) } rect { fill: var(--box); stroke:
var(--line) } rect.bad { stroke: var(--bad); stroke-width: 2 } path { fill: none; stroke: var(--line); opacity: .55 }
text { font: 11.5px system-ui, sans-serif; fill: var(--text) } a:hover rect { stroke: var(--good); stroke-width: 2 }
"""


def page(project: Project, scale: str, figures: Sequence[str]) -> str:
    """The whole page: ``figures`` are paths relative to the project that records know."""
    audits = [Audit(project, name) for name in figures]
    nodes = {node.record: node for audit in audits for node in audit.nodes}
    faulty = {record for audit in audits for record, node in nodes.items() if audit.faults(node)}
    body = "".join(_body(audits, nodes, faulty))
    title = f"Where every number comes from: scale {html.escape(scale)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body><h1>{title}</h1>\n{body}</body></html>\n"
    )


def _body(audits: Sequence[Audit], nodes: dict[str, Node], faulty: set[str]) -> Iterator[str]:
    state = "<span class=good>all as recorded</span>"
    if faulty:
        state = f"<span class=bad>{len(faulty)} not as recorded</span>"
    yield f"<p>{len(audits)} figures and tables rest on {len(nodes)} runs, every file of them hashed: {state}. "
    yield "Click a box to see how it was made. The same on a terminal: <code>headroom audit NAME</code>.</p>\n<ul>"
    for number, audit in enumerate(audits):
        yield f'<li><a href="#figure-{number}">{html.escape(audit.target)}</a>'
    yield "</ul>\n"
    for number, audit in enumerate(audits):
        yield f'<h2 id="figure-{number}">{html.escape(audit.target)}</h2>\n<div class="scroll">{_graph(audit)}</div>\n'
    yield "<h2>Runs</h2>\n"
    for record in sorted(nodes):
        audit = next(item for item in audits if record in {node.record for node in item.nodes})
        yield _run(audit, nodes[record])


def _identity(node: Node) -> str:
    return "run-" + "".join(char if char.isalnum() else "-" for char in node.name)


def _graph(audit: Audit) -> str:
    """Boxes in columns by the longest way to the first stage; the lines are inputs."""
    depth: dict[str, int] = {}
    for node in audit.nodes:
        depth[node.record] = max((depth.get(parent.record, 0) + 1 for parent in audit.parents(node)), default=0)
    columns: dict[int, list[Node]] = {}
    for node in audit.nodes:
        columns.setdefault(depth[node.record], []).append(node)
    place = {
        node.record: (10 + column * COLUMN, 10 + row * (HEIGHT + GAP))
        for column, members in columns.items()
        for row, node in enumerate(sorted(members, key=lambda node: node.name))
    }
    width = 10 + len(columns) * COLUMN
    height = 20 + max(len(members) for members in columns.values()) * (HEIGHT + GAP)
    lines = []
    for node in audit.nodes:
        x, y = place[node.record]
        for parent in audit.parents(node):
            px, py = place[parent.record]
            start, middle = px + WIDTH, (px + WIDTH + x) / 2
            a, b = py + HEIGHT / 2, y + HEIGHT / 2
            lines.append(f'<path d="M{start} {a}C{middle:g} {a},{middle:g} {b},{x} {b}"/>')
    boxes = [_box(audit, node, *place[node.record]) for node in audit.nodes]
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="lineage of '
        f'{html.escape(audit.target)}">{"".join(lines)}{"".join(boxes)}</svg>'
    )


def _box(audit: Audit, node: Node, x: int, y: int) -> str:
    short = "/".join(node.name.split("/")[2:]) or node.name
    shown = short if len(short) <= 27 else f"{short[:12]}…{short[-13:]}"
    kind = "bad" if audit.faults(node) else "sound"
    return (
        f'<a href="#{_identity(node)}"><title>{html.escape(node.name)}</title>'
        f'<rect class="{kind}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
        f'<text x="{x + 7}" y="{y + 15}">{html.escape(shown)}</text></a>'
    )


def _run(audit: Audit, node: Node) -> str:
    run = node.run
    faults = audit.faults(node)
    state = "".join(f'<div class="bad">{html.escape(item.line())}</div>' for item in faults)
    rows = [
        ("made by", f"{STAGES.get(run.stage, run.stage)}: <code>{html.escape(' '.join(run.command))}</code>"),
        ("when", f"{html.escape(run.usage.started)} to {html.escape(run.usage.ended)}, {run.ending}"),
        ("cost", f"{run.usage.wall_seconds:.1f} s, {run.usage.cpu_seconds:.1f} CPU s, "
                 f"{run.usage.peak_memory_bytes / 2**20:.0f} MB, {run.usage.gpu_hours:g} GPU hours"),
        ("code", _code(node)),
        ("settings", f"<code>{html.escape(run.config.path)} {run.config.sha256}</code>" if run.config else "none"),
        ("seeds", html.escape(", ".join(f"{name} {seed}" for name, seed in sorted(run.seeds.items()))) or "none"),
        ("machine", html.escape(", ".join([run.machine.cpu, *run.machine.gpus, f"Python {run.machine.python}"]))),
        ("packages", f"{len(run.packages.installed)} installed, <code>{run.packages.installed_sha256}</code>"),
        ("origin", audit.origin(node)),
        ("attempts", html.escape(", ".join(f"{a.started} {a.ending}" for a in run.earlier_attempts)) or "the first"),
    ]  # fmt: skip
    inputs = []
    for item, parent in audit.project.parents(node):
        name = html.escape(item.path)
        link = f'<a href="#{_identity(parent)}">{name}</a>' if parent else name
        inputs.append(f"<tr><td>{link}</td><td><code>{item.sha256}</code></td></tr>")
    outputs = [
        f"<tr><td>{html.escape(name)}</td><td><code>{entry.sha256}</code></td></tr>"
        for name, entry in run.outputs.items()
    ]
    table = "".join(f"<tr><th>{key}</th><td>{value}</td></tr>" for key, value in rows)
    return (
        f'<section class="run" id="{_identity(node)}"><h3>{html.escape(node.name)}</h3>{state}<table>{table}</table>'
        f"<details><summary>{len(inputs)} inputs</summary><table>{''.join(inputs)}</table></details>"
        f"<details><summary>{len(outputs)} files made</summary><table>{''.join(outputs)}</table></details></section>\n"
    )


def _code(node: Node) -> str:
    git = node.run.git
    sources = f"{len(node.run.sources.files)} source files, <code>{node.run.sources.sha256}</code>"
    if git is None:
        return f"no repository; {sources}"
    dirty = f" with uncommitted changes <code>{git.diff_sha256}</code>" if git.dirty else ""
    return f"commit <code>{html.escape(git.commit)}</code>{dirty}; {sources}"
