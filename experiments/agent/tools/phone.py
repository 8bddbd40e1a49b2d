"""A telephone that reaches only a book of scripted answers."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.outcome import Failure, Reply, ToolError
from experiments.agent.tools.tool import Postcondition, Tool, tool
from serving.assembler import Authority

MAX_MESSAGE: Final = 500
BUSY: Final = "The line is busy."
NO_ANSWER: Final = "Nobody answers."
NUMBERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "555-0100": ("Harbour Hotel: a double room is free on Friday, for 120 euros.",),
        "555-0101": (BUSY, "Doctor Lind's practice: the next appointment is Tuesday at 10:15."),
        "555-0102": (NO_ANSWER, NO_ANSWER, "Workshop: the bicycle is ready."),
        "555-0103": ("Restaurant Olive: there is a table for four at 19:30.",),
    }
)
"""What answers where a scenario brings no book of its own: call after call, the last answer for ever."""
_FORMATTING: Final = re.compile(r"[\s().-]")


@dataclass(frozen=True, slots=True)
class PhoneCall:
    """One call that was made."""

    number: str
    message: str
    answer: str


class Phone:
    """The calls of one run; threads may share it. A limit of calls is the scenario's, and not enforced here."""

    def __init__(self, book: Mapping[str, tuple[str, ...]] = NUMBERS) -> None:
        self._book = {_plain(number): (number, answers) for number, answers in book.items()}
        self._calls: list[PhoneCall] = []
        self.calling = threading.Lock()

    @property
    def calls(self) -> tuple[PhoneCall, ...]:
        """All calls so far, oldest first."""
        return tuple(self._calls)

    def call(self, asked: str, message: str) -> PhoneCall:
        """Make one call and record it; raises `ToolError` for a number that is not in the book."""
        if _plain(asked) not in self._book:
            raise ToolError(
                f"The number {asked[:40]!r} is not in service; look it up again.", Failure.NOT_FOUND
            )
        if len(message) > MAX_MESSAGE:
            raise ToolError(
                f"A message has at most {MAX_MESSAGE} characters, not {len(message):,}; say it shorter.",
                Failure.LIMIT,
            )
        number, answers = self._book[_plain(asked)]
        before = sum(call.number == number for call in self._calls)
        made = PhoneCall(number, message, answers[min(before, len(answers) - 1)])
        self._calls.append(made)
        return made


class Dial(Arguments):
    """A number, and what is said to whoever answers."""

    number: str
    message: str = ""


def phone_tools(phone: Phone) -> tuple[Tool, ...]:
    """`make_call`: somebody's telephone rings, which nothing takes back."""

    def dial(asked: Dial) -> Reply:
        made = phone.call(asked.number, asked.message)
        count = sum(call.number == made.number for call in phone.calls)
        return Reply(
            made.answer, {"number": made.number, "calls_to_number": count, "calls": len(phone.calls)}
        )

    def recorded(asked: Dial) -> bool:
        return bool(phone.calls) and _plain(phone.calls[-1].number) == _plain(asked.number)

    return (
        tool(
            "make_call",
            "Call a telephone number.",
            Dial,
            dial,
            authority=Authority.CONSEQUENTIAL,
            effect="The number rings, and the call is on record.",
            idempotent=False,
            failures=(Failure.NOT_FOUND, Failure.LIMIT),
            ensures=Postcondition("the call is on record", recorded),
            alone=phone.calling,
        ),
    )


def _plain(number: str) -> str:
    return _FORMATTING.sub("", number)
