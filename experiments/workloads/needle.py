"""A needle in filler: one sentence with a value, at a chosen depth of a text that says nothing of it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from experiments.workloads.grading import ANSWER_LINE, Grade, Reason, read_answer
from experiments.workloads.scenario import Scenario, draws
from experiments.workloads.words import PLACES, codes
from serving.assembler import Packet, PacketSpan, ToolCall, Trajectory, UserTurn, part_id
from serving.assembler.masking import CountTokens
from serving.assembler.record import Record
from serving.errors import UsageError

SYSTEM: Final = "You answer from the text that you are given, and from nothing else."
OPENING: Final = "Read this text.\n\n"
TURN: Final = "turn-000"
"""The item that holds text and question."""


class Needle(Record):
    """One sentence with a value, and where it stands in the text."""

    place: str
    code: str
    start: int = Field(ge=0)
    """Characters into the document."""
    end: int

    @property
    def sentence(self) -> str:
        """`The access code of the north gate is 482913.`"""
        return _needle(self.place, self.code)


class NeedleScenario(Scenario):
    """`needles` stand in the text, the first `asked` of them are asked for; the others ask for attention alone."""

    document: str
    needles: tuple[Needle, ...]
    asked: int
    depth: float
    """Of the first needle: 0 is the beginning of the text, 1 its end."""
    tokens: int
    """What the text was made for, as the caller's counter measures."""

    @property
    def question(self) -> str:
        """What is asked under the text."""
        return super().question.rpartition("\n\n")[2]

    def grade(self, text: str, calls: Sequence[ToolCall] = ()) -> Grade:
        """The code, or the codes in the order asked for; a code of another needle is told from an invented one."""
        del calls
        said = read_answer(text, re.compile(r"[0-9]+(\s*,\s*[0-9]+)*"))
        got = [part.strip() for part in (said.value or "").split(",")]
        wanted = [needle.code for needle in self.needles[: self.asked]]
        present = {needle.code for needle in self.needles}
        if got == wanted:
            reason = Reason.CORRECT
        elif self.asked > 1 and got and all(code in wanted for code in got) and len(got) < len(wanted):
            reason = Reason.PARTIAL
        elif any(code in present for code in got):
            reason = Reason.OTHER_ITEM
        else:
            reason = Reason.WRONG
        return said.graded(self.expected, reason, f"asked for {self.asked} of {len(self.needles)} needles")

    def spans(self, packet: Packet) -> tuple[PacketSpan, ...]:
        """The packet's spans with every needle set apart, as part `needle-0` … of its turn.

        For a renderer or an attention capture, which then say what each needle cost or got. `UsageError`
        where the packet does not hold the text as it was given.
        """
        spans: list[PacketSpan] = []
        for span in packet.spans:
            text = packet.messages[int(span.path[1])].content if span.path[0] == "messages" else None
            if span.item_id != TURN or span.path[-1] != "content" or text is None:
                spans.append(span)
                continue
            at = span.start + len(OPENING)
            if text[at : at + len(self.document)] != self.document:
                raise UsageError(
                    "Expected a packet that holds this scenario's text unchanged, but it does not."
                )
            spans.extend(self._cut(span, at, len(text) if span.end is None else span.end))
        return tuple(spans)

    def _cut(self, span: PacketSpan, at: int, end: int) -> Iterator[PacketSpan]:
        reached = span.start
        for number, needle in sorted(enumerate(self.needles), key=lambda pair: pair[1].start):
            for owner, stop in (
                (span.item_id, at + needle.start),
                (part_id(span.item_id, f"needle-{number}"), at + needle.end),
            ):
                if stop > reached:
                    yield PacketSpan(path=span.path, start=reached, end=stop, item_id=owner)
                reached = stop
        if end > reached:
            yield PacketSpan(path=span.path, start=reached, end=end, item_id=span.item_id)

    def describe(self) -> str:
        """`needle, seed 2: depth 0.50 of about 2000 tokens, 1 of 4 needles asked; → 482913`."""
        return (
            f"needle, seed {self.seed}: depth {self.depth:.2f} of about {self.tokens} tokens, {self.asked} of "
            f"{len(self.needles)} needles asked; → {self.expected}"
        )

    def distractors(self) -> Iterator[str]:
        """The text without the needles asked for."""
        wanted = {needle.sentence for needle in self.needles[: self.asked]}
        yield from (line for line in self.document.splitlines() if line not in wanted)


