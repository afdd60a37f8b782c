"""Peak memory of a graft, and of a random control, beside the size of the largest shard that it reads.

Two checkpoints of two shards each are written from noise; the graft runs in a process of its own, whose peak resident
memory is all of it, interpreter and libraries included. Writes ``graft_memory.json`` beside this file.

    python benchmarks/graft_memory.py [MEGABYTES OF THE LARGEST SHARD]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from headroom.files import write_json

WIDTH = 1024
_RUN = (
    "import json, re, sys, time; from pathlib import Path; from headroom.measure.graft_build import build; "
    "build(Path(sys.argv[1]), Path(sys.argv[2]), ['mlp'], Path(sys.argv[3]), control_draw=json.loads(sys.argv[4])); "
    # not ru_maxrss, which a child inherits from its parent
    "print(1024 * int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]), "
    "round(time.process_time(), 2))"
)


def write_checkpoint(folder: Path, seed: int, largest: int) -> None:
    """A two-shard checkpoint of float32 noise: an embedding and one block; the larger shard has ``largest`` bytes."""
    folder.mkdir()
    rows = largest // (4 * WIDTH)
    embedding: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (rows // 2, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    block: dict[str, tuple[int, ...]] = {
        "model.layers.0.mlp.up_proj.weight": (rows // 2, WIDTH),
        "model.layers.0.mlp.down_proj.weight": (WIDTH, rows // 4),
        "model.layers.0.self_attn.q_proj.weight": (rows // 4, WIDTH),
    }
    mapping = {}
    rng = np.random.default_rng(seed)
    for number, shapes in enumerate((embedding, block), start=1):
        name = f"model-{number:05d}-of-00002.safetensors"
        header: dict[str, dict[str, object]] = {}
        position = 0
        for tensor, shape in shapes.items():
            size = 4 * int(np.prod(shape))
            header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [position, position + size]}
            position += size
            mapping[tensor] = name
        body = json.dumps(header).encode()
        body += b" " * (-len(body) % 8)
        with (folder / name).open("wb") as stream:
            stream.write(len(body).to_bytes(8, "little") + body)
            for shape in shapes.values():
                for first in range(0, shape[0], 4096):
                    count = min(4096, shape[0] - first)
                    stream.write(rng.standard_normal((count, *shape[1:]), dtype=np.float32).tobytes())
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": mapping}))


def peak(folder: Path, control: int | None) -> dict[str, float]:
    """Peak resident bytes and CPU seconds of one graft in a fresh process."""
    output = folder / ("graft" if control is None else "control")
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(folder / "base"), str(folder / "donor"), str(output), json.dumps(control)],
        capture_output=True,
        text=True,
        check=True,
    )
    bytes_, seconds = done.stdout.split()
    return {"peak_bytes": int(bytes_), "cpu_seconds": float(seconds)}


def measure(megabytes: int) -> dict[str, object]:
    """Peaks of a graft and of a control, and their ratio to the largest shard."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, seed in (("base", 0), ("donor", 1)):
            write_checkpoint(folder / side, seed, megabytes * 1_000_000)
        shard = max(path.stat().st_size for path in (folder / "donor").glob("*.safetensors"))
        found: dict[str, object] = {"largest_shard_bytes": shard}
        for kind, control in (("graft", None), ("control", 0)):
            result = peak(folder, control)
            found[kind] = result | {"peak_over_largest_shard": result["peak_bytes"] / shard}
    return found


def main() -> None:
    """Measure, print and write."""
    found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
    print(json.dumps(found, indent=2))
    write_json(Path(__file__).with_suffix(".json"), found)


if __name__ == "__main__":
    main()
