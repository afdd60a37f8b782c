"""A plain decoder with the parameter names of ``transformers``, for checkpoints of the Llama and Qwen families.

Why not the library's class: importing its model code takes about two seconds of CPU time, more than evaluating a
tiny policy, and the study starts some eighty jobs. A folder written here loads in ``AutoModelForCausalLM`` with equal
logits, and the reverse (held by tests). What this class does not know (scaled RoPE, another activation, dropout)
``headroom.policy.load`` leaves to the library.

Architecture: pre-norm blocks with RMSNorm (arXiv 1910.07467), rotary positions (2104.09864), grouped-query attention
(2305.13245) and SwiGLU (2002.05202); Qwen3 adds a norm on queries and keys (2505.09388). The order of execution is in
``headroom.policy.forward``.

Of a Qwen3-VL (arXiv 2511.21631) this is the language part, a Qwen3. Its positions have three axes (time, height,
width) whose frequencies are interleaved; of text all three are equal, which makes them plain rotary positions, and the
features that images add to the first blocks are absent. The vision tower stays on disk (``headroom.policy.vision``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from headroom.files import write_json
from headroom.policy.files import GENERATION, INDEX, WEIGHTS, weight_files
from headroom.policy.forward import body_and_head
from headroom.policy.vision import LANGUAGE_FILE, PREFIX, VISION_FILE, carry, text_config

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}
_TEXT = {"qwen3_vl": "qwen3_vl_text"}
"""``model_type`` of the decoder inside, where it is another."""
_NORMED = ("qwen3", "qwen3_vl_text")
"""Those with a norm on queries and keys."""


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
        if kind in _NORMED:
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
        self.rotary_emb = Rotary(head_width, rope_base(config))


class LanguagePart(nn.Module):
    """What a Qwen3-VL holds beside its vision tower; here for the names of its parameters."""

    def __init__(self, text: Mapping[str, Any]) -> None:
        super().__init__()
        self.language_model = Body(text)


class Decoder(nn.Module):
    """A causal language model; ``config`` is the content of its ``config.json``. Its weights start undefined.

    ``source`` is the checkpoint folder that a Qwen3-VL's vision tower is carried from when the model is saved.
    """

    def __init__(
        self, config: Mapping[str, Any], generation: Mapping[str, Any] | None = None, source: Path | None = None
    ) -> None:
        super().__init__()
        self.config, self.generation, self.source = dict(config), dict(generation or {}), source
        text = text_config(config)
        self.seeing = config["model_type"] in _TEXT
        self.model = LanguagePart(text) if self.seeing else Body(text)
        self.lm_head = Linear(text["hidden_size"], text["vocab_size"], bias=False)
        self.tie()

    def tie(self) -> None:
        """Make the output matrix the embedding where the configuration says so (again, after new weights came in)."""
        inner = text_config(self.config).get("tie_word_embeddings", False)
        if self.config.get("tie_word_embeddings", inner):
            self.lm_head.weight = body_and_head(self)[0].embed_tokens.weight

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.lm_head.weight.dtype

    @property
    def device(self) -> torch.device:
        """Of the weights."""
        return self.lm_head.weight.device

    def save_pretrained(self, folder: str) -> None:
        """Write the configurations and the weights, tied ones once; equal models give equal bytes.

        Raises:
            ValueError: the vision tower of a Qwen3-VL is not where it came from.
        """
        path = Path(folder)
        config = self.config | {"dtype": str(self.dtype).removeprefix("torch.")}
        if self.seeing:  # the library casts the decoder to its own entry
            config |= {"text_config": config["text_config"] | {"dtype": config["dtype"]}}
        write_json(path / "config.json", config)
        if self.generation:
            write_json(path / GENERATION, self.generation)
        tensors = {name: parameter.detach().contiguous() for name, parameter in self.named_parameters()}
        save_file(tensors, path / (LANGUAGE_FILE if self.seeing else WEIGHTS), metadata={"format": "pt"})
        if self.seeing:
            if self.source is None:
                raise ValueError("a Qwen3-VL that was not loaded from a checkpoint has no vision tower to save")
            sizes = carry(self.source, path)
            files = dict.fromkeys(tensors, LANGUAGE_FILE) | dict.fromkeys(sizes, VISION_FILE)
            total = sum(tensor.nbytes for tensor in tensors.values()) + sum(sizes.values())
            write_json(path / INDEX, {"metadata": {"total_size": total}, "weight_map": files})


def known(config: Mapping[str, Any]) -> bool:
    """Whether :class:`Decoder` computes what ``config`` says, all of it."""
    kind, text = config.get("model_type"), text_config(config)
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    return (
        kind in _CLASSES
        and text.get("model_type") == _TEXT.get(kind, kind)
        and rope.get("rope_type", rope.get("type", "default")) == "default"
        and text.get("hidden_act", "silu") == "silu"
        and not text.get("attention_dropout")
        and not text.get("use_sliding_window")
        and {"num_key_value_heads", "rms_norm_eps", "intermediate_size"} <= text.keys()
        and (text["model_type"] not in _NORMED or "head_dim" in text)
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
    # Without memory: what the configuration asks for is not believed before the weights have been seen.
    with torch.device("meta"):
        model = Decoder(config, extra, source=folder)
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        with safe_open(path, framework="pt") as stream:
            names = [name for name in stream.keys() if not (model.seeing and name.startswith(PREFIX))]  # noqa: SIM118
            tensors |= {name: stream.get_tensor(name) for name in names}
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


def rope_base(config: Mapping[str, Any]) -> float:
    """Of the rotary positions, whichever of two places the configuration says it in."""
    rope = config.get("rope_parameters") or {}
    return float(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
