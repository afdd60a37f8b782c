"""What setup.sh does on machines unlike this one: a PATH of named stand-ins, the script itself is the real one."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
TOOLS = (
    "bash", "cat", "sha256sum", "cut", "grep", "timeout", "realpath", "ln", "mkdir", "find", "sort", "tail", "dirname",
    "rm", "sh",
)  # fmt: skip
BROWSER = "#!/bin/sh\necho stand-in browser\n"


class Machine:
    """A folder with the script, a finished .venv, and no more on the PATH than a user without rights finds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder / "project", folder / "bin"
        self.path.mkdir(parents=True)
        self.folder.mkdir()
        for name in ("setup.sh", "pyproject.toml"):
            shutil.copy2(PROJECT / name, self.folder / name)
        shutil.copytree(PROJECT / "requirements", self.folder / "requirements")
        package = self.folder / "src/headroom/worlds/miniwob"
        package.mkdir(parents=True)
        for name in ("", "worlds", "worlds/miniwob"):
            shutil.copy2(PROJECT / "src/headroom" / name / "__init__.py", self.folder / "src/headroom" / name)
        shutil.copy2(PROJECT / "src/headroom/worlds/miniwob/chromium.py", package)
        for name in TOOLS:
            found = shutil.which(name)
            assert found, name
            (self.path / name).symlink_to(os.path.realpath(found))
        self.stand_in("id", "#!/bin/sh\necho 1000\n")

    def stand_in(self, name: str, script: str) -> None:
        path = self.path / name
        path.write_text(script)
        path.chmod(0o755)

    def finished_environment(self) -> None:
        python = self.folder / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{self.folder}/src" exec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        locked = (self.folder / "requirements/main.txt").read_bytes() + (self.folder / "pyproject.toml").read_bytes()
        (self.folder / ".venv/.locks").write_text(hashlib.sha256(locked).hexdigest() + "\n")

    def setup(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.path / "bash"), "setup.sh", *options],
            cwd=self.folder, capture_output=True, text=True, timeout=120,
            env={"PATH": str(self.path), "HOME": str(self.folder.parent), **environment},
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_any_way_to_a_browser_it_says_exactly_what_to_type(machine: Machine) -> None:
    machine.finished_environment()
    done = machine.setup()
    assert done.returncode == 1
    assert "sudo apt-get install chromium-headless-shell" in done.stderr
    assert "export HEADROOM_CHROMIUM=" in done.stderr
    assert "ready" not in done.stdout


def test_without_root_a_browser_comes_from_npm_into_the_project(machine: Machine) -> None:
    machine.finished_environment()
    unpacked = machine.folder.parent / "unpacked chromium"
    unpacked.write_text(BROWSER)
    unpacked.chmod(0o755)
    machine.stand_in("npm", "#!/bin/sh\nexit 0\n")
    machine.stand_in("node", f'#!/bin/sh\necho "{unpacked}"\n')
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert (machine.folder / ".tools/bin/chromium-headless-shell").resolve() == unpacked.resolve()
    assert done.stdout.strip().endswith("setup: ready")


def test_playwright_is_asked_before_npm_and_its_browser_stays_in_the_project(machine: Machine) -> None:
    machine.finished_environment()
    machine.stand_in(
        "npx",
        '#!/bin/sh\nd="$PLAYWRIGHT_BROWSERS_PATH/chromium_headless_shell-1/chrome-linux"\nmkdir -p "$d"\n'
        f"printf '{BROWSER.encode('unicode_escape').decode()}' > \"$d/headless_shell\"\n"
        'PATH=/usr/bin:/bin chmod +x "$d/headless_shell"\n',
    )
    asked = machine.folder.parent / "npm was asked"
    machine.stand_in("npm", f'#!/bin/sh\n: > "{asked}"\nexit 1\n')
    machine.stand_in("node", "#!/bin/sh\nexit 1\n")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    linked = (machine.folder / ".tools/bin/chromium-headless-shell").resolve()
    assert linked.is_relative_to(machine.folder / ".tools/playwright")
    assert not asked.exists()


