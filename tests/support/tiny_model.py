"""A model folder without a model: a real template, and a small byte-level tokenizer with Qwen's added tokens."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEMPLATES = Path(__file__).parents[1] / "serving" / "chat" / "templates"
TEMPLATE_NAMES = ("qwen3", "qwen2_5", "smollm2")

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_VISIBLE = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@functools.cache
def _train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    corpus = [source.read_text(encoding="utf-8") for source in sorted(TEMPLATES.glob("*.jinja"))]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in _VISIBLE])
    return tokenizer


def write_tiny_folder(folder: Path, template: str) -> Path:
    """Write the folder of the named template and return it."""
    _train().save(str(folder / "tokenizer.json"))
    source = (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")
    (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
