"""A Qwen3 from configuration, small enough to learn the pages from scratch in seconds of CPU time.

The architecture is the one of the released checkpoints (arXiv 2505.09388), only its numbers are small; the saved
folder loads in plain ``AutoModelForCausalLM``.
"""

from __future__ import annotations

from typing import Any

import torch

from headroom.config.models import TinyModel
from headroom.policy.decoder import Decoder, architecture
from headroom.seeds import derive


def tiny_config(model: TinyModel, *, vocabulary: int, pad_id: int, end_ids: tuple[int, ...]) -> dict[str, Any]:
    """The content of ``config.json`` of a tiny model.

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
    return {
        "architectures": [architecture("qwen3")],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dtype": "float32",
        "head_dim": model.head_width,
        "hidden_act": "silu",
        "hidden_size": model.width,
        "initializer_range": model.initial_std,
        "intermediate_size": model.feed_forward,
        "max_position_embeddings": model.context,
        "model_type": "qwen3",
        "num_attention_heads": model.heads,
        "num_hidden_layers": model.layers,
        "num_key_value_heads": model.key_value_heads,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": model.rope_base, "rope_type": "default"},
        "tie_word_embeddings": model.tied_embeddings,
        "use_sliding_window": False,
        "vocab_size": vocabulary,
        "bos_token_id": None,
        "eos_token_id": _one_or_all(end_ids),
        "pad_token_id": pad_id,
    }


def tiny_model(model: TinyModel, *, vocabulary: int, pad_id: int, end_ids: tuple[int, ...], seed: int) -> Decoder:
    """A freshly initialised float32 model; equal arguments give equal weights, whatever the global random state.

    Matrices are normal with deviation ``model.initial_std``, norms are 1.
    """
    config = tiny_config(model, vocabulary=vocabulary, pad_id=pad_id, end_ids=end_ids)
    decoder = Decoder(config, {"eos_token_id": _one_or_all(end_ids), "pad_token_id": pad_id})
    generator = torch.Generator().manual_seed(derive("tiny model", seed))
    with torch.no_grad():
        for parameter in decoder.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, model.initial_std, generator=generator)
            else:
                parameter.fill_(1.0)
    return decoder


def _one_or_all(end_ids: tuple[int, ...]) -> int | list[int]:
    return end_ids[0] if len(end_ids) == 1 else list(end_ids)
