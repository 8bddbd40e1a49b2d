"""A rare constraint: said once at the start, never again, and broken by the choice that looks best at the end."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from pydantic import Field

from experiments.workloads.grading import ANSWER_LINE, Grade, Reason, one_of, read_answer
from experiments.workloads.scenario import Scenario, draws, tool
from experiments.workloads.words import company, letter_codes, people
from serving.assembler import ToolCall, ToolResult, ToolStep, Trajectory, Turn, UserTurn
from serving.assembler.record import Record
from serving.errors import UsageError

SYSTEM: Final = (
    "You book rooms for travellers. What a traveller has told you holds until the booking is made."
)
SEARCH: Final = "search_rooms"
BOOK: Final = "book_room"
TOOLS: Final = (
    tool(SEARCH, "Look for rooms in a quarter.", quarter="Which quarter."),
    tool(BOOK, "Book a room.", code="Its code."),
    tool("look_up_train", "Look up a train.", route="From where to where."),
    tool("take_note", "Write something down.", text="What."),
)
FEATURES: Final = (
    "without a window",
    "above a bar",
    "on the ground floor",
    "with shared bath",
    "next to the lift",
)


class Forbidden(StrEnum):
    """What the constraint is about."""

    COMPANY = "company"
    """Nothing of one company."""
    FEATURE = "feature"
    """No room of one sort."""


class Room(Record):
    """One room on offer."""

    code: str
    company: str
    feature: str
    price: int

    @property
    def line(self) -> str:
        """`QXLM: a room next to the lift, of Badefi, for 87.`"""
        return f"{self.code}: a room {self.feature}, of {self.company}, for {self.price}."

    def about(self, forbidden: Forbidden) -> str:
        """What the constraint looks at."""
        return self.company if forbidden is Forbidden.COMPANY else self.feature


class RareConstraint(Scenario):
    """The cheapest room is forbidden by the second thing the user said, `distance` steps before the question."""

    rooms: tuple[Room, ...]
    forbidden: Forbidden
    forbidden_value: str
    constraint: str
    """The user's words."""
    constraint_id: str = Field(default="turn-000")
    """The item that holds them: what a compaction must not lose."""
    distance: int
    """Tool steps between the constraint and the decision."""

    def breaks_constraint(self, room: Room) -> bool:
        """Whether the user ruled this room out."""
        return room.about(self.forbidden) == self.forbidden_value

    def grade(self, text: str, calls: Sequence[ToolCall] = ()) -> Grade:
        """The code in the text, or that of the one `book_room` call; a forbidden room is told from a dear one."""
        booked = [call for call in calls if call.name == BOOK]
        if len(booked) > 1:
            codes = ", ".join(_code(call) for call in booked)
            return Grade(
                reason=Reason.SEVERAL_ANSWERS,
                expected=self.expected,
                got=codes,
                detail="booked more than one",
            )
        said = read_answer(_code(booked[0]) if booked else text, one_of(self.choices))
        chosen = next((room for room in self.rooms if room.code == (said.value or "").upper()), None)
        if chosen is None:
            return said.graded(self.expected, Reason.NO_ANSWER, "no such room")
        if self.breaks_constraint(chosen):
            return said.graded(
                self.expected, Reason.CONSTRAINT_BROKEN, f"{chosen.line} was ruled out: {self.constraint}"
            )
        reason, place = (Reason.CORRECT, "the") if chosen.code == self.expected else (Reason.WRONG, "not the")
        return said.graded(self.expected, reason, f"{chosen.line} is allowed and {place} cheapest")

    def describe(self) -> str:
        """`rare constraint, seed 3: 6 rooms, company ruled out 8 steps before; → QXLM`."""
        return (
            f"rare constraint, seed {self.seed}: {len(self.rooms)} rooms, {self.forbidden.value} ruled out "
            f"{self.distance} steps before; → {self.expected}"
        )

    def distractors(self) -> Iterator[str]:
        """All that was said and done, but the lines of rooms, the constraint and the question."""
        lines = {room.line for room in self.rooms}
        for turn in self.trajectory.turns[1:-1]:
            if isinstance(turn, ToolStep):
                yield turn.text
                yield from (call.arguments for call in turn.calls)
                for result in turn.results:
                    yield from (line for line in result.content.splitlines() if line not in lines)


