"""What the model wrote, divided by its own marks: thinking, tool calls, the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from serving.attention.segments import Segment, SegmentKind, framing_segment
from serving.chat import ChatTokenizer

OUTPUT: Final = "output"
"""The item id of segments that were generated in this call: `output#thinking`, `output#call:0` …"""


@dataclass(frozen=True, slots=True)
class OutputMarks:
    """The token ids that open and close the parts of an answer; None where the model has no such token."""

    thinking: tuple[int, int] | None = None
    tool_call: tuple[int, int] | None = None
    stop: Collection[int] = ()
    """Control tokens: they count as framing."""


def output_marks(tokenizer: ChatTokenizer) -> OutputMarks:
    """The marks of a tokenizer's added tokens: `<think>`, `<tool_call>` and their ends, and its control tokens."""
    ids = tokenizer.added_tokens()

    def pair(name: str) -> tuple[int, int] | None:
        opening, closing = ids.get(f"<{name}>"), ids.get(f"</{name}>")
        return None if opening is None or closing is None else (opening, closing)

    stop = {ids[token.text] for token in tokenizer.added if token.special and token.text in ids}
    return OutputMarks(pair("think"), pair("tool_call"), frozenset(stop))


def output_owners(
    token_ids: Sequence[int], marks: OutputMarks, *, in_thinking: bool = False
) -> list[Segment]:
    """The segment of every generated token; marks belong to the part that they open or close.

    `in_thinking`: the generation prompt has opened the thinking already. A part that is not closed runs on to
    the end, and calls are counted from 0.
    """
    owners: list[Segment] = []
    kind = SegmentKind.THINKING if in_thinking else SegmentKind.ANSWER
    calls = 0
    for token in token_ids:
        if token in marks.stop:
            owners.append(framing_segment())
            continue
        if marks.thinking and token == marks.thinking[0]:
            kind = SegmentKind.THINKING
        elif marks.tool_call and token == marks.tool_call[0]:
            kind = SegmentKind.TOOL_CALL
        owners.append(_part(kind, calls))
        if kind is SegmentKind.TOOL_CALL and marks.tool_call and token == marks.tool_call[1]:
            kind, calls = SegmentKind.ANSWER, calls + 1
        elif kind is SegmentKind.THINKING and marks.thinking and token == marks.thinking[1]:
            kind = SegmentKind.ANSWER
    return owners


def thinking_is_open(tail: Sequence[int], marks: OutputMarks) -> bool:
    """Whether `tail`, the generation prompt's tokens, opens thinking and does not close it."""
    if marks.thinking is None:
        return False
    last = next((token for token in reversed(tail) if token in marks.thinking), None)
    return last == marks.thinking[0]


def _part(kind: SegmentKind, calls: int) -> Segment:
    name, label = {
        SegmentKind.THINKING: ("thinking", "thinking (generated)"),
        SegmentKind.ANSWER: ("answer", "answer (generated)"),
        SegmentKind.TOOL_CALL: (f"call:{calls}", f"tool call {calls + 1} (generated)"),
    }[kind]
    return Segment(id=f"{OUTPUT}#{name}", label=label, kind=kind, generated=True)
