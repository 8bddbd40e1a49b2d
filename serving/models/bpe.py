"""Byte-level BPE tokenizers as `tokenizer.json` data, from ranks or from merges. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue

from serving.errors import LabError

# The pattern by which Qwen2, Qwen2.5 and Qwen3 split text before BPE (published in their tokenizer.json):
# contractions, words with one leading mark, single digits, punctuation runs, line ends, white space.
_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Splitter(StrEnum):
    """How text is normalised and cut before BPE; the values are GGUF's `tokenizer.ggml.pre`."""

    QWEN2 = "qwen2"
    """NFC, then the Qwen split pattern."""
    SMOLLM = "smollm"
    """No normalisation; digits one by one, then GPT-2's pattern."""


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token matched in the text before BPE; `special` ones are left out when decoding for people."""

    id: int
    text: str
    special: bool


def tokenizer_json(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    added: Sequence[AddedToken],
    splitter: Splitter,
) -> dict[str, JsonValue]:
    """The content of a `tokenizer.json`; tokens are in GPT-2's byte alphabet (see `byte_text`).

    `vocabulary` holds the BPE tokens, `added` the others; ids are the caller's.
    """
    normalizer, pre_tokenizer, trim = _front_half(splitter)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token.id,
                "content": token.text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": token.special,
            }
            for token in added
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _byte_level(use_regex=False, trim=trim),
        "decoder": _byte_level(use_regex=False, trim=trim),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": dict(vocabulary),
            "merges": [list(pair) for pair in merges],
        },
    }


def _front_half(splitter: Splitter) -> tuple[JsonValue, JsonValue, bool]:
    match splitter:
        case Splitter.QWEN2:
            split: dict[str, JsonValue] = {
                "type": "Split",
                "pattern": {"Regex": _QWEN_SPLIT},
                "behavior": "Isolated",
                "invert": False,
            }
            return {"type": "NFC"}, _sequence(split, _byte_level(use_regex=False, trim=False)), False
        case Splitter.SMOLLM:
            digits: dict[str, JsonValue] = {"type": "Digits", "individual_digits": True}
            return None, _sequence(digits, _byte_level(use_regex=True, trim=True)), True


def _sequence(*steps: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _byte_level(*, use_regex: bool, trim: bool) -> dict[str, JsonValue]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": trim, "use_regex": use_regex}


def parse_ranks(content: bytes) -> dict[bytes, int]:
    """Parse a tiktoken rank file: lines `<base64 of the token's bytes> <rank>`.

    Raises `LabError` unless the ranks count up from 0 and all 256 single bytes are there.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines()):
        try:
            encoded, rank = line.split()
            token = base64.b64decode(encoded, validate=True)
            if int(rank) != number or token in ranks:
                raise ValueError("ranks must count up from 0, each token once")
        except (ValueError, binascii.Error) as error:
            raise LabError(
                f"Expected a tiktoken rank file, but line {number + 1} is bad: {error}."
            ) from error
        ranks[token] = number
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise LabError(f"Expected ranks for all 256 bytes, but {len(missing)} lack one, first {missing[0]}.")
    return ranks


def merges_from_ranks(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The merge that makes each token longer than a byte, in rank order.

    A rank file names only results. BPE over the token's own bytes, with lower ranks only, must end in two
    parts: they are the merge. A token that ends otherwise can never be made by BPE and has no merge.
    """
    pairs = [(token, _last_two(token, ranks, rank)) for token, rank in ranks.items() if len(token) > 1]
    return [pair for _, pair in pairs if pair is not None]


def _last_two(token: bytes, ranks: Mapping[bytes, int], limit: int) -> tuple[bytes, bytes] | None:
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = limit
        where = -1
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1], limit)
            if rank < best:
                best, where = rank, i
        if where < 0:
            return None
        parts[where : where + 2] = [parts[where] + parts[where + 1]]
    return parts[0], parts[1]


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for every byte value.

    Printable Latin-1 bytes stand for themselves, the other 68 for U+0100, U+0101, … in order
    (`bytes_to_unicode` in OpenAI's gpt-2).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


def byte_text(token: bytes, alphabet: Mapping[int, str]) -> str:
    """A token's bytes in the alphabet of `byte_alphabet`."""
    return "".join([alphabet[byte] for byte in token])
