from __future__ import annotations

import base64
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.framework.packed import Packing

TEXTS = st.lists(st.text() | st.text(alphabet="\ud800ab"), max_size=5)


def written(texts: list[str]) -> list[str]:
    packing = Packing()
    lines = []
    for text in texts:
        lines.append(packing.pack(text))
        packing.stands(text)
    return lines


def alone(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode()


def noise(seed: int, size: int) -> str:
    return random.Random(seed).randbytes(size).hex()


@given(TEXTS)
def test_every_text_comes_back(texts: list[str]) -> None:
    packing = Packing()
    assert [packing.unpack(line) for line in written(texts)] == texts


@given(TEXTS, TEXTS)
def test_a_file_goes_on_where_its_first_text_was_read(before: list[str], after: list[str]) -> None:
    resumed = Packing()
    lines = written(before)
    for line in lines[:1]:
        resumed.unpack(line)
    for text in after:
        lines.append(resumed.pack(text))
        resumed.stands(text)
    packing = Packing()
    assert [packing.unpack(line) for line in lines] == before + after


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_what_two_texts_have_in_common_is_written_once(size: int) -> None:
    text = noise(0, size)
    first, second = written([text, text[-10_000:] + "and one more word"])
    assert len(second) < len(first) / 10


def test_a_text_that_never_reached_the_file_is_not_packed_against() -> None:
    packing, reader = Packing(), Packing()
    packing.pack(noise(0, 1_000))
    assert reader.unpack(packing.pack(noise(0, 1_000))) == noise(0, 1_000)


def test_texts_that_were_packed_alone_are_read_too() -> None:
    packing = Packing()
    assert [packing.unpack(alone(text)) for text in ("one", "two")] == ["one", "two"]


@pytest.mark.parametrize("packed", ["", "!!!", "YWJj", alone("x")[:-4], written(["one", "two"])[1]])
def test_what_was_not_packed_or_lost_its_first_text_is_refused(packed: str) -> None:
    with pytest.raises(ValueError, match="not compressed text"):
        Packing().unpack(packed)
