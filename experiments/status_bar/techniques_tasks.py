"""Four kinds of tasks for an agent with files, a clock and a telephone, five variants of each, drawn from a seed.

Each kind needs what one or two techniques of the status bar show: a limit of calls (counters), several files
(TODO list), a file that is not where it is said to be (errors), the place and the time (system state,
timestamps). All of them can be solved without a bar.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from pydantic import Field

from experiments.agent.tools.phone import NO_ANSWER
from experiments.workloads.scenario import draws
from experiments.workloads.words import FIRST_NAMES, LAST_NAMES, codes
from serving.assembler.record import Instant, Record
from serving.errors import UsageError

VARIANTS: Final = 5


class TaskKind(StrEnum):
    """What is hard about a task."""

    PHONE = "phone"
    """Calls are limited, and nobody may answer."""
    FILES = "files"
    """Several files, each easily forgotten."""
    LOST_FILE = "lost-file"
    """The first read fails."""
    PLACE = "place"
    """Asks where the agent is and when it was asked."""


class Wanted(Record):
    """A file that has to be there in the end, and the texts that are right in it."""

    path: str
    """From the working directory."""
    accepted: tuple[str, ...] = Field(min_length=1)


class Work(Record):
    """One piece of work as the TODO list shows it; done as soon as one of its files is there."""

    text: str
    paths: tuple[str, ...] = Field(min_length=1)


class PhoneLimit(Record):
    """Whom to call, and how often."""

    number: str
    answers: tuple[str, ...] = Field(min_length=1)
    """What is heard, call after call; the last one for ever."""
    limit: int = Field(ge=1)
    needed: int = Field(ge=1)
    """Calls of an agent that does as it is told: up to the one that is answered, or all of them."""


class BarTask(Record):
    """What the user asks, the world it is asked in, and what must hold when the agent is done."""

    kind: TaskKind
    variant: int
    seed: int
    text: str
    directory: str
    """Where the agent stands, from the root."""
    files: tuple[tuple[str, str], ...] = ()
    """Path from the working directory, and text; none of them may be changed."""
    asked_at: Instant
    wanted: tuple[Wanted, ...] = Field(min_length=1)
    unwanted: tuple[str, ...] = ()
    """Files that only an agent makes that answers both ways."""
    phone: PhoneLimit | None = None
    work: tuple[Work, ...] = Field(min_length=1)


def bar_task(kind: TaskKind, variant: int, seed: int) -> BarTask:
    """The task of a kind, a variant (0 … 4) and a seed, which draws names, numbers and words.

    Raises: UsageError for another variant or a negative seed.
    """
    if not 0 <= variant < VARIANTS or seed < 0:
        raise UsageError(
            f"Expected a variant of 0 to {VARIANTS - 1} and a seed of 0 or more for a task, got {variant} and {seed}."
        )
    rng = draws(f"bar-task/{kind}/{variant}", seed)
    directory = f"projects/{rng.choice(_PROJECTS)}"
    asked_at = datetime(2026, 1, 5, 8, tzinfo=UTC) + timedelta(
        days=rng.randrange(20), minutes=rng.randrange(600)
    )
    made = _MAKERS[kind](rng, variant, directory, asked_at)
    return BarTask.model_validate(
        {
            "kind": kind,
            "variant": variant,
            "seed": seed,
            "directory": directory,
            "asked_at": asked_at,
            **made,
        }
    )


Made = Mapping[str, object]

_PROJECTS: Final = ("heron", "lark", "otter", "plover", "stoat", "wren", "badger", "curlew")
_ITEMS: Final = (
    "apple", "bread", "candle", "drum", "engine", "feather", "glove", "hammer", "island", "jacket", "kettle",
    "lemon", "mirror", "needle", "orange", "pencil",
)  # fmt: skip
_FILES: Final = (
    "red", "blue", "green", "grey", "black", "white", "brown", "pink", "gold", "silver", "violet", "amber",
)  # fmt: skip

_CALLS: Final = ((2, None), (3, 2), (3, None), (1, None), (2, 2))
"""By variant: the limit, and the call that is answered."""


def _phone(rng: random.Random, variant: int, directory: str, asked_at: datetime) -> Made:
    limit, answered = _CALLS[variant]
    name = f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"
    number = f"555-{rng.randrange(200, 10_000):04d}"
    code = codes(rng, 1, 4)[0]
    answer = f"{name} speaking. The code is {code}."
    times = "once" if limit == 1 else f"up to {limit} times in all"
    reached = Wanted(path="code.txt", accepted=(code,))
    left = Wanted(path="note.txt", accepted=("not reached",))
    return {
        "text": f"Call {name} at {number}, {times}, until somebody answers. If somebody answers, write the code that "
        f"you hear, and nothing else, into code.txt. If nobody answers, write the words `not reached` into note.txt.",
        "wanted": (reached if answered else left,),
        "unwanted": (left.path if answered else reached.path,),
        "phone": PhoneLimit(
            number=number,
            answers=(*[NO_ANSWER] * ((answered or 2) - 1), answer if answered else NO_ANSWER),
            limit=limit,
            needed=answered or limit,
        ),
        "work": (Work(text=f"call {name}, then write code.txt or note.txt", paths=("code.txt", "note.txt")),),
    }


_COUNTS: Final = (3, 4, 5, 6, 4)
"""Files by variant; those of the last one lie in a folder that has to be made."""


def _files(rng: random.Random, variant: int, directory: str, asked_at: datetime) -> Made:
    count = _COUNTS[variant]
    folder = "lists/" if variant == VARIANTS - 1 else ""
    wanted = tuple(
        Wanted(path=f"{folder}{name}.txt", accepted=(item,))
        for name, item in zip(rng.sample(_FILES, count), rng.sample(_ITEMS, count), strict=True)
    )
    listed = ", ".join(f"{one.path} with the word {one.accepted[0]}" for one in wanted)
    return {
        "text": f"Write these {count} files, each with one word and nothing else: {listed}.",
        "wanted": wanted,
        "work": tuple(
            Work(text=f"write {one.path} with the word {one.accepted[0]}", paths=(one.path,))
            for one in wanted
        ),
    }


_MOVED: Final = (
    ("config/server.txt", "archive/server.txt"),
    ("server.txt", "server.md"),
    ("data/server.txt", "data/2025/server.txt"),
    ("server.txt", "services/lark/server.txt"),
    ("hosts/server.txt", "hosts/server-old.txt"),
)
"""By variant: where the file is said to be, and where it is."""


def _lost_file(rng: random.Random, variant: int, directory: str, asked_at: datetime) -> Made:
    said, real = _MOVED[variant]
    port, other = codes(rng, 2, 4)
    owner = rng.choice(FIRST_NAMES)
    return {
        "text": f"Read {said} and write the port number that stands in it, and nothing else, into port.txt.",
        "files": (
            (real, f"host: {rng.choice(_PROJECTS)}\nport: {port}\nowner: {owner}\n"),
            ("readme.txt", f"Room {other}. Ask {owner}.\n"),
        ),
        "wanted": (Wanted(path="port.txt", accepted=(port,)),),
        "work": (Work(text=f"write the port number from {said} into port.txt", paths=("port.txt",)),),
    }


_ASKED: Final = (("cwd", "asked"), ("asked", "date"), ("cwd", "date"), ("asked",), ("cwd", "date", "asked"))
"""What is asked by variant."""


def _place(rng: random.Random, variant: int, directory: str, asked_at: datetime) -> Made:
    # Without a bar the first chance to learn the time is a tool call, one minute later at best.
    minutes = tuple(f"{asked_at + timedelta(minutes=late):%H:%M}" for late in (0, 1))
    parts = {
        "cwd": (
            "the full path of your working directory into where.txt",
            Wanted(path="where.txt", accepted=(f"/{directory}",)),
        ),
        "asked": (
            "the time in UTC, as HH:MM, at which I sent this message into asked.txt",
            Wanted(path="asked.txt", accepted=(*minutes, *(f"{minute} UTC" for minute in minutes))),
        ),
        "date": (
            "the date of today, as YYYY-MM-DD, into date.txt",
            Wanted(path="date.txt", accepted=(f"{asked_at:%Y-%m-%d}",)),
        ),
    }
    chosen = [parts[name] for name in _ASKED[variant]]
    return {
        "text": f"Write {'; write '.join(words for words, _ in chosen)}. Write nothing else into any file.",
        "wanted": tuple(wanted for _, wanted in chosen),
        "work": tuple(Work(text=f"write {words}", paths=(wanted.path,)) for words, wanted in chosen),
    }


_MAKERS: Final[Mapping[TaskKind, Callable[[random.Random, int, str, datetime], Made]]] = MappingProxyType(
    {
        TaskKind.PHONE: _phone,
        TaskKind.FILES: _files,
        TaskKind.LOST_FILE: _lost_file,
        TaskKind.PLACE: _place,
    }
)
