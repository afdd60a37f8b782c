"""The forward pass of a decoder, split where an agent's turn splits: shared prompt prefixes, then action suffixes.

Shapes: ``U`` unique prefixes, ``N`` their tokens without padding, ``P`` longest prefix, ``B`` suffix rows,
``S`` suffix tokens, ``H`` heads, ``K`` key-value heads, ``D`` width, ``W`` head width.

The prediction of action token ``a`` needs the hidden state one position earlier, so a turn is cut into

    prefix = prompt[:-1]        suffix = [prompt[-1], action[0], ..., action[-2]]

and the hidden states of the suffix are exactly those that the output layer reads. Three things follow.
(1) Turns with equal prompts (the group of a GRPO page at its first turn) share one prefix. (2) In the last layer the
prefix contributes keys and values only: its queries and its feed-forward are never computed. (3) Sampling and
scoring run the same code, the sampler with one suffix token at a time. Prefixes are packed: linear layers see no
padding at all, and attention sees right padding, which a causal mask hides from every real token.

The layers are the model's own modules (a LoRA adapter inside them works), only their order of execution is written
here; the result equals the ``transformers`` forward up to rounding, which the tests hold for every architecture in
``headroom.policy.files.ARCHITECTURES``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Keys and values of unique prefixes, one pair a layer: (U, K, P, W), zero where padded; lengths int64 (U,)."""

    keys: list[Tensor]
    values: list[Tensor]
    lengths: Tensor


def body_and_head(model: Any) -> tuple[Any, Any]:
    """The decoder without its output layer, and the output layer; looks through a PEFT wrapper.

    Of a vision-language model, the decoder is its language part.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return getattr(base.model, "language_model", base.model), base.lm_head


def run_part(module: Any, part: Callable[..., Any], *inputs: Any) -> Any:
    """``part(module, *inputs)``, through the module's own ``run_part`` where training gave it one and a gradient is
    wanted: that one recomputes in the backward pass, or gathers the module's shards (``headroom.train.trainee``)."""
    own = module.__dict__.get("run_part") if torch.is_grad_enabled() else None
    return part(module, *inputs) if own is None else own(part, *inputs)


def encode_prefixes(body: Any, prefixes: Sequence[Tensor]) -> Prefixes:
    """Run the prefixes (U of int64 (length,), empty ones allowed) through all layers, packed.

    Differentiable; the caller decides about gradients.
    """
    device = body.embed_tokens.weight.device
    lengths = torch.tensor([len(prefix) for prefix in prefixes], dtype=torch.int64)
    rows, longest = len(prefixes), int(lengths.max())
    positions = torch.cat([torch.arange(int(length)) for length in lengths]).to(device)
    slots = positions + torch.repeat_interleave(torch.arange(rows) * longest, lengths).to(device)
    hidden = body.embed_tokens(torch.cat(list(prefixes)).to(device))
    cosine, sine = (table[0].unsqueeze(1) for table in body.rotary_emb(hidden, positions[None]))
    keys, values = [], []
    for index, layer in enumerate(body.layers):
        last = index == len(body.layers) - 1
        hidden, key, value = run_part(layer, _prefix_part, hidden, cosine, sine, slots, (rows, longest), last)
        keys.append(key)
        values.append(value)
    return Prefixes(keys, values, lengths.to(device))


def _prefix_part(
    layer: Any, hidden: Tensor, cosine: Tensor, sine: Tensor, slots: Tensor, shape: tuple[int, int], last: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """One layer on packed prefixes (N, D): hidden states (none of the last layer), padded keys and values."""
    rows, longest = shape

    def padded(packed: Tensor) -> Tensor:  # (N, heads, W) -> (U, heads, P, W)
        blank = packed.new_zeros(rows * longest, *packed.shape[1:])
        return blank.index_copy(0, slots, packed).view(rows, longest, *packed.shape[1:]).transpose(1, 2)

    normed = layer.input_layernorm(hidden)
    keys, values = (padded(states) for states in _key_value(layer.self_attn, normed, cosine, sine))
    if last:
        return None, keys, values
    query = padded(_query(layer.self_attn, normed, cosine, sine))
    mixed = _attend(query, keys, values, None)
    mixed = mixed.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, slots)
    return _rest_of_layer(layer, hidden, mixed), keys, values


def extend(body: Any, suffixes: Tensor, prefixes: Prefixes, prefix_of: Tensor) -> Tensor:
    """Hidden states after the final norm, (B, S, D), of suffixes int64 (B, S), right-padded with any valid id.

    Row ``b`` continues prefix ``prefix_of[b]`` (int64 (B,)); its token ``s`` stands at position
    ``prefix length + s`` and sees its own prefix and its own earlier tokens only.
    """
    rows, width = suffixes.shape
    length = prefixes.lengths[prefix_of]
    steps = torch.arange(width, device=suffixes.device)
    hidden = body.embed_tokens(suffixes)
    cosine, sine = (table.unsqueeze(2) for table in body.rotary_emb(hidden, length[:, None] + steps))
    longest = prefixes.keys[0].shape[2]
    of_prefix = torch.arange(longest, device=suffixes.device) < length[:, None]  # (B, P)
    visible = torch.cat(
        (of_prefix[:, None].expand(rows, width, longest), (steps <= steps[:, None]).expand(rows, width, width)), dim=2
    )
    one_to_one = torch.equal(prefix_of, torch.arange(len(prefixes.lengths), device=prefix_of.device))
    spread = None if one_to_one else prefix_of
    for layer, *past in zip(body.layers, prefixes.keys, prefixes.values, strict=True):
        hidden = run_part(layer, _suffix_part, hidden, *past, cosine, sine, visible[:, None], spread)
    return body.norm(hidden)  # type: ignore[no-any-return]


