from __future__ import annotations

import base64
import json
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from serving.errors import LabError
from serving.models.bpe import (
    AddedToken,
    Splitter,
    byte_alphabet,
    byte_text,
    merges_from_ranks,
    parse_ranks,
    tokenizer_json,
)

LEARNED = (b"th", b"the", b" the", b"in", b"ing", b"  ", b"\xc3\xa9", b"\xe4\xbd", b"\xe4\xbd\xa0", b"\n\n")
RANKS = {token: rank for rank, token in enumerate([*(bytes([b]) for b in range(256)), *LEARNED])}
ADDED = (AddedToken(len(RANKS), "<|end|>", True), AddedToken(len(RANKS) + 1, "<tool_call>", False))


def rank_file(ranks: dict[bytes, int]) -> bytes:
    return b"".join(base64.b64encode(token) + f" {rank}\n".encode() for token, rank in ranks.items())


@cache
def tiny(splitter: Splitter) -> Tokenizer:
    alphabet = byte_alphabet()
    vocabulary = {byte_text(token, alphabet): rank for token, rank in RANKS.items()}
    merges = [(byte_text(a, alphabet), byte_text(b, alphabet)) for a, b in merges_from_ranks(RANKS)]
    return Tokenizer.from_str(json.dumps(tokenizer_json(vocabulary, merges, ADDED, splitter)))


def lowest_rank_first(word: bytes) -> list[int]:
    """Byte-pair encoding straight from ranks, as tiktoken defines it: the comparison implementation."""
    parts = [word[i : i + 1] for i in range(len(word))]
    while True:
        pairs = [(RANKS[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in RANKS]
        if not pairs:
            return [RANKS[part] for part in parts]
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def test_the_alphabet_has_a_printable_character_for_every_byte() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet) == list(range(256))
    assert len(set(alphabet.values())) == 256
    assert (alphabet[0x20], alphabet[0x0A], alphabet[0x41]) == ("Ġ", "Ċ", "A")


def test_each_merge_joins_two_ranked_tokens_in_rank_order() -> None:
    merges = merges_from_ranks(RANKS)
    assert [left + right for left, right in merges] == list(LEARNED)
    assert (b" the" in RANKS) and (b" ", b"the") in merges


@given(st.text(alphabet="thein g\té你\nx", max_size=40))
def test_words_are_encoded_as_from_ranks(text: str) -> None:
    expected = [
        rank
        for piece, _ in tiny(Splitter.QWEN2).pre_tokenizer.pre_tokenize_str(text)
        for rank in lowest_rank_first(
            bytes(next(b for b, c in byte_alphabet().items() if c == x) for x in piece)
        )
    ]
    assert tiny(Splitter.QWEN2).encode(text).ids == expected


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_text_survives_encoding_and_decoding(text: str) -> None:
    tokenizer = tiny(Splitter.SMOLLM)
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_added_tokens_are_matched_inside_text_and_only_special_ones_are_hidden() -> None:
    tokenizer = tiny(Splitter.QWEN2)
    ids = tokenizer.encode("x<|end|><tool_call>y").ids
    assert [ADDED[0].id, ADDED[1].id] == ids[1:3]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "x<tool_call>y"


def test_qwen_normalises_to_nfc_and_smollm_does_not() -> None:
    assert tiny(Splitter.QWEN2).encode("e\u0301").ids == tiny(Splitter.QWEN2).encode("é").ids
    assert tiny(Splitter.SMOLLM).encode("e\u0301").ids != tiny(Splitter.SMOLLM).encode("é").ids


def test_a_rank_file_reads_back() -> None:
    assert parse_ranks(rank_file(RANKS)) == RANKS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"IQ== 0\nIg== 2\n", "line 2 is bad: ranks must count up"),
        (b"IQ==\n", "line 1 is bad"),
        (b"@@@ 0\n", "line 1 is bad"),
        (b"IQ== 0\n", "255 lack one, first 0"),
    ],
)
def test_a_file_of_another_kind_is_no_rank_file(content: bytes, message: str) -> None:
    with pytest.raises(LabError, match=message):
        parse_ranks(content)


def test_a_token_that_bpe_cannot_make_has_no_merge() -> None:
    orphan = {**RANKS, b"qqq": len(RANKS)}
    assert [a + b for a, b in merges_from_ranks(orphan)] == list(LEARNED)
