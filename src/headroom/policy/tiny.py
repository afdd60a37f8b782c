"""A Qwen3 from configuration, small enough to learn the pages from scratch in seconds of CPU time.

The architecture is the one of the released checkpoints (arXiv 2505.09388), only its numbers are small; the saved
folder loads in plain ``AutoModelForCausalLM``. Initial weights come from an explicit seed and leave the global
random state as it was.
"""

from __future__ import annotations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from headroom.config.models import TinyModel
from headroom.seeds import derive


def tiny_config(model: TinyModel, *, vocabulary: int, pad_id: int, end_ids: tuple[int, ...]) -> Qwen3Config:
    """The Hugging Face configuration of a tiny model.

    Raises:
        ValueError: the heads cannot be grouped, or an id lies outside the vocabulary.
    """
    if model.heads % model.key_value_heads:
        msg = f"model.key_value_heads ({model.key_value_heads}) must divide model.heads ({model.heads})"
        raise ValueError(msg)
    outside = [token for token in (pad_id, *end_ids) if not 0 <= token < vocabulary]
    if outside or not end_ids:
        msg = f"pad and end ids must lie in the vocabulary of {vocabulary} tokens; got pad {pad_id}, end {end_ids}"
        raise ValueError(msg)
    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=model.width,
        intermediate_size=model.feed_forward,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.key_value_heads,
        head_dim=model.head_width,
        max_position_embeddings=model.context,
        rope_parameters={"rope_type": "default", "rope_theta": model.rope_base},
        tie_word_embeddings=model.tied_embeddings,
        use_sliding_window=False,
        pad_token_id=pad_id,
        bos_token_id=None,
        eos_token_id=end_ids[0] if len(end_ids) == 1 else list(end_ids),
        dtype="float32",
    )


def tiny_model(
    model: TinyModel, *, vocabulary: int, pad_id: int, end_ids: tuple[int, ...], seed: int
) -> Qwen3ForCausalLM:
    """A freshly initialised float32 model; equal arguments give equal weights."""
    config = tiny_config(model, vocabulary=vocabulary, pad_id=pad_id, end_ids=end_ids)
    config._attn_implementation = "sdpa"
    with torch.random.fork_rng(devices=[]):  # transformers initialises from the global generator
        torch.manual_seed(derive("tiny model", seed) % 2**63)
        return Qwen3ForCausalLM(config)
