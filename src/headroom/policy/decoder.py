"""A plain decoder with the parameter names of ``transformers``, for checkpoints of the Llama and Qwen families.

Why not the library's class: importing its model code takes about two seconds of CPU time, more than evaluating a
tiny policy, and the study starts some eighty jobs. A folder written here loads in ``AutoModelForCausalLM`` with equal
logits, and the reverse (held by tests). What this class does not know (scaled RoPE, another activation, dropout)
``headroom.policy.load`` leaves to the library.

Architecture: pre-norm blocks with RMSNorm (arXiv 1910.07467), rotary positions (2104.09864), grouped-query attention
(2305.13245) and SwiGLU (2002.05202); Qwen3 adds a norm on queries and keys (2505.09388). The order of execution is in
``headroom.policy.forward``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from headroom.files import write_json
from headroom.policy.files import GENERATION, WEIGHTS, weight_files

_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


class Linear(nn.Linear):
    """Without initial weights: they come from a file or from a seed, never from the global random state."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class Embedding(nn.Embedding):
    """Without initial weights, likewise."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class RmsNorm(nn.Module):
    """Root mean square norm over the last axis, in float32 at least."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        wide = hidden if hidden.dtype == torch.float64 else hidden.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return self.weight * normed.to(hidden.dtype)


class Rotary:
    """Tables of the rotary embedding."""

    def __init__(self, width: int, base: float) -> None:
        self.width, self.base = width, base

    def __call__(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine, (..., width) in the dtype of ``hidden``, of int64 positions (...)."""
        exponents = torch.arange(0, self.width, 2, device=positions.device, dtype=torch.float32) / self.width
        angles = positions[..., None].float() * (1.0 / self.base**exponents)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype)


class Attention(nn.Module):
    """The projections of one attention; ``headroom.policy.forward`` puts them together."""

    def __init__(self, config: Mapping[str, Any], width: int, head_width: int) -> None:
        super().__init__()
        kind = config["model_type"]
        bias = kind == "qwen2" or bool(config.get("attention_bias", False))  # Qwen2's is not configurable
        heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = head_width
        self.q_proj = Linear(width, heads * head_width, bias=bias)
        self.k_proj = Linear(width, shared * head_width, bias=bias)
        self.v_proj = Linear(width, shared * head_width, bias=bias)
        self.o_proj = Linear(heads * head_width, width, bias=bias and kind != "qwen2")
        if kind == "qwen3":
            self.q_norm = RmsNorm(head_width, config["rms_norm_eps"])
            self.k_norm = RmsNorm(head_width, config["rms_norm_eps"])


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, inner: int, bias: bool) -> None:
        super().__init__()
        self.gate_proj = Linear(width, inner, bias=bias)
        self.up_proj = Linear(width, inner, bias=bias)
        self.down_proj = Linear(inner, width, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return out


class Layer(nn.Module):
    """One block."""

    def __init__(self, config: Mapping[str, Any], width: int, head_width: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, width, head_width)
        self.mlp = FeedForward(width, config["intermediate_size"], bool(config.get("mlp_bias", False)))
        self.input_layernorm = RmsNorm(width, config["rms_norm_eps"])
        self.post_attention_layernorm = RmsNorm(width, config["rms_norm_eps"])


class Body(nn.Module):
    """Everything below the output layer."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config["hidden_size"]
        head_width = config.get("head_dim") or width // config["num_attention_heads"]
        self.embed_tokens = Embedding(config["vocab_size"], width)
        self.layers = nn.ModuleList(Layer(config, width, head_width) for _ in range(config["num_hidden_layers"]))
        self.norm = RmsNorm(width, config["rms_norm_eps"])
        self.rotary_emb = Rotary(head_width, _rope_base(config))


class Decoder(nn.Module):
    """A causal language model; ``config`` is the content of its ``config.json``. Its weights start undefined."""

    def __init__(self, config: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.config, self.generation = dict(config), dict(generation or {})
        self.model = Body(config)
        self.lm_head = Linear(config["hidden_size"], config["vocab_size"], bias=False)
        self.tie()

    def tie(self) -> None:
        """Make the output matrix the embedding where the configuration says so (again, after new weights came in)."""
        if self.config.get("tie_word_embeddings", False):
            self.lm_head.weight = self.model.embed_tokens.weight

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.lm_head.weight.dtype

    @property
    def device(self) -> torch.device:
        """Of the weights."""
        return self.lm_head.weight.device

    def save_pretrained(self, folder: str) -> None:
        """Write the configurations and the weights, tied ones once; equal models give equal bytes."""
        path = Path(folder)
        write_json(path / "config.json", self.config | {"dtype": str(self.dtype).removeprefix("torch.")})
        if self.generation:
            write_json(path / GENERATION, self.generation)
        tensors = {name: parameter.detach().contiguous() for name, parameter in self.named_parameters()}
        save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})


def known(config: Mapping[str, Any]) -> bool:
    """Whether :class:`Decoder` computes what ``config`` says, all of it."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return (
        config.get("model_type") in _CLASSES
        and rope.get("rope_type", rope.get("type", "default")) == "default"
        and config.get("hidden_act", "silu") == "silu"
        and not config.get("attention_dropout")
        and not config.get("use_sliding_window")
        and {"num_key_value_heads", "rms_norm_eps", "intermediate_size"} <= config.keys()
        and (config["model_type"] != "qwen3" or "head_dim" in config)
    )


def architecture(model_type: str) -> str:
    """The class of ``transformers`` that reads the same weights."""
    return _CLASSES[model_type]


def read_decoder(folder: Path, config: Mapping[str, Any], dtype: torch.dtype) -> Decoder:
    """Build the decoder of a checkpoint folder that ``check_checkpoint`` has passed.

    Raises:
        ValueError: the weights do not fit ``config.json``; the message names the first that does not.
    """
    generation = folder / GENERATION
    extra = json.loads(generation.read_text(encoding="utf-8")) if generation.is_file() else None
    model = Decoder(config, extra)
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        tensors |= load_file(path)
    wanted = {name: parameter.shape for name, parameter in model.named_parameters()}
    wrong = sorted(name for name, shape in wanted.items() if name not in tensors or tensors[name].shape != shape)
    extra_names = sorted(tensors.keys() - wanted.keys() - {"lm_head.weight"} - _not_parameters(tensors))
    if wrong or extra_names:
        first = (wrong or extra_names)[0]
        raise ValueError(
            f"{folder / 'config.json'}: does not fit the weights ({first} is missing, of another shape or unexpected); "
            "the files belong to two different checkpoints"
        )
    # A copy, so that no weight is a view of a file that may be replaced.
    model.load_state_dict({name: tensors[name].to(dtype, copy=True) for name in wanted}, strict=False, assign=True)
    model.tie()
    return model


def _not_parameters(tensors: Mapping[str, Tensor]) -> set[str]:
    """Tables that old checkpoints of these families carry; they follow from the configuration."""
    return {name for name in tensors if name.endswith("rotary_emb.inv_freq")}


def _rope_base(config: Mapping[str, Any]) -> float:
    rope = config.get("rope_parameters") or {}
    return float(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
