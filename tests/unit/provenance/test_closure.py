"""The sources of a stage: what can change its result, no less."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from headroom.provenance import closure
from headroom.provenance.digest import sha256_file


def package(folder: Path, **files: str) -> Path:
    for name, text in {"__init__": "", **files}.items():
        path = folder / "src" / "headroom" / (name.replace("__", "/") if name != "__init__" else name)
        path = path if path.suffix else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "src"


def test_imports_of_every_form_are_followed(tmp_path: Path) -> None:
    source = package(
        tmp_path,
        start="import headroom.plain\nfrom headroom.named import x\nfrom headroom import member\n"
        "from . import relative\ndef f():\n    from headroom.late import y\n",
        plain="",
        named="from .deep import z",
        member="",
        relative="",
        late="import json, headroom.last as alias",
        deep="",
        last="",
        other="",
    )
    names = {name.removeprefix("headroom.") for name in closure.modules("start", source)}
    assert names == {"headroom", "start", "plain", "named", "member", "relative", "late", "deep", "last"}


def test_a_cycle_of_imports_ends(tmp_path: Path) -> None:
    source = package(tmp_path, a="import headroom.b", b="import headroom.a")
    assert set(closure.modules("a", source)) == {"headroom", "headroom.a", "headroom.b"}


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(ValueError, match=r"no module headroom\.train\.nothing"):
        closure.files("train.nothing")


def test_data_files_beside_a_module_belong_to_it() -> None:
    names = closure.digests("worlds.miniwob.world")
    assert any(name.endswith(".js") for name in names)
    assert "workflow/data/seeds.tsv" in closure.digests("worlds.seeds")


def test_records_and_settings_models_cannot_make_a_result_stale() -> None:
    names = closure.digests("train.sft")
    assert "src/headroom/train/sft.py" in names
    assert not [name for name in names if "/provenance/" in name or "/config/" in name]


def test_a_training_stage_does_not_know_the_figures_or_the_measures() -> None:
    names = closure.digests("train.grpo")
    assert not [name for name in names if "/present/" in name or "/measure/" in name]


LAYERS = ["worlds", "agent", "policy", "train", "measure", "present"]


def test_a_layer_imports_only_from_layers_below_it() -> None:
    wrong = []
    for path in (closure.SOURCE / "headroom").rglob("*.py"):
        layer = path.relative_to(closure.SOURCE / "headroom").parts[0]
        if layer not in LAYERS:
            continue
        above = LAYERS[LAYERS.index(layer) + 1 :]
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            wrong += [
                f"{path.name} imports {name}" for name in names for up in above if name.startswith(f"headroom.{up}")
            ]
    assert wrong == []


def test_the_closure_holds_whatever_the_import_machinery_finds() -> None:
    """Oracle: grimp's import graph, which is built by another reader of the same sources."""
    graph = grimp.build_graph("headroom", cache_dir=None)
    for stage in ("train.sft", "train.grpo", "measure.evaluate"):
        expected = graph.find_upstream_modules(f"headroom.{stage}")
        assert expected <= set(closure.modules(stage)), stage


def test_the_digest_of_a_closure_changes_with_any_byte_of_any_file(tmp_path: Path) -> None:
    source = package(tmp_path, a="import headroom.b", b="x = 1")
    before = closure.digest(closure.digests("a", source))
    (source / "headroom" / "b.py").write_text("x = 2")
    assert closure.digest(closure.digests("a", source)) != before


def test_the_list_of_a_stage_is_written_only_where_its_sources_are_others(tmp_path: Path) -> None:
    package(tmp_path, a="import headroom.b", b="x = 1", other="y = 1")
    name = closure.Lists(tmp_path, "results/smoke/config/sources").sources("a")
    path = tmp_path / name
    first, written = path.read_bytes(), path.stat().st_mtime_ns
    for module, text, same in (("other", "y = 2", True), ("b", "x = 1", True), ("b", "x = 2", False)):
        (tmp_path / f"src/headroom/{module}.py").write_text(text)
        assert closure.Lists(tmp_path, "results/smoke/config/sources").sources("a") == name
        assert (path.read_bytes() == first) == same
        assert (path.stat().st_mtime_ns == written) == same
    assert [item.name for item in path.parent.iterdir()] == ["a.sha256"]


def test_the_list_of_a_stage_is_what_its_records_digest_and_what_sha256sum_checks(tmp_path: Path) -> None:
    source = package(tmp_path, a="import headroom.b", b="x = 1")
    path = tmp_path / closure.Lists(tmp_path, "lists").sources("a")
    assert sha256_file(path) == closure.digest(closure.digests("a", source))
    command = ["sha256sum", "--check", "--strict", path]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (source / "headroom/b.py").write_text("x = 2")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode != 0


