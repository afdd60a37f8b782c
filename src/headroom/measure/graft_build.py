"""Write a graft as a checkpoint of its own: some parameter groups from a donor, the rest from a base.

Tensors stream from file to file in chunks of at most 2^20 elements; neither model is ever whole in memory. The
result has the base's files, headers and side files byte for byte, so that grafting nothing reproduces the base's
bytes and grafting everything reproduces the donor's (where both have one file layout). Everything is checked
before the first byte is written, and the folder appears whole or not at all.

    python -m headroom.measure.graft_build --base SFT --donor RL --group attention --group mlp --output DIR
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from headroom.agent.spoken import check_same_dialect, spoken
from headroom.measure import groups
from headroom.measure.adapted import with_shared_tower
from headroom.measure.edit import Edit, Swap, check_pair, delta_norm, edited, random_control
from headroom.measure.lora import is_adapter, write_adapter_graft
from headroom.measure.weights import Checkpoint, copy_side_files, new_folder, open_checkpoint
from headroom.seeds import derive


def write_graft(base: Checkpoint, donor: Checkpoint, edit: Edit, output: Path) -> None:
    """Write ``base`` with ``edit`` applied to the new folder ``output``.

    Raises:
        ValueError: the pair does not fit, or ``output`` exists and is not empty; nothing is written then.
    """
    check_pair(base, donor)
    if spoken(base.folder) is not None and spoken(donor.folder) is not None:  # a released model names none
        check_same_dialect(base.folder, donor.folder)
    check_tokenizers(base.folder, donor.folder)
    with new_folder(output) as part:
        for file in base.files:
            with (part / file.path.name).open("wb") as stream:
                stream.write(file.header)
                for tensor in file.tensors:
                    for chunk in edited(edit, base, donor, tensor.name):
                        stream.write(chunk)
                stream.flush()
                os.fsync(stream.fileno())
        copy_side_files(base, part)


def check_tokenizers(base: Path, donor: Path) -> None:
    """Refuse a pair whose tokenizers give other ids to the same text: rows of the embedding would change meaning.

    Raises:
        ValueError: vocabulary or added tokens differ.
    """
    ours, theirs = base / "tokenizer.json", donor / "tokenizer.json"
    if ours.exists() and theirs.exists() and ours.read_bytes() != theirs.read_bytes():
        left, right = json.loads(ours.read_bytes()), json.loads(theirs.read_bytes())
        for part in ("model", "added_tokens"):
            if left.get(part) != right.get(part):
                raise ValueError(f"{theirs}: {part} differs from {ours}; this is not a pair of one run")


def build(
    base: Path, donor: Path, names: list[str], output: Path, *, bands: int = 3, control_draw: int | None = None
) -> dict[str, object]:
    """Build one graft or, with ``control_draw``, the size-matched random control of it.

    Returns:
        What was made: groups, parameters, delta_norm and, for a control, its scale.

    Raises:
        ValueError: one line that names the file and the tensor; nothing is written.
    """
    if not names:
        raise ValueError("no parameter group is named: a graft needs at least one")
    if is_adapter(donor) and not is_adapter(base):
        if control_draw is not None:
            raise ValueError(f"{donor}: a control needs two full checkpoints; merge a copy of the adapter first")
        return write_adapter_graft(donor, names, output, bands=bands)
    ours, theirs = open_checkpoint(base), open_checkpoint(donor)
    check_pair(ours, theirs)
    theirs = with_shared_tower(ours, theirs)
    chosen = groups.select(ours, names, bands)
    norm = delta_norm(ours, theirs, chosen)
    count = groups.parameter_count(ours, chosen)
    made: dict[str, object] = {"groups": names, "parameters": count, "delta_norm": norm}
    edit: Edit = Swap(chosen)
    if control_draw is not None:
        seed = derive("graft control", "+".join(sorted(names)), control_draw)
        edit = random_control(ours, theirs, parameters=count, norm=norm, seed=seed)
        made["scale"] = edit.scale
    write_graft(ours, theirs, edit, output)
    return made


def main(
    base: Annotated[Path, typer.Option(help="Checkpoint that gives everything that is not grafted.")],
    donor: Annotated[Path, typer.Option(help="Checkpoint (or LoRA adapter) that gives the groups.")],
    output: Annotated[Path, typer.Option(help="New folder for the graft.")],
    group: Annotated[list[str], typer.Option(help="Parameter group; repeat for a union.")],
    bands: Annotated[int, typer.Option(min=1, help="Number of depth bands.")] = 3,
    control: Annotated[int | None, typer.Option(min=0, help="Write this draw of the random control instead.")] = None,
) -> None:
    """Graft parameter groups of one checkpoint into another, tensor by tensor."""
    try:
        made = build(base, donor, group, output, bands=bands, control_draw=control)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    typer.echo(json.dumps(made, sort_keys=True))


if __name__ == "__main__":
    typer.run(main)
