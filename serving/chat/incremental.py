"""Encoding that does not do the same work twice: conversation n+1 repeats most of n.

The ids are those of encoding the whole, whatever was encoded before, because a text is only taken apart where
that provably changes nothing (`cuts.py`). What is kept of earlier texts decides how much is left to do, and
nothing else.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from serving.assembler.reuse import Reuse, WholeReason
from serving.chat.cuts import Cuts
from serving.chat.recent import Recent
from serving.chat.tokenizer import ChatTokenizer, Encoded
from serving.text import common_prefix

TEXTS_KEPT: Final = 8
"""Whole texts: the last one of as many conversations, or the last few of one."""

ENDS_KEPT: Final = 2**20
"""Tokens of conversations that may go on, some hundred of a few thousand tokens, which a server answers in turns: at
most 80 MB."""

PACKED_KEPT: Final = 2**22
"""Tokens of conversations that were pushed out of these; packed, so at most 60 MB."""

PIECE_TOKENS_KEPT: Final = 2**18
"""Tokens of pieces: a few conversations of a hundred thousand tokens, about 4 MB."""

_CUTS_ADDED: Final = 64
"""How many cuts a turn may add before its conversation is no longer looked for by its end."""

_BEFORE_A_CUT: Final = 64
"""Characters before a cut that tell one conversation from another, mostly; who finds one compares it whole."""

_FEW: Final = 4
"""Cuts at the end of a text that are not alike when a conversation goes on from it: then no other text that is
kept can have much more, and none is looked at."""

_End: TypeAlias = tuple[int, str]
"""The place of a text's last cut, and a little of what lies before it."""

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


class _Packed(NamedTuple):
    """Ids and places, packed as numbers of 4 bytes: what is kept would otherwise be mostly Python's numbers."""

    ids: array[int]
    starts: array[int]


def _packed(encoded: Encoded) -> _Packed:
    return _Packed(array("I", encoded.ids), array("I", encoded.starts))


class _Text(NamedTuple):
    """A text, its tokens, the places where it may be cut, and how many tokens lie before each place."""

    text: str
    encoded: Encoded
    places: tuple[int, ...]
    tokens_before: tuple[int, ...]


class _PackedText(NamedTuple):
    """A `_Text` in a tenth of the memory."""

    text: str
    tokens: _Packed
    places: array[int]
    tokens_before: array[int]

    def unpacked(self) -> _Text:
        encoded = Encoded(tuple(self.tokens.ids), tuple(self.tokens.starts))
        return _Text(self.text, encoded, tuple(self.places), tuple(self.tokens_before))


class IncrementalEncoder:
    """Takes from earlier texts what this one begins with, then what stood anywhere in them, piece by piece.

    A piece reaches from one cut to the next, so a message that changed costs its own pieces and no others.
    """

    def __init__(self, tokenizer: ChatTokenizer, cuts: Cuts) -> None:
        self._tokenizer = tokenizer
        self._cuts = cuts
        self._texts: Recent[str, _Text] = Recent(TEXTS_KEPT)
        self._ends: Recent[_End, _Text] = Recent(ENDS_KEPT, self._pack)
        """Whole texts by their last cut, behind which the next one of the conversation goes on otherwise."""
        self._packed: Recent[_End, _PackedText] = Recent(PACKED_KEPT)
        self._pieces: Recent[str, _Packed] = Recent(PIECE_TOKENS_KEPT)

    def __call__(self, text: str) -> tuple[Encoded, Reuse]:
        if (same := self._texts.get(text)) is not None:
            return same.encoded, Reuse(len(same.encoded.ids), 0)
        whole, fresh = self._finished(self._beginning(text), text)
        self._texts.put(text, whole)
        if whole.places:
            self._ends.put(_end(text, whole.places[-1]), whole, len(whole.encoded.ids))
        total = len(whole.encoded.ids)
        reason = None
        if fresh == total:
            reason = WholeReason.NOTHING_KEPT if whole.places else WholeReason.NO_CUT
        return whole.encoded, Reuse(total - fresh, fresh, reason)

    def _beginning(self, text: str) -> _Text:
        """The longest beginning of `text` up to a cut that an earlier text had too; empty if there is none."""
        for place in reversed(self._cuts.places(text)[-_CUTS_ADDED:]):
            known = self._conversation(_end(text, place))
            # A cut in both texts, so what lies before it is encoded alike in both.
            if known is not None and text.startswith(known.text[:place]):
                return _up_to(known, len(known.places) - 1)
        best = _Text("", Encoded((), ()), (), ())
        for known in self._texts.values():
            # Whether a place is a cut depends on the characters behind it, so these must be alike as well.
            alike = common_prefix(known.text, text) - self._cuts.reach
            index = bisect_right(known.places, alike) - 1
            if index >= 0 and known.places[index] > len(best.text):
                best = _up_to(known, index)
                if index >= len(known.places) - _FEW:
                    break
        return best

    def _conversation(self, end: _End) -> _Text | None:
        """What ended there, which is not kept any more: what goes on from it will be."""
        if (known := self._ends.pop(end)) is None and (packed := self._packed.pop(end)) is not None:
            return packed.unpacked()
        return known

    def _pack(self, end: _End, known: _Text) -> None:
        places, tokens_before = array("I", known.places), array("I", known.tokens_before)
        packed = _PackedText(known.text, _packed(known.encoded), places, tokens_before)
        self._packed.put(end, packed, len(packed.tokens.ids))

    def _finished(self, begun: _Text, text: str) -> tuple[_Text, int]:
        """All of `text`, which begins with `begun`, and how many of its tokens had to be encoded."""
        places = self._cuts.places(text, len(begun.text))
        ids, starts = array("I"), array("I")
        tokens_before: list[int] = []
        fresh = 0
        for number, (begin, end) in enumerate(pairwise((len(begun.text), *places, len(text)))):
            if number > 0:
                tokens_before.append(len(begun.encoded.ids) + len(ids))
            if begin < end:
                piece, is_fresh = self._piece(text[begin:end])
                ids.extend(piece.ids)
                starts.extend([begin + start for start in piece.starts])
                fresh += len(piece.ids) * is_fresh
        # Tuples are joined with "+", which copies the long one once; unpacking would copy it twice.
        encoded = Encoded(begun.encoded.ids + tuple(ids), begun.encoded.starts + tuple(starts))
        places_of_all = begun.places + tuple(places)
        return _Text(text, encoded, places_of_all, begun.tokens_before + tuple(tokens_before)), fresh

    def _piece(self, text: str) -> tuple[_Packed, bool]:
        if (known := self._pieces.get(text)) is not None:
            return known, False
        encoded = self._tokenizer.encode(text)
        piece = _packed(encoded)
        self._pieces.put(text, piece, len(piece.ids))
        return piece, True


def _end(text: str, place: int) -> _End:
    """What a text that is cut at `place` is looked for by."""
    return place, text[max(0, place - _BEFORE_A_CUT) : place]


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