def _suffix_part(
    layer: Any,
    hidden: Tensor,
    prefix_keys: Tensor,
    prefix_values: Tensor,
    cosine: Tensor,
    sine: Tensor,
    visible: Tensor,
    prefix_of: Tensor | None,
) -> Tensor:
    """One layer on suffixes (B, S, D); ``prefix_of`` is None where row ``b`` continues prefix ``b``."""
    normed = layer.input_layernorm(hidden)
    key, value = _key_value(layer.self_attn, normed, cosine, sine)
    query = _query(layer.self_attn, normed, cosine, sine)
    if prefix_of is not None:
        prefix_keys, prefix_values = (past.index_select(0, prefix_of) for past in (prefix_keys, prefix_values))
    keys = torch.cat((prefix_keys, key.transpose(1, 2)), dim=2)
    values = torch.cat((prefix_values, value.transpose(1, 2)), dim=2)
    mixed = _attend(query.transpose(1, 2), keys, values, visible)
    return _rest_of_layer(layer, hidden, mixed.transpose(1, 2).flatten(2))


def run_layer(layer: Any, hidden: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Tensor:
    """One whole layer on whole sequences (B, S, D), causal, right-padded; cosine and sine are (1, S, W)."""
    cosine, sine = (table.unsqueeze(2) for table in position_embeddings)
    normed = layer.input_layernorm(hidden)
    key, value = _key_value(layer.self_attn, normed, cosine, sine)
    query = _query(layer.self_attn, normed, cosine, sine)
    mixed = _attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), None)
    return _rest_of_layer(layer, hidden, mixed.transpose(1, 2).flatten(2))


class SuffixCache:
    """Keys and values of rows that grow by one token a step: the sampler's cache.

    Columns: the row's prefix at 0 .. length - 1, nothing up to ``P - 1``, then one column a step, so that all rows
    write to the same column although their positions differ.
    """

    def __init__(self, prefixes: Prefixes, prefix_of: Tensor, steps: int) -> None:
        """Give each row of ``prefix_of`` (int64 (B,)) its own copy of its prefix, with room for ``steps`` tokens."""
        self._longest = prefixes.keys[0].shape[2]
        self._step = 0
        self._positions = prefixes.lengths[prefix_of]
        columns = torch.arange(self._longest + steps, device=prefix_of.device)
        self._visible = (columns < self._positions[:, None]) | (columns >= self._longest)
        self._keys = [_with_room(keys.index_select(0, prefix_of), steps) for keys in prefixes.keys]
        self._values = [_with_room(values.index_select(0, prefix_of), steps) for values in prefixes.values]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but ``rows`` (int64, in the new order)."""
        self._positions, self._visible = self._positions[rows], self._visible[rows]
        self._keys = [keys.index_select(0, rows) for keys in self._keys]
        self._values = [values.index_select(0, rows) for values in self._values]

    def append(self, body: Any, tokens: Tensor) -> Tensor:
        """Feed one token a row (int64 (B,)); hidden states after the final norm, (B, D)."""
        end = self._longest + self._step + 1
        hidden = body.embed_tokens(tokens)
        # One position a row: the tables are (B, 1, W), and the 1 is the head axis.
        cosine, sine = body.rotary_emb(hidden, self._positions[:, None])
        visible = self._visible[:, None, None, :end]
        for layer, keys, values in zip(body.layers, self._keys, self._values, strict=True):
            normed = layer.input_layernorm(hidden)
            key, value = _key_value(layer.self_attn, normed, cosine, sine)
            keys[:, :, end - 1], values[:, :, end - 1] = key, value
            query = _query(layer.self_attn, normed, cosine, sine)
            mixed = _attend(query[:, :, None], keys[:, :, :end], values[:, :, :end], visible)
            hidden = _rest_of_layer(layer, hidden, mixed.flatten(1))
        self._step += 1
        self._positions = self._positions + 1
        return body.norm(hidden)  # type: ignore[no-any-return]


def _with_room(tensor: Tensor, steps: int) -> Tensor:
    return functional.pad(tensor, (0, 0, 0, steps))


def _query(attention: Any, normed: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """(..., D) -> rotated queries (..., H, W)."""
    query = attention.q_proj(normed).unflatten(-1, (-1, attention.head_dim))
    if hasattr(attention, "q_norm"):
        query = attention.q_norm(query)
    return _rotate(query, cosine, sine)


def _key_value(attention: Any, normed: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    """(..., D) -> rotated keys and values, both (..., K, W)."""
    key = attention.k_proj(normed).unflatten(-1, (-1, attention.head_dim))
    if hasattr(attention, "k_norm"):
        key = attention.k_norm(key)
    return _rotate(key, cosine, sine), attention.v_proj(normed).unflatten(-1, (-1, attention.head_dim))


def _rotate(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding (arXiv 2104.09864), half-split layout; tables (..., 1, W)."""
    left, right = states.chunk(2, dim=-1)
    return states * cosine + torch.cat((-right, left), dim=-1) * sine


def _attend(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
    """Attention of (B, H, S, W) over (B, K, T, W); ``visible`` bool (B, 1, S, T), or None for causal."""
    shared = query.shape[1] // keys.shape[1]
    if shared > 1:
        keys, values = keys.repeat_interleave(shared, dim=1), values.repeat_interleave(shared, dim=1)
    return functional.scaled_dot_product_attention(query, keys, values, attn_mask=visible, is_causal=visible is None)


def _rest_of_layer(layer: Any, residual: Tensor, mixed: Tensor) -> Tensor:
    hidden = residual + layer.self_attn.o_proj(mixed)
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden))  # type: ignore[no-any-return]
