"""Write ``envs/apptainer.def``, the definition of one image that holds the environment of every rule.

    python tools/container.py [--check]

It is what ``snakemake --containerize apptainer`` prints for a workflow with one rule an environment: the project's own
workflow lacks the rule ``released`` where there is no release, and so its environment. Snakemake looks an environment
up in the image by the digest of its file, so the definition is made anew whenever an environment changes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# Written by tools/container.py from envs/. UNVERIFIED: nobody has built this image or run the study in it.
# Build it in the project's folder: apptainer build headroom.sif envs/apptainer.def
# It holds no browser: bind a Chromium into it, and name it in HEADROOM_CHROMIUM.
"""

ANSWERS = """\
#!/bin/sh
# All that Snakemake asks of conda before it prints: which platform the image is for. No conda has to be here.
case "$1" in
    --version) echo "conda 24.7.1" ;;
    info) echo '{"conda_prefix": "/opt/conda", "platform": "linux-64"}' ;;
    config) echo '{"get": {"channel_priority": "strict"}}' ;;
    *) exit 1 ;;
esac
"""


def definition() -> str:
    """The text of the definition.

    Raises:
        SystemExit: Snakemake cannot make it; its own words say why.
    """
    # Without those of other worlds: ALFWorld's planner is under the GPL and built where it is used, never handed on.
    kinds = sorted(path.stem for path in (ROOT / "envs").glob("*.yaml") if "-" not in path.stem)
    with tempfile.TemporaryDirectory() as folder:
        workflow = Path(folder, "Snakefile")
        workflow.write_text(
            "".join(
                f'rule {kind}:\n    output: "{folder}/{kind}"\n'
                f'    conda: "{ROOT}/envs/{kind}.yaml"\n    shell: "exit 1"\n'
                for kind in kinds
            ),
            encoding="utf-8",
        )
        conda = Path(folder, "bin/conda")
        conda.parent.mkdir()
        conda.write_text(ANSWERS, encoding="utf-8")
        conda.chmod(0o755)
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(workflow), "--containerize", "apptainer"]
        variables = {**os.environ, "PATH": os.pathsep.join([str(conda.parent), os.environ["PATH"]])}
        done = subprocess.run(  # noqa: S603
            [*command, "--nolock"], cwd=ROOT, env=variables, capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(f"container: snakemake --containerize failed\n{done.stderr}")
    return HEAD + done.stdout


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    path, text = ROOT / "envs/apptainer.def", definition()
    if parser.parse_args().check:
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        sys.exit(0 if same else "envs/apptainer.def is not of these environments; type: python tools/container.py")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
