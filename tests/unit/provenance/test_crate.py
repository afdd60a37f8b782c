"""The RO-Crate says what the records say, holds what the whitelist allows, and passes the validator of its profiles."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import rocrate
from typer.testing import CliRunner

from headroom.cli import app
from headroom.provenance import crate
from headroom.provenance.walk import Project, walk_files

PROJECT = Path(__file__).parents[3]
VALIDATOR = PROJECT / ".tools/rocrate-validator/bin/rocrate-validator"


@pytest.fixture
def made(folder: Path, tmp_path: Path) -> Path:
    (folder / "LICENSE").write_text("MIT")
    crate.export(Project(folder), "smoke", "evals", tmp_path / "crate")
    return tmp_path / "crate"


def entities(made: Path) -> dict[str, dict]:
    return {item["@id"]: item for item in json.loads((made / "ro-crate-metadata.json").read_text())["@graph"]}


def of_type(made: Path, kind: str) -> list[dict]:
    return [item for item in entities(made).values() if kind in (item["@type"], *item["@type"])]


def test_every_run_is_an_action_with_its_tool_inputs_and_results(made: Path, folder: Path) -> None:
    nodes = Project(folder).records("smoke")
    found = entities(made)
    assert len(of_type(made, "CreateAction")) == len(nodes) + 1
    for node in nodes:
        action = found[f"#run-{node.run.attempt}"]
        assert found[action["instrument"]["@id"]]
        results = action["result"] if isinstance(action["result"], list) else [action["result"]]
        named = {found[item["@id"]]["name"]: found[item["@id"]]["sha256"] for item in results}
        assert named == dict(zip(node.files(), (entry.sha256 for entry in node.run.outputs.values()), strict=True))
    run = next(node for node in nodes if node.name == "results/smoke/grpo/grid-05").run
    seeds = {found[item["@id"]]["name"] for item in found[f"#run-{run.attempt}"]["object"]}
    assert "seed grpo" in seeds
    assert "results/smoke/select/task_sets.json" in seeds


def test_the_figure_can_be_followed_back_to_the_demonstrations_through_the_crate_alone(made: Path) -> None:
    found = entities(made)
    made_by = {}
    for action in of_type(made, "CreateAction"):
        for item in [action["result"]] if isinstance(action["result"], dict) else action["result"]:
            if action["@id"] != "#study":
                made_by[item["@id"]] = action
    waiting, seen = ["figures/smoke/gate.pdf"], set()
    while waiting:
        action = made_by.get(waiting.pop())
        if action and action["@id"] not in seen:
            seen.add(action["@id"])
            inputs = action.get("object", [])
            waiting += [item["@id"] for item in ([inputs] if isinstance(inputs, dict) else inputs)]
    stages = {found[name]["name"].partition(":")[0] for name in seen}
    assert {"present.gate", "measure.contrast", "train.grpo", "train.sft", "train.demonstrations"} <= stages


def test_only_what_the_whitelist_names_goes_in(folder: Path, tmp_path: Path) -> None:
    for name in (".env", ".git/config", "id_rsa", "results/smoke/logs/a.log", "notes.txt", "workflow/data/.secret"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("secret")
    crate.export(Project(folder), "smoke", "tables", tmp_path / "crate")
    inside = {path.relative_to(tmp_path / "crate").as_posix() for path in walk_files(tmp_path / "crate")}
    assert not {name for name in inside if "secret" in (tmp_path / "crate" / name).read_text(errors="replace")}
    assert inside - {"ro-crate-metadata.json"} == set(
        crate.whitelist(Project(folder), "smoke", "tables", Project(folder).records("smoke"))
    )
    assert not [name for name in inside if name.endswith((".parquet", ".safetensors"))]


def test_a_file_that_is_not_inside_is_named_with_its_digest(made: Path, folder: Path) -> None:
    outside = [item for item in entities(made).values() if item.get("description") == "not in this crate"]
    weights = Project(folder).hasher.entry(folder / "results/smoke/sft/sft/checkpoint/model.safetensors")
    assert weights.sha256 in {item["sha256"] for item in outside}


def test_nothing_is_written_where_a_secret_or_a_wrong_byte_is(folder: Path, tmp_path: Path) -> None:
    (folder / "config.yaml").write_text("token: hf_" + "a" * 34)
    with pytest.raises(ValueError, match=r"results/smoke|config\.yaml: holds"):
        crate.export(Project(folder), "smoke", "tables", tmp_path / "crate")
    (folder / "config.yaml").unlink()
    (folder / "results/smoke/contrast/contrasts.csv").write_text("x")
    with pytest.raises(ValueError, match=r"changed: results/smoke/contrast/contrasts\.csv"):
        crate.export(Project(folder), "smoke", "tables", tmp_path / "crate")
    assert not (tmp_path / "crate").exists()


def test_a_folder_with_something_in_it_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("x")
    done = CliRunner().invoke(app, ["crate", "--scale", "smoke", "--output", str(tmp_path / "full")])
    assert done.exit_code == 1
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


WARM = """
import io, sys
import requests
from requests_cache import CachedSession
from urllib3 import HTTPResponse

body = open(sys.argv[2], "rb").read()

class Adapter(requests.adapters.BaseAdapter):
    def send(self, request, **_):
        kind = {"Content-Type": "application/ld+json"}
        made = requests.Response()
        made.status_code, made.url, made.request, made._content = 200, request.url, request, body
        made.headers.update(kind)
        made.raw = HTTPResponse(body=io.BytesIO(body), status=200, headers=kind, preload_content=False)
        return made
    def close(self):
        pass

session = CachedSession(cache_name=sys.argv[1], backend="sqlite", expire_after=-1)
session.mount("https://", Adapter())
for headers in ({"Accept": "application/ld+json, application/json"}, {}):
    session.get("https://w3id.org/ro/crate/1.1/context", headers=headers)
"""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The JSON-LD context of RO-Crate 1.1 in the validator's cache, so that no network is needed.

    It is the context 1.3 that the library brings, with the one term that we use and that had another address in 1.1.
    """
    folder = tmp_path_factory.mktemp("context")
    content = json.loads((Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_text())
    content["@context"]["ComputationalWorkflow"] = "https://bioschemas.org/ComputationalWorkflow"
    (folder / "context.json").write_text(json.dumps(content))
    python = VALIDATOR.with_name("python")
    subprocess.run([python, "-c", WARM, folder / "cache", folder / "context.json"], check=True)
    return folder / "cache"


def validate(made: Path, profile: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [VALIDATOR, "-y", "--disable-color", "validate", "--offline", "--cache-path", cache, "--no-paging",
         "-l", "required", "-p", profile, made],
        capture_output=True, text=True,
    )  # fmt: skip


installed = pytest.mark.skipif(not VALIDATOR.is_file(), reason="roc-validator is not in .tools/; .ci/run installs it")


@installed
@pytest.mark.slow
@pytest.mark.parametrize("profile", ["process-run-crate", "workflow-run-crate", "provenance-run-crate"])
def test_the_crate_passes_the_validator(made: Path, profile: str, context: Path) -> None:
    done = validate(made, profile, context)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "is a valid" in done.stdout


@installed
@pytest.mark.slow
def test_the_validator_would_notice_a_step_without_a_tool(made: Path, context: Path) -> None:
    path = made / "ro-crate-metadata.json"
    content = json.loads(path.read_text())
    next(item for item in content["@graph"] if item["@type"] == "HowToStep").pop("workExample")
    path.write_text(json.dumps(content))
    assert validate(made, "provenance-run-crate", context).returncode != 0