def needle(
    seed: int,
    *,
    depth: float = 0.5,
    tokens: int = 2000,
    needles: int = 1,
    asked: int = 1,
    count: CountTokens = lambda text: -(-len(text) // 4),
) -> NeedleScenario:
    """A text of about `tokens` tokens with a needle at `depth`; `count` measures (default: four characters a token).

    The other needles stand at depths drawn from the seed. Filler, codes and places are the same at every depth.
    """
    if not 0 <= depth <= 1 or tokens < 1 or not 1 <= asked <= needles <= len(PLACES):
        raise UsageError(
            f"Expected a depth in [0, 1], tokens ≥ 1 and 1 ≤ asked ≤ needles ≤ {len(PLACES)}, but "
            f"depth={depth}, tokens={tokens}, asked={asked}, needles={needles} came."
        )
    rng = draws("needle", seed)
    values = list(zip(rng.sample(PLACES, len(PLACES)), codes(rng, len(PLACES)), strict=True))[:needles]
    others = random.Random(f"needle-depths/{seed}")  # noqa: S311 - a story, not a secret
    depths = [depth, *(others.random() for _ in values[1:])]
    filler = _filler(rng, tokens - sum(count(f"{_needle(*value)}\n") for value in values), count)
    document, found = _hidden(filler, values, depths)
    wanted = found[:asked]
    names = [f"the {one.place}" for one in wanted]
    return NeedleScenario(
        seed=seed,
        trajectory=Trajectory(
            system=SYSTEM, turns=(UserTurn(text=f"{OPENING}{document}\n\n{_question(names)}"),)
        ),
        expected=", ".join(one.code for one in wanted),
        document=document,
        needles=found,
        asked=asked,
        depth=depth,
        tokens=tokens,
    )


def _needle(place: str, code: str) -> str:
    return f"The access code of the {place} is {code}."


def _question(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"What is the access code of {names[0]}? " + ANSWER_LINE.format(form="the code")
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    return f"What are the access codes of {listed}, in this order? " + ANSWER_LINE.format(
        form="the codes, separated by commas"
    )


def _filler(rng: random.Random, tokens: int, count: CountTokens) -> list[str]:
    lines: list[str] = []
    while tokens > 0:
        line = rng.choice(_PATTERNS).format(
            who=rng.choice(_WHO), what=rng.choice(_WHAT), where=rng.choice(_WHERE), when=rng.choice(_WHEN)
        )
        lines.append(line)
        tokens -= count(f"{line}\n")
    return lines


@dataclass(frozen=True, slots=True)
class _Placed:
    line: int
    number: int


def _hidden(
    filler: Sequence[str], values: Sequence[tuple[str, str]], depths: Sequence[float]
) -> tuple[str, tuple[Needle, ...]]:
    """The text, and the needles in the order of `values`."""
    placed = sorted(
        (_Placed(round(depth * len(filler)), number) for number, depth in enumerate(depths)),
        key=lambda one: (one.line, one.number),
    )
    lines: list[str] = []
    numbers: dict[int, int] = {}
    for line in range(len(filler) + 1):
        for one in placed:
            if one.line == line:
                numbers[len(lines)] = one.number
                lines.append(_needle(*values[one.number]))
        lines.extend(filler[line : line + 1])
    found: dict[int, Needle] = {}
    start = 0
    for index, text in enumerate(lines):
        if (number := numbers.get(index)) is not None:
            place, code = values[number]
            found[number] = Needle(place=place, code=code, start=start, end=start + len(text))
        start += len(text) + 1
    return "\n".join(lines), tuple(found[number] for number in range(len(values)))


_WHO: Final = (
    "The keeper",
    "A visitor",
    "The night watch",
    "Somebody from the yard",
    "The new clerk",
    "An old sailor",
)
_WHAT: Final = ("the ledger", "a wet coat", "the blue lamp", "two crates", "a broken chair", "the tide table")
_WHERE: Final = ("by the stairs", "under the roof", "beside the stove", "near the quay", "behind the counter")
_WHEN: Final = ("before dawn", "in the rain", "after the market", "while the bells rang", "late in the day")
_PATTERNS: Final = (
    "{who} left {what} {where} {when}.",
    "{who} asked for {what} {when} and waited {where}.",
    "{who} said that {what} had been {where} all along.",
    "Nobody moved {what} {when}, although it stood {where}.",
    "{who} drew a picture of {what} {where}.",
)