WORLD_STAGES = (
    "train.demonstrations", "train.grpo", "measure.overlap", "measure.select", "measure.reading", "measure.evaluate",
    "measure.probe", "measure.graft", "measure.calibrate",
)  # fmt: skip


def dotted(name: str) -> str:
    """The module of a file in ``src/``."""
    return name.removeprefix("src/").removesuffix(".py").replace("/", ".")


def of_others(kind: str) -> tuple[str, ...]:
    """Beginnings of what only jobs in other worlds load; worlds may share a dialect."""
    return tuple({begin for begins in closure.WORLDS.values() for begin in begins} - {*closure.WORLDS[kind]})


@pytest.mark.parametrize("stage", WORLD_STAGES)
def test_a_job_rests_on_its_own_world_and_on_no_other(stage: str) -> None:
    every = set(closure.digests(stage))
    for kind in closure.WORLDS:
        own = set(closure.digests(stage, world=kind))
        begins = of_others(kind)
        others = {name for name in every if f"{dotted(name)}.".startswith(begins)}
        assert others, "without a kind both are followed"
        assert own == every - others
        assert any(f"/worlds/{kind}/" in name for name in own)
        assert "src/headroom/worlds/open.py" in own
        assert "src/headroom/agent/text_game.py" not in own or kind != "miniwob"
        assert not [name for name in own for other in closure.WORLDS if other != kind and f"/worlds/{other}/" in name]


@pytest.mark.parametrize(
    "stage", ["train.sft", "measure.rank", "measure.contrast", "measure.failures", "measure.mechanism",
              "measure.dark_room", "present.gate", "present.dark_room", "present.claims"],
)  # fmt: skip
def test_a_job_whose_settings_name_no_world_rests_on_none(stage: str) -> None:
    assert not [name for name in closure.digests(stage) if any(f"/worlds/{kind}/" in name for kind in closure.WORLDS)]


@pytest.mark.parametrize("kind", sorted(closure.WORLDS))
def test_what_a_closure_leaves_out_is_not_loaded(kind: str) -> None:
    """By any stage, before it opens its world: that it opens no other is what ``headroom.worlds.open`` is for."""
    others = of_others(kind)
    script = (
        f"import sys, {', '.join(f'headroom.{stage}' for stage in (*WORLD_STAGES, 'train.sft'))}\n"
        f"print(*[name for name in sys.modules if f'{{name}}.'.startswith({others!r})])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_kind_of_a_world_is_read_from_a_jobs_settings() -> None:
    assert closure.world_of({"world": {"kind": "alfworld"}}) == "alfworld"
    assert closure.world_of({"world": {"kind": "hidden_rule"}}) == "hidden_rule"
    assert closure.world_of({"dialect": "text game"}) == "alfworld"
    assert closure.world_of({"dialect": "hidden rule"}) == "hidden_rule"
    for other in ({}, {"dialect": "klingon"}, {"world": None}, {"world": {"kind": "mars"}}, None, [], {"world": {}}):
        assert closure.world_of(other) is None


def test_a_job_that_names_a_dialect_alone_has_the_sources_of_its_world() -> None:
    for dialect, kind in closure.DIALECTS.items():
        alone = closure.digests("train.sft", world=closure.world_of({"dialect": dialect}))
        assert alone == closure.digests("train.sft", world=kind)
        assert ("src/headroom/agent/text_game.py" in alone) == (kind != "miniwob")


def test_the_kinds_are_those_that_settings_know() -> None:
    from typing import get_args

    from headroom.config.worlds import WorldSettings

    union, _ = get_args(WorldSettings)
    assert {model().kind for model in get_args(union)} == set(closure.WORLDS)


def test_the_list_of_a_stage_is_of_its_jobs_world(tmp_path: Path) -> None:
    package(
        tmp_path,
        a="import headroom.worlds.open",
        worlds__open="def f():\n    import headroom.worlds.miniwob.x\n    import headroom.worlds.alfworld.x\n",
        worlds__miniwob__x="", worlds__alfworld__x="",
    )  # fmt: skip
    lists = closure.Lists(tmp_path, "lists", {"a": "alfworld"})
    text = (tmp_path / lists.sources("a")).read_text()
    assert "worlds/alfworld/x.py" in text
    assert "worlds/miniwob" not in text
