"""Model folders with a real template and a small byte-level tokenizer: rendering without a download."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

TEMPLATES = Path(__file__).parent.parent / "serving" / "chat" / "templates"

_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
# How Qwen cuts words: digits alone, a space with the word behind it, line breaks together.
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def tiny_model(folder: Path, template: str) -> Path:
    """Write a folder that `ChatRenderer` can open; `template` is a file name under TEMPLATES, or a source."""
    known = TEMPLATES / f"{template}.jinja"
    source = known.read_text(encoding="utf-8") if known.is_file() else template
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    corpus = [path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.glob("qwen*.jinja"))]
    tokenizer.train_from_iterator([*corpus, "a\n\nb\n\nc " * 50], trainer)
    tokenizer.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in _MARKS])
    return tokenizer