def test_a_browser_that_was_named_and_does_not_start_is_never_replaced_in_silence(machine: Machine) -> None:
    machine.finished_environment()
    done = machine.setup(HEADROOM_CHROMIUM="/nowhere/chrome")
    assert done.returncode == 1
    assert "HEADROOM_CHROMIUM=/nowhere/chrome does not start" in done.stderr


def test_a_browser_on_the_path_is_taken_and_nothing_is_installed(machine: Machine) -> None:
    machine.finished_environment()
    machine.stand_in("chromium-headless-shell", BROWSER)
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert f"chromium: {machine.path}/chromium-headless-shell" in done.stdout


def test_without_python_3_11_it_says_where_to_get_one(machine: Machine) -> None:
    done = machine.setup()
    assert done.returncode == 1
    assert "Python 3.11 was not found" in done.stderr
    assert "sudo apt-get install python3.11" in done.stderr


def test_without_python_3_11_uv_is_used_where_it_is(machine: Machine) -> None:
    machine.stand_in("uv", '#!/bin/sh\necho "uv $*"\nexit 3\n')
    done = machine.setup()
    assert "uv venv --quiet --seed --python 3.11 .venv" in done.stdout
    assert done.returncode == 3


def test_an_unknown_option_is_refused(machine: Machine) -> None:
    done = machine.setup("--everything")
    assert done.returncode == 1
    assert "unknown option --everything" in done.stderr


PLANNER = "fast_downward_textworld-20.6.4-py3-none-any.whl"


def alfworld(machine: Machine) -> Path:
    """A finished .venv whose pip notes what it is asked, and whose engine can be imported."""
    machine.finished_environment()
    asked = machine.folder.parent / "asked"
    python = machine.folder / ".venv/bin/python"
    machine.stand_in("touch", '#!/bin/sh\nPATH=/usr/bin:/bin exec touch "$@"\n')
    python.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *sys.version_info*) exit 0 ;; "-m pip"*) echo "$LDFLAGS $*" >>"{asked}" ;; esac\n'
        f'case "$*" in *" wheel "*) touch .tools/alfworld/{PLANNER} ;; esac\n'
    )
    return asked


def test_without_a_compiler_alfworlds_planner_is_not_begun(machine: Machine) -> None:
    asked = alfworld(machine)
    done = machine.setup("--alfworld")
    assert done.returncode == 1
    assert "ALFWorld's planner is built from source, and a C++ compiler or make is missing. Type:" in done.stderr
    assert "sudo apt-get install g++ make" in done.stderr
    assert not asked.exists()


def test_alfworlds_planner_is_built_once_and_the_engine_installed_beside_the_lock(machine: Machine) -> None:
    asked = alfworld(machine)
    machine.stand_in("c++", "#!/bin/sh\n")
    machine.stand_in("make", "#!/bin/sh\n")
    for _ in range(2):
        done = machine.setup("--alfworld")
        assert done.returncode == 0, done.stderr
    assert "ALFWorld's engine: as locked, nothing to do" in done.stdout
    (machine.folder / ".venv/.alfworld").unlink()
    (machine.path / "c++").unlink()
    assert machine.setup("--alfworld").returncode == 0
    built, *installed = asked.read_text().splitlines()
    assert built == "-s -m pip wheel -qq --no-deps -w .tools/alfworld fast-downward-textworld==20.6.4"
    install = "-m pip install -qq --no-deps --find-links .tools/alfworld -r requirements/alfworld.txt"
    assert [line.strip() for line in installed] == [install] * 2


def test_alfworlds_lock_names_nothing_that_the_main_lock_has() -> None:
    pins = [
        dict(
            line.split("==") for line in (PROJECT / f"requirements/{name}.txt").read_text().splitlines() if "==" in line
        )
        for name in ("alfworld", "main")
    ]
    assert pins[0]
    assert not pins[0].keys() & pins[1].keys()
