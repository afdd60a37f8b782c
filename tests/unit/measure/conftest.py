"""Tiny checkpoints on disk for the tests of weights, grafts, rank and drift."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> Callable:
    """make(seed, tied, layers, shards) -> (model, folder) of a small random Qwen3."""

    def make(seed: int, *, tied: bool = True, layers: int = 2, shards: bool = False, dtype: str = "float32", width=16):
        import torch
        from transformers import Qwen3Config, Qwen3ForCausalLM

        config = Qwen3Config(
            vocab_size=40,
            hidden_size=width,
            intermediate_size=24,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            tie_word_embeddings=tied,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Qwen3ForCausalLM(config).to(getattr(torch, dtype))
        with torch.no_grad():  # norms start at 1 and the pad row at 0: moved, so that seeds differ everywhere
            for name, parameter in model.named_parameters():
                if "norm" in name or "embed" in name:
                    noise = torch.rand(parameter.shape, generator=torch.Generator().manual_seed(seed + 1))
                    parameter.add_(0.1 * noise.to(parameter.dtype))
        folder = tmp_path / f"seed{seed}-{tied}-{layers}-{shards}-{dtype}-{width}"
        model.save_pretrained(folder, max_shard_size="6KB" if shards else "1GB")
        (folder / "agent.json").write_text('{"dialect": "web pages"}')
        return model.eval(), folder

    return make


@pytest.fixture
def store_tied_head() -> Callable:
    """Write the tied head into the file as well, as some libraries do."""

    def store(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True

    return store
