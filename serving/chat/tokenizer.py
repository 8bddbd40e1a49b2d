"""The model's tokenizer, read from its `tokenizer.json`: ids, and where each token begins in the text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue
from tokenizers import Tokenizer, normalizers

from serving.assembler.renderer import AddedToken
from serving.chat.cuts import cuts_of
from serving.errors import UsageError
from serving.text import find_surrogate

_NAMED_SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


class Encoded(NamedTuple):
    """Token ids, and for each token the character of the text in which its first byte lies."""

    ids: tuple[int, ...]
    starts: tuple[int, ...]


class ShownToken(NamedTuple):
    """One token for display; `piece` is the text it decodes to alone, with U+FFFD for half characters."""

    token_id: int
    piece: str
    special: bool


class ChatTokenizer:
    """A `tokenizer.json` as the server uses it for chat: no special tokens added around the text."""

    def __init__(self, folder: Path) -> None:
        """Raises: UsageError when the folder has no `tokenizer.json`, or one that holds no tokenizer."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise UsageError(f"Expected a tokenizer.json in {folder}, found none. Pull the model again.")
        raw = path.read_bytes()
        self.sha256 = hashlib.sha256(raw).hexdigest()
        self._tokenizer = _parsed(raw, path)
        # A ByteLevel post-processor with trim_offsets moves a token's start past its leading space. Without
        # added special tokens a post-processor changes no id, so leave it out and keep true first bytes.
        self._tokenizer.post_processor = None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.config = _read_config(folder / "tokenizer_config.json")
        self._for_ascii = _for_ascii(self._tokenizer)
        decoder = self._tokenizer.get_added_tokens_decoder()
        self._added = frozenset(decoder)
        self.cuts = cuts_of(self._tokenizer)
        self.added = tuple(sorted(AddedToken(token.content, token.special) for token in decoder.values()))

    def encode(self, text: str) -> Encoded:
        """Ids of `text`, added tokens recognised, nothing added around it.

        Raises: UsageError for an unpaired surrogate, which no tokenizer (and no server) can encode.
        """
        refuse_surrogates(text)
        tokenizer = self._for_ascii if text.isascii() else self._tokenizer
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return Encoded(tuple(encoding.ids), tuple(start for start, _ in encoding.offsets))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids` together, added tokens as they are written; U+FFFD for half characters."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)

    def show(self, token_ids: Sequence[int]) -> list[ShownToken]:
        """Each token with the text it stands for; added tokens are marked."""
        return [
            ShownToken(
                index, self._tokenizer.decode([index], skip_special_tokens=False), index in self._added
            )
            for index in token_ids
        ]

    def added_tokens(self) -> dict[str, int]:
        """The added tokens (`<|im_end|>`, `<tool_call>` …): text to id."""
        return {token.content: i for i, token in self._tokenizer.get_added_tokens_decoder().items()}

    def named_tokens(self) -> dict[str, str]:
        """`bos_token`, `eos_token` …: what transformers gives every template as variables."""
        return {
            name: text
            for name in _NAMED_SPECIAL_TOKENS
            if (text := _token_text(self.config.get(name))) is not None
        }


def refuse_surrogates(text: str) -> None:
    """Raises: UsageError naming the first unpaired surrogate in `text`."""
    if (found := find_surrogate(text)) is not None:
        raise UsageError(
            f"Expected text that UTF-8 can hold, got an unpaired surrogate {found.name} at "
            f"character {found.start}. Decode the input with errors='replace', or drop the character."
        )


def _token_text(value: JsonValue) -> str | None:
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None


def _read_config(path: Path) -> dict[str, JsonValue]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"Expected a JSON object in {path}, got no JSON ({error}). Pull the model."
        ) from error
    if not isinstance(config, dict):
        raise UsageError(f"Expected a JSON object in {path}, got {type(config).__name__}. Pull the model.")
    return config


def _for_ascii(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer that gives equal ids and places for ASCII in less time: without NFC, which leaves ASCII alone.

    About a quarter of the time goes into NFC. The tokenizer itself, where it normalises otherwise or not at all.
    """
    added = tokenizer.get_added_tokens_decoder()
    in_order = [added[index] for index in sorted(added)]
    if not isinstance(tokenizer.normalizer, normalizers.NFC) or not all(
        token.content.isascii() for token in in_order if token.normalized
    ):
        return tokenizer
    plain = Tokenizer(tokenizer.model)
    plain.pre_tokenizer = tokenizer.pre_tokenizer
    plain.add_tokens(in_order)
    return plain if plain.get_added_tokens_decoder() == added else tokenizer


def _parsed(raw: bytes, path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_buffer(raw)
    except Exception as error:  # the Rust library raises nothing narrower
        raise UsageError(
            f"Expected a tokenizer in {path}, got another file ({error}). Pull the model."
        ) from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"Expected text in UTF-8 in {path}, got other bytes ({error}). Pull the model."
        ) from error


def load_template(folder: Path, config: dict[str, JsonValue], *, with_tools: bool) -> str:
    """The folder's template: `chat_template.jinja`, else `chat_template` of `tokenizer_config.json`.

    A model with several named templates gives `tool_use` when there are tools, else `default`
    (transformers' `get_chat_template`). Raises: UsageError when there is none, or no text in its file.
    """
    named: dict[str, str] = {}
    extra = folder / "additional_chat_templates"
    for path in sorted(extra.glob("*.jinja")) if extra.is_dir() else ():
        named[path.stem] = _read_text(path)
    single = folder / "chat_template.jinja"
    if single.is_file():
        named["default"] = _read_text(single)
    if not named:
        named = _templates_in(config.get("chat_template"))
    chosen = named.get("tool_use") if with_tools else None
    chosen = chosen or named.get("default")
    if chosen is None:
        raise UsageError(
            f"Expected a chat template in {folder} (chat_template.jinja, or chat_template in "
            "tokenizer_config.json), found none. Pass a template file, or use a chat model."
        )
    return chosen


def _templates_in(value: JsonValue) -> dict[str, str]:
    if isinstance(value, str):
        return {"default": value}
    entries = value if isinstance(value, list) else []
    return {
        str(entry["name"]): str(entry["template"])
        for entry in entries
        if isinstance(entry, dict) and "name" in entry and "template" in entry
    }
