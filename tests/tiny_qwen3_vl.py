"""A random Qwen3-VL of a few thousand weights on disk, its vision tower and its processor's files included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

VISION = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_heads": 2,
    "out_hidden_size": 24,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 1],
}
TEMPLATE = (
    "{% for message in messages %}<eot>{{ message.role }}\n{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}<eot>assistant\n"
)


def make_model(seed: int = 0, *, tied: bool = True, vocabulary: int = 300, head: int = 8) -> Any:
    """The library's model in float32, every tensor far from its start; the tower is in bfloat16, as it is released."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = Qwen3VLConfig(
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": head,
            "max_position_embeddings": 1000,
            "tie_word_embeddings": tied,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 5e6, "mrope_interleaved": True,
                "mrope_section": [head // 4, head // 8, head // 8],
            },
        },
        vision_config=VISION,
        tie_word_embeddings=tied,
        image_token_id=290, video_token_id=291, vision_start_token_id=292, vision_end_token_id=293,
    )  # fmt: skip
    draw = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            start = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            parameter.copy_(start + 0.2 * torch.randn(parameter.shape, generator=draw))
    model.model.visual.to(torch.bfloat16)
    return model


def make_tokenizer(template: str | None = TEMPLATE) -> Any:
    """Bytes as tokens, with two ends and a chat template."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    alphabet = {"<eos>": 0, "<eot>": 1, "<pad>": 2} | {c: i + 3 for i, c in enumerate(sorted(ByteLevel.alphabet()))}
    bpe = Tokenizer(BPE(alphabet, []))
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False)
    bpe.decoder = ByteLevelDecoder()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>", pad_token="<pad>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<eot>"]})
    tokenizer.chat_template = template
    return tokenizer


def write(folder: Path, seed: int = 0, *, shards: bool = False, **shape: Any) -> Path:
    """A checkpoint as the hub holds it: weights in one file or several, tokenizer, image and video processor."""
    make_model(seed, **shape).save_pretrained(folder, max_shard_size="9KB" if shards else "1GB")
    make_tokenizer().save_pretrained(folder)
    settings = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2}
    image = {"image_processor_type": "Qwen2VLImageProcessorFast", "size": {"shortest_edge": 64, "longest_edge": 1024}}
    video = {"video_processor_type": "Qwen3VLVideoProcessor", "size": {"shortest_edge": 64, "longest_edge": 1024}}
    for name, content in (("preprocessor", image), ("video_preprocessor", video)):
        (folder / f"{name}_config.json").write_text(json.dumps(content | settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 0]}))
    return folder
