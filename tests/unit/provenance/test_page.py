"""The audit page: every figure's lineage as a graph whose boxes lead to what is known of a run, without a network."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from typer.testing import CliRunner

from headroom.cli import app
from headroom.provenance.page import page
from headroom.provenance.walk import Project

Look = Callable[[], Project]


def made(project: Project) -> str:
    return page(project, "smoke", ["figures/smoke/gate.pdf"])


def test_every_run_has_a_box_and_every_link_leads_somewhere(project: Look) -> None:
    text = made(project())
    assert text.count("<rect") == 11
    targets = set(re.findall(r'id="([^"]+)"', text))
    links = set(re.findall(r'href="#([^"]+)"', text))
    assert links <= targets
    assert len(links) == 12


def test_it_goes_down_to_commits_and_digests(project: Look) -> None:
    text = made(project())
    for node in project().records("smoke"):
        for entry in node.run.outputs.values():
            assert entry.sha256 in text
        assert node.run.sources.sha256 in text


def test_nothing_is_loaded_from_anywhere(project: Look) -> None:
    text = made(project())
    assert not re.findall(r"https?://|<script|<link|@import|src=", text)


def test_the_graphs_are_well_formed_and_lines_run_from_left_to_right(project: Look) -> None:
    text = made(project())
    for graph in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        root = ElementTree.fromstring(graph)
        for line in root.iter("path"):
            numbers = [float(part) for part in re.findall(r"[-\d.]+", line.attrib["d"])]
            assert numbers[0] < numbers[-2]


def test_a_fault_is_red_in_the_graph_and_said_at_the_run(folder: Path, project: Look) -> None:
    assert 'rect class="bad"' not in made(project())
    (folder / "results/smoke/contrast/contrasts.csv").write_text("<b>x</b>")
    text = made(project())
    assert text.count('rect class="bad"') == 1
    assert "1 not as recorded" in text
    assert "changed: results/smoke/contrast/contrasts.csv" in text


def test_equal_results_give_equal_pages(project: Look) -> None:
    assert made(project()) == made(project())


def test_the_command_writes_it_beside_the_results(folder: Path) -> None:
    (folder / "workflow/data/figures.tsv").write_text(
        "figure\tstudy\tmodule\ttables\ttitle\ngate\tgate\tgate\tcontrasts\tThe gate\n"
    )
    done = CliRunner().invoke(app, ["lineage", "--scale", "smoke"])
    assert done.exit_code == 0, done.output
    assert (folder / "results/smoke/audit/lineage.html").is_file()
    assert CliRunner().invoke(app, ["verify", "--scale", "smoke"]).exit_code == 0
