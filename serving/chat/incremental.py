"""Encoding that does not do the same work twice: conversation n+1 repeats most of n.

The ids are those of encoding the whole, whatever was encoded before, because a text is only taken apart where
that provably changes nothing (`cuts.py`). What is kept of earlier texts decides how much is left to do, and
nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from serving.assembler.reuse import Reuse, WholeReason
from serving.chat.cuts import Cuts
from serving.chat.recent import Recent
from serving.chat.tokenizer import ChatTokenizer, Encoded

TEXTS_KEPT: Final = 8
"""Whole texts: the last one of as many conversations, or the last few of one."""

PIECE_TOKENS_KEPT: Final = 2**18
"""Tokens of pieces: a few conversations of a hundred thousand tokens, about 20 MB."""

Encoder: TypeAlias = Callable[[str], tuple[Encoded, Reuse]]
"""The same ids and places as `ChatTokenizer.encode`, and how much of them was there already."""


def encoder_of(tokenizer: ChatTokenizer, *, incremental: bool) -> Encoder:
    """The encoder that this tokenizer allows; threads may share it."""
    if not incremental:
        return _whole(tokenizer, WholeReason.SWITCHED_OFF)
    if tokenizer.cuts is None:
        return _whole(tokenizer, WholeReason.TOKENIZER_NOT_PROVEN)
    return IncrementalEncoder(tokenizer, tokenizer.cuts)


def _whole(tokenizer: ChatTokenizer, reason: WholeReason) -> Encoder:
    def encode(text: str) -> tuple[Encoded, Reuse]:
        encoded = tokenizer.encode(text)
        return encoded, Reuse(0, len(encoded.ids), reason)

    return encode


class _Text(NamedTuple):
    """A text, its tokens, the places where it may be cut, and how many tokens lie before each place."""

    text: str
    encoded: Encoded
    places: tuple[int, ...]
    tokens_before: tuple[int, ...]


class IncrementalEncoder:
    """Takes from earlier texts what this one begins with, then what stood anywhere in them, piece by piece.

    A piece reaches from one cut to the next, so a message that changed costs its own pieces and no others.
    """

    def __init__(self, tokenizer: ChatTokenizer, cuts: Cuts) -> None:
        self._tokenizer = tokenizer
        self._cuts = cuts
        self._texts: Recent[str, _Text] = Recent(TEXTS_KEPT)
        self._pieces: Recent[str, Encoded] = Recent(PIECE_TOKENS_KEPT)

    def __call__(self, text: str) -> tuple[Encoded, Reuse]:
        if (same := self._texts.get(text)) is not None:
            return same.encoded, Reuse(len(same.encoded.ids), 0)
        whole, fresh = self._finished(self._beginning(text), text)
        self._texts.put(text, whole)
        total = len(whole.encoded.ids)
        reason = None
        if fresh == total:
            reason = WholeReason.NOTHING_KEPT if whole.places else WholeReason.NO_CUT
        return whole.encoded, Reuse(total - fresh, fresh, reason)

    def _beginning(self, text: str) -> _Text:
        """The longest beginning of `text` up to a cut that an earlier text had too; empty if there is none."""
        best = _Text("", Encoded((), ()), (), ())
        for known in self._texts.values():
            # Whether a place is a cut depends on the characters behind it, so these must be alike as well.
            alike = common_prefix(known.text, text) - self._cuts.reach
            index = bisect_right(known.places, alike) - 1
            if index >= 0 and known.places[index] > len(best.text):
                best = _up_to(known, index)
        return best

    def _finished(self, begun: _Text, text: str) -> tuple[_Text, int]:
        """All of `text`, which begins with `begun`, and how many of its tokens had to be encoded."""
        places = self._cuts.places(text, len(begun.text))
        ids: list[int] = []
        starts: list[int] = []
        tokens_before: list[int] = []
        fresh = 0
        for number, (begin, end) in enumerate(pairwise((len(begun.text), *places, len(text)))):
            if number > 0:
                tokens_before.append(len(begun.encoded.ids) + len(ids))
            if begin < end:
                piece, is_fresh = self._piece(text[begin:end])
                ids += piece.ids
                starts += [begin + start for start in piece.starts]
                fresh += len(piece.ids) * is_fresh
        encoded = Encoded((*begun.encoded.ids, *ids), (*begun.encoded.starts, *starts))
        return _Text(text, encoded, (*begun.places, *places), (*begun.tokens_before, *tokens_before)), fresh

    def _piece(self, text: str) -> tuple[Encoded, bool]:
        if (known := self._pieces.get(text)) is not None:
            return known, False
        encoded = self._tokenizer.encode(text)
        self._pieces.put(text, encoded, len(encoded.ids))
        return encoded, True


def _up_to(known: _Text, index: int) -> _Text:
    """`known` before its cut number `index`."""
    place, tokens = known.places[index], known.tokens_before[index]
    ids, starts = known.encoded
    return _Text(
        known.text[:place],
        Encoded(ids[:tokens], starts[:tokens]),
        known.places[:index],
        known.tokens_before[:index],
    )


def common_prefix(one: str, other: str) -> int:
    """How many characters the two begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low