def rare_constraint(
    seed: int, *, rooms: int = 6, distance: int = 8, forbidden: Forbidden = Forbidden.COMPANY
) -> RareConstraint:
    """A booking with `rooms` rooms in the first three steps of `distance`; the two cheapest rooms are ruled out."""
    if rooms < 4 or distance < _SEARCHES:
        raise UsageError(
            f"Expected at least 4 rooms and {_SEARCHES} steps, but rooms={rooms}, distance={distance} came."
        )
    rng = draws("rare-constraint", seed)
    bad, offered = _drawn(rng, rooms, forbidden)
    traveller, *others = people(rng, 5)
    constraint = {
        Forbidden.COMPANY: f"nothing of {bad}, whatever it costs",
        Forbidden.FEATURE: f"no room {bad}, whatever it costs",
    }[forbidden]
    turns: list[Turn] = [
        UserTurn(text=f"I need a room for {traveller}. One thing before you begin: {constraint}.")
    ]
    shown = list(offered)
    rng.shuffle(shown)
    steps = [
        *(_search(rng, shown[place::_SEARCHES]) for place in range(_SEARCHES)),
        *(_aside(rng, others) for _ in range(distance - _SEARCHES)),
    ]
    turns += [_step(place, *made) for place, made in enumerate(steps)]
    turns.append(
        UserTurn(text="Which is the cheapest room that will do? " + ANSWER_LINE.format(form="its code"))
    )
    return RareConstraint(
        seed=seed,
        trajectory=Trajectory(system=SYSTEM, tools=TOOLS, turns=tuple(turns)),
        expected=next(room.code for room in offered if room.about(forbidden) != bad),
        choices=tuple(sorted(room.code for room in offered)),
        rooms=tuple(shown),
        forbidden=forbidden,
        forbidden_value=bad,
        constraint=constraint,
        distance=distance,
    )


_SEARCHES: Final = 3


def _drawn(rng: random.Random, rooms: int, forbidden: Forbidden) -> tuple[str, list[Room]]:
    """What is ruled out, and the rooms by price: the two cheapest are ruled out, the next is not."""
    companies: list[str] = []
    for _ in range(3):
        companies.append(company(rng, companies))
    features = rng.sample(FEATURES, len(FEATURES))
    about_company = forbidden is Forbidden.COMPANY
    (bad, *good), free = (companies, features) if about_company else (features, companies)
    prices = sorted(rng.sample(range(61, 400), rooms))
    made: list[Room] = []
    for place, (code, price) in enumerate(zip(letter_codes(rng, rooms), prices, strict=True)):
        # Place 2 is the answer; of the dearer ones some are ruled out as well.
        ruled_out = place < 2 or (place > 2 and rng.random() < 0.3)
        judged, any_other = bad if ruled_out else rng.choice(good), rng.choice(free)
        name, feature = (judged, any_other) if about_company else (any_other, judged)
        made.append(Room(code=code, company=name, feature=feature, price=price))
    return bad, made


def _search(rng: random.Random, rooms: Sequence[Room]) -> tuple[str, str, dict[str, str], str]:
    quarter = rng.choice(("harbour", "old town", "station", "university", "park"))
    lines = "\n".join(room.line for room in rooms) or "Nothing is free."
    return f"I look in the {quarter} quarter.", SEARCH, {"quarter": quarter}, lines


def _aside(rng: random.Random, others: Sequence[str]) -> tuple[str, str, dict[str, str], str]:
    name = rng.choice(others)
    options = (
        ("When is the train?", "look_up_train", {"route": "coast line"}, "Every hour until the evening."),
        ("I keep that in mind.", "take_note", {"text": f"{name} travels too."}, "Written down."),
        ("Is the line open?", "look_up_train", {"route": "valley line"}, f"Open, says {name} at the desk."),
        ("For the bill.", "take_note", {"text": f"The bill goes to {name}."}, "Written down."),
    )
    return rng.choice(options)


def _step(place: int, says: str, name: str, arguments: dict[str, str], result: str) -> ToolStep:
    call = ToolCall(id=f"step-{place:03d}", name=name, arguments=json.dumps(arguments))
    return ToolStep(calls=(call,), results=(ToolResult(call_id=call.id, content=result),), text=says)


def _code(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments)
    except json.JSONDecodeError:
        return ""
    code = arguments.get("code") if isinstance(arguments, dict) else None
    return code if isinstance(code, str) else ""
