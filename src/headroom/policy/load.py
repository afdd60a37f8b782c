"""Checkpoints in and out: a folder that plain ``transformers`` loads, plus what the codec needs."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from headroom.agent.codec import Codec, load_codec
from headroom.agent.dialect import Dialect
from headroom.config.models import PretrainedModel
from headroom.policy.decoder import known, read_decoder
from headroom.policy.files import check_checkpoint
from headroom.policy.vision import text_config

Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Policy:
    """A model in evaluation mode with the codec that reads and writes for it; ``path`` is where it came from."""

    model: Any
    codec: Codec
    path: Path


def load_policy(
    source: Path | PretrainedModel,
    dtype: Dtype | None = None,
    *,
    device: str | None = None,
    dialect: Dialect | None = None,
) -> Policy:
    """Load a checkpoint folder, or a released model.

    The folder is checked before torch reads a byte. ``dtype`` defaults to a released model's setting, else float32;
    ``device`` to the first GPU if there is one, else the CPU; ``dialect`` to the checkpoint's own. Nothing from the
    folder is executed.

    Raises:
        ValueError: the checkpoint cannot be used; one line with the file and the remedy.
    """
    context: int | None = None
    if isinstance(source, PretrainedModel):
        folder, context, dtype = _released(source), source.context, dtype or source.dtype
    else:
        folder = source
    config = check_checkpoint(folder)
    text = text_config(config)
    codec = load_codec(folder, context=context, positions=text.get("max_position_embeddings"), dialect=dialect)
    rows = int(text["vocab_size"])
    highest = max(codec.size - 1, codec.pad_id, *codec.end_ids)
    if highest >= rows:
        raise ValueError(
            f"{folder}: the tokenizer has id {highest}, the model only {rows} tokens; "
            "the files belong to two different checkpoints"
        )
    width = getattr(torch, dtype or "float32")
    if text is not config and not known(config):  # the library's class would train the vision tower, too
        raise ValueError(
            f"{folder / 'config.json'}: of {config['model_type']!r} only the released form is supported; text_config "
            "must have default rope_parameters, silu, head_dim, no dropout and no sliding window"
        )
    model: Any = read_decoder(folder, config, width) if known(config) else _read_with_library(folder, width)
    model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return Policy(model.eval(), codec, folder)


def save_policy(model: Any, codec: Codec, folder: Path) -> None:
    """Write a checkpoint folder whole or not at all; equal weights and codec give equal bytes.

    An older folder of that name is replaced.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    try:
        model.save_pretrained(str(part))
        codec.save(part)
        for path in sorted(part.rglob("*")):
            if path.is_file():
                path.chmod(0o644)
                with path.open("rb+") as stream:
                    os.fsync(stream.fileno())
        part.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _read_with_library(folder: Path, dtype: torch.dtype) -> Any:
    """The library's own class, for what :mod:`headroom.policy.decoder` does not know; imported only then."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    library: Any = transformers
    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    try:
        model, report = library.AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=dtype,
            attn_implementation="sdpa",
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # reported, and refused below with one line
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, StrictDataclassError) as error:
        raise ValueError(
            f"{folder}: cannot be loaded ({' '.join(str(error).split())[:200]}); copy the checkpoint again"
        ) from error
    mismatched = [key if isinstance(key, str) else key[0] for key in report["mismatched_keys"]]
    wrong = sorted([*report["missing_keys"], *mismatched])
    if wrong:
        raise ValueError(
            f"{folder / 'config.json'}: {len(wrong)} weights are missing or of another shape ({wrong[0]} ...); "
            "the files belong to two different checkpoints"
        )
    return model


def _released(model: PretrainedModel) -> Path:
    """The folder of a released model: the named folder itself, or the pinned snapshot of a hub repository."""
    folder = Path(model.name_or_path)
    if folder.is_dir():
        return folder
    if model.revision is None or len(model.revision) != 40:
        raise ValueError(
            f"model.name_or_path {model.name_or_path!r}: no such folder; for a hub name give model.revision, "
            "the full 40-digit commit, so that the weights cannot change"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        patterns = ["*.json", "*.safetensors", "*.txt", "*.jinja", "tokenizer.model"]
        return Path(snapshot_download(model.name_or_path, revision=model.revision, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise ValueError(f"model {model.name_or_path}@{model.revision}: cannot be fetched ({error})") from error
