"""A Qwen3 of two tiny layers with a byte tokenizer: a folder that vLLM serves with dummy weights."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from serving.models.folder import ModelFolder, ModelSource, Weights

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 8192,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 256,
    "eos_token_id": 258,
}


def build_tiny_model(folder: Path) -> ModelFolder:
    """Write the folder and describe it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>"])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return ModelFolder(
        name="tiny-shape",
        path=folder,
        source=ModelSource.SHAPE,
        origin="built by a test",
        revision=None,
        license=None,
        weights=Weights.DUMMY,
        weights_sha256=None,
        architecture="Qwen3ForCausalLM",
        tool_parser="hermes",
        reasoning_parser="qwen3",
        max_position_embeddings=8192,
        size_bytes=sum(file.stat().st_size for file in folder.iterdir()),
    )
