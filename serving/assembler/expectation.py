"""What one assembly must come to: a packet or a hand-off, and where certain items end up."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from serving.assembler.assemble import assemble
from serving.assembler.manifest import DropReason
from serving.assembler.messages import item_of
from serving.assembler.packet import Packet
from serving.assembler.payloads import Text, ToolStep
from serving.assembler.policy import ContextPolicy
from serving.assembler.record import Record
from serving.assembler.renderer import Renderer
from serving.assembler.request import AssemblyRequest
from serving.errors import UsageError


class Standing(StrEnum):
    """Where an item ends up."""

    SELECTED = "selected"
    DROPPED = "dropped"
    ABSENT = "absent"
    """Neither in the packet nor among the dropped: no trace of it."""


class Ending(StrEnum):
    """What an assembly comes to."""

    PACKET = "packet"
    HAND_OFF = "hand_off"


class Expected(Record):
    """Where one item must end up."""

    id: str = Field(min_length=1)
    standing: Standing
    reason: DropReason | None = None
    """Of a dropped one."""
    verbatim: bool = False
    """Of a selected tool step: its results are sent in the words in which they came."""

    def _problem(self) -> str | None:
        if (self.standing is Standing.DROPPED) != (self.reason is not None):
            return f"a reason belongs to a dropped item and to no other, which {self.id} breaks"
        if self.verbatim and self.standing is not Standing.SELECTED:
            return f"only a selected item is sent verbatim, but {self.id} is {self.standing.value}"
        return None


class Expectation(Record):
    """All that must hold; `items` and `says` matter only in a packet, since a hand-off sends nothing."""

    outcome: Ending = Ending.PACKET
    items: tuple[Expected, ...] = ()
    says: tuple[Text, ...] = ()
    """Words that stand in one of the packet's messages, whoever says them: an item or a summary of it."""


class Case(Record):
    """One request and what must become of it."""

    name: str = Field(pattern=r"^[a-z0-9_]{1,60}$")
    """Also the name of its file."""
    about: str
    request: AssemblyRequest
    expectation: Expectation


class Violation(Record):
    """One broken expectation; `id` is None for the outcome itself."""

    id: str | None
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{f'{self.id}: ' if self.id else ''}expected {self.expected}, got {self.got}"


def violations(
    request: AssemblyRequest, policy: ContextPolicy, renderer: Renderer, expectation: Expectation
) -> tuple[Violation, ...]:
    """Assemble and compare; empty when all holds. A refused request is a violation with its sentence."""
    try:
        outcome = assemble(request, policy, renderer)
    except UsageError as error:
        return (Violation(id=None, expected=f"a {expectation.outcome.value}", got=f"a refusal: {error}"),)
    made = Ending.PACKET if isinstance(outcome, Packet) else Ending.HAND_OFF
    if made is not expectation.outcome:
        return (Violation(id=None, expected=f"a {expectation.outcome.value}", got=f"a {made.value}"),)
    if not isinstance(outcome, Packet):
        return ()
    dropped = {item.id: item.reason for item in outcome.manifest.dropped}
    selected = {item.id for item in outcome.manifest.selected}
    found: list[Violation] = []
    for item in expectation.items:
        got = _standing(item.id, selected, dropped)
        if got != (item.standing, item.reason):
            found.append(Violation(id=item.id, expected=_words(item.standing, item.reason), got=_words(*got)))
        elif item.verbatim and not _verbatim(outcome, request, item.id):
            found.append(Violation(id=item.id, expected="its results verbatim", got="other words"))
    sent = [message.content or "" for message in outcome.messages]
    found.extend(
        Violation(id=None, expected=f"a packet that says '{words}'", got="none that does")
        for words in expectation.says
        if not any(words in content for content in sent)
    )
    return tuple(found)


def _standing(
    item_id: str, selected: set[str], dropped: dict[str, DropReason]
) -> tuple[Standing, DropReason | None]:
    if item_id in selected:
        return Standing.SELECTED, None
    reason = dropped.get(item_id)
    return (Standing.ABSENT, None) if reason is None else (Standing.DROPPED, reason)


def _words(standing: Standing, reason: DropReason | None) -> str:
    return standing.value if reason is None else f"{standing.value} ({reason.value})"


def _verbatim(packet: Packet, request: AssemblyRequest, item_id: str) -> bool:
    step = next((item.payload for item in request.history if item.id == item_id), None)
    if not isinstance(step, ToolStep):
        return True
    sent = {
        span.path[1]: packet.messages[span.path[1]]
        for span in packet.spans
        if item_of(span.item_id) == item_id and span.path[0] == "messages" and isinstance(span.path[1], int)
    }
    contents = {message.tool_call_id: message.content or "" for message in sent.values()}
    return all(contents.get(result.call_id, "").startswith(result.content) for result in step.results)
