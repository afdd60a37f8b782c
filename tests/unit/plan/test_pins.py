"""Pinning, against a server on the loopback that plays the hub."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from headroom.cli import app
from headroom.config import resolve
from headroom.plan.pins import current, pin

PROJECT = Path(__file__).parents[3]
SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Answers with the commit of every model but those that do not exist."""

    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        missing = "nobody" in self.path
        body = (
            b"no such model"
            if missing
            else json.dumps({"id": "x", "sha": SHA if "odd" not in self.path else 7}).encode()
        )
        self.send_response(404 if missing else 200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("Snakefile", "config.yaml", "workflow/scales", "workflow/data"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (PROJECT / name).is_dir() else shutil.copy)(PROJECT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "workflow/scales/paper.yaml"
    given = yaml.safe_load(path.read_text())["model"]["revision"]
    path.write_text(path.read_text().replace(f"revision: {given}", "revision: null"))
    return tmp_path


def test_an_unpinned_model_is_refused_with_the_command_that_pins_it(project: Path) -> None:
    with pytest.raises(resolve.ConfigError, match=r"model.revision: .*; give .* or type: headroom pin-models$"):
        resolve.load_study(project, "paper")


def test_the_command_writes_the_commit_and_nothing_else(project: Path, hub: str) -> None:
    path = project / "workflow/scales/paper.yaml"
    before = path.read_text()
    done = CliRunner().invoke(app, ["pin-models", "--scale", "paper", "--hub", hub])
    assert done.exit_code == 0, done.output
    assert path.read_text() == before.replace("revision: null", f"revision: {SHA}")
    assert resolve.load_study(project, "paper").model.revision == SHA
    assert Hub.asked == ["/api/models/Qwen/Qwen3-VL-4B-Instruct/revision/main"]


def test_a_pinned_model_is_left_alone_unless_an_update_is_asked_for(project: Path, hub: str) -> None:
    list(pin(project, hub, only="paper"))
    Hub.asked.clear()
    assert "is pinned to" in next(iter(pin(project, hub, only="paper")))
    assert not Hub.asked
    said = list(pin(project, hub, update=True))
    assert len(said) == len({line.split(":")[0] for line in said}) >= 5
    assert len(Hub.asked) == len(set(Hub.asked)), "each model is asked once"
    for scale in ("paper", "small", "paper-qwen3-8b"):
        assert resolve.load_study(project, scale).model.revision == SHA


def test_nothing_is_written_where_one_model_cannot_be_pinned(project: Path, hub: str) -> None:
    small = project / "workflow/scales/small.yaml"
    small.write_text(small.read_text().replace("HuggingFaceTB/", "nobody/"))
    before = (project / "workflow/scales/paper.yaml").read_text()
    with pytest.raises(ValueError, match=r"answers 404 .*correct model.name_or_path"):
        list(pin(project, hub))
    assert (project / "workflow/scales/paper.yaml").read_text() == before


def test_a_hub_that_gives_no_commit_or_cannot_be_reached_is_one_line(hub: str) -> None:
    with pytest.raises(ValueError, match="gives no commit"):
        current(hub, "odd/model")
    with pytest.raises(ValueError, match="cannot be asked"):
        current("http://127.0.0.1:1", "a/b")
    with pytest.raises(ValueError, match="is no web address"):
        current("file:///etc", "a/b")
