"""Small models with every feature that the forward pass must honour."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from headroom.train.batch import Example

VOCABULARY = 37
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
}
KINDS = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"tie_word_embeddings": True}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": False}),
    "llama": (LlamaConfig, LlamaForCausalLM, {"attention_bias": True, "mlp_bias": True}),
}


@pytest.fixture(params=sorted(KINDS))
def any_model(request):
    """Each supported architecture in float64, with grouped heads and weights far from their small start."""
    return build(request.param)


@pytest.fixture
def model():
    """A Qwen3 in float64."""
    return build("qwen3")


@pytest.fixture
def examples():
    """Turns of many lengths, some with equal prompts, one twice, one with the shortest prompt and action."""
    random = np.random.default_rng(3)
    turns = [turn(random, prompt, action) for prompt, action in ((5, 3), (17, 1), (9, 6), (1, 4), (2, 1), (30, 2))]
    shared = Example(turns[0].prompt_ids, turns[2].action_ids)
    return [*turns, shared, turns[1], Example(turns[5].prompt_ids, turns[0].action_ids)]


def turn(random, prompt, action):
    return Example(*(random.integers(0, VOCABULARY, size=n).astype(np.int32) for n in (prompt, action)))


def build(kind):
    config_class, model_class, more = KINDS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        model = model_class(config_class(**_SIZES, **more)).double().eval()
        for path, module in list(model.named_modules()):  # the library's norm rounds to float32 inside
            if type(module).__name__.endswith("RMSNorm"):
                owner, _, name = path.rpartition(".")
                exact = torch.nn.RMSNorm(module.weight.shape[0], eps=module.variance_epsilon, dtype=torch.float64)
                setattr(model.get_submodule(owner), name, exact)
        for name, parameter in model.named_parameters():  # biases and norms start at 0 and 1: make them count
            if parameter.ndim == 1:
                torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.3)
    return model
