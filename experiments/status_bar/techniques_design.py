"""The design of `status-bar-techniques`: five techniques, sixteen runs, and what each technique says of itself.

A half fraction of the 2⁵ factorial with the defining relation I = −ABCDE: the runs with an even number of
techniques on, none of them included. Its resolution is V, so main effects are mixed up with interactions of four
techniques alone, and those of two with those of three. Source: Box, Hunter and Hunter, Statistics for
Experimenters (2005), chapter 6.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from math import prod
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from experiments.framework import Arm
from experiments.framework.arms import NULL_REBUILD
from serving.assembler import BarPolicy, ContextPolicy
from serving.assembler.status_bar import ErrorLevel, Technique

NONE: Final = "none"

SHORT: Final[Mapping[Technique, str]] = MappingProxyType(
    {
        Technique.SYSTEM_STATE: "system",
        Technique.TIMESTAMPS: "times",
        Technique.CALL_COUNTERS: "counters",
        Technique.TODO: "todo",
        Technique.ERRORS: "errors",
    }
)
"""For names of arms."""

WORDS: Final[Mapping[Technique, str]] = MappingProxyType(
    {
        Technique.SYSTEM_STATE: "system state",
        Technique.TIMESTAMPS: "timestamps",
        Technique.CALL_COUNTERS: "call counters",
        Technique.TODO: "TODO list",
        Technique.ERRORS: "errors",
    }
)
"""For readers."""

HEAD: Final = (
    "You are an agent that works in a folder of files. Do everything that the user asks, one tool call after another: "
    "write_file writes a file, read_file reads one, find_files finds one, make_call calls a number, get_time and "
    "current_directory tell the time and the place. A call names one of these tools and nothing else, such as "
    '{"name": "write_file", "arguments": {"path": "a.txt", "text": "tree"}}. Write each file exactly as asked, with '
    "nothing added. When all is done, call finish."
)
"""The system prompt of every arm, before the sentences of its techniques."""

SENTENCES: Final[Mapping[Technique, str]] = MappingProxyType(
    {
        Technique.SYSTEM_STATE: "The agent_status at the end shows the time now and the working directory (cwd): take "
        "them from there.",
        Technique.TIMESTAMPS: "The agent_status at the end shows when the user wrote and when the last result came.",
        Technique.CALL_COUNTERS: "The agent_status at the end counts the calls of each tool, as made/allowed: call on "
        "while some are left, and never call a tool that has none left.",
        Technique.TODO: "The agent_status at the end lists the work as todo: go on until no item is pending.",
        Technique.ERRORS: "The agent_status at the end lists the calls that failed and why: never repeat one of them, "
        "find another way.",
    }
)
"""What the system prompt says of each technique; switched with it, for neither means anything alone."""

FACTORS: Final[Mapping[Technique, str]] = MappingProxyType(
    {technique: f"harness.technique.{technique.value}" for technique in Technique}
)
"""One factor a technique: its lines of the bar, which are `policy.status_bar`, and its sentence."""

PAIRS: Final = tuple(combinations(Technique, 2))


def fraction() -> tuple[frozenset[Technique], ...]:
    """The sixteen subsets with an even number of techniques, the smaller ones first."""
    return tuple(frozenset(subset) for size in (0, 2, 4) for subset in combinations(Technique, size))


def sign(term: Collection[Technique], on: Collection[Technique]) -> int:
    """+1 or −1: the product of the coded settings of the techniques of a term in one run."""
    return prod(1 if technique in on else -1 for technique in term)


def arm_name(on: Collection[Technique]) -> str:
    """`none`, or the techniques that are on."""
    return "-".join(SHORT[technique] for technique in Technique if technique in on) or NONE


def techniques_of(factors: Mapping[str, JsonValue]) -> frozenset[Technique]:
    """Those that an arm's factors switch on."""
    return frozenset(technique for technique, path in FACTORS.items() if factors[path] is True)


def system_prompt(on: Collection[Technique]) -> str:
    """The head, and the sentence of each technique that is on."""
    return " ".join((HEAD, *(SENTENCES[technique] for technique in Technique if technique in on)))


def policy_of(on: frozenset[Technique]) -> ContextPolicy:
    """A bar of these techniques, replaced from call to call; none where nothing is on."""
    if not on:
        return ContextPolicy()
    return ContextPolicy(status_bar=BarPolicy(techniques=on, error_level=ErrorLevel.ARGUMENTS))


def _arm(on: frozenset[Technique]) -> Arm:
    if not on:
        return Arm(
            name=NONE, title="None", why="No bar, and no sentence about one: all five techniques are off."
        )
    words = [WORDS[technique] for technique in Technique if technique in on]
    listed = f"{', '.join(words[:-1])} and {words[-1]}"
    return Arm(
        name=arm_name(on),
        title=listed[0].upper() + listed[1:],
        why=f"The bar shows {listed}, and the system prompt says so. One of the sixteen runs that the effects "
        "are computed from.",
        factors={FACTORS[technique]: True for technique in Technique if technique in on},
    )


ARMS: Final = (
    *map(_arm, fraction()),
    Arm(
        name=NULL_REBUILD,
        title="None, rebuilt (null)",
        why="The bytes of the arm without a technique, built anew from a stored copy. Any difference to it is the "
        "noise of the measurement.",
        factors={"harness.rebuild": True},
    ),
)
