"""The arms of the study `status-bar`: what the bar says, where it stands, what carries it, and how copies go on."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from experiments.framework import Arm
from experiments.framework.arms import NULL_REBUILD
from experiments.workloads import PhoneBar
from experiments.workloads.phone_bars import Wording
from serving.assembler import Carrier
from serving.assembler.break_even import BarMode

BASE: Final = "count-and-verdict"
NO_BAR: Final = "no-bar"
FILLER: Final = "filler"
WRONG: Final = "wrong-by-one"


class BarPlace(StrEnum):
    """Where the bar stands."""

    BEFORE_QUESTION = "before_question"
    """Behind the last step, as the request before the question carried it."""
    AFTER_QUESTION = "after_question"
    """The last thing in the prompt: the dynamic suffix."""
    SYSTEM_PROMPT = "system_prompt"
    """At the head, as many harnesses do: whatever stands behind it is computed again at every update."""


def _bar(name: str, bar: PhoneBar, title: str, why: str) -> Arm:
    return Arm(name=name, title=title, why=why, factors={"harness.bar": bar.value})


ARMS: Final = (
    Arm(
        name=BASE,
        title="Count and verdict",
        why="The bar says how many calls were made and whether one is left, directly before the question.",
    ),
    Arm(
        name=NULL_REBUILD,
        title="Rebuilt (null)",
        why="The same context from a stored copy: the same ids must give the same answers.",
        factors={"harness.rebuild": True},
    ),
    _bar(NO_BAR, PhoneBar.NONE, "No bar", "The calls stand in the log alone and have to be counted."),
    _bar(
        "count",
        PhoneBar.COUNT,
        "Count only",
        "The bar says how many calls were made; the limit is in the task.",
    ),
    Arm(
        name="short",
        title="Short wording",
        why="The same facts in fewer words that are not those of the question: how much hangs on the phrase.",
        factors={"harness.bar_wording": Wording.SHORT.value},
    ),
    _bar("prose", PhoneBar.PROSE, "Prose", "Count and verdict as a sentence."),
    _bar(
        FILLER,
        PhoneBar.FILLER,
        "Filler",
        "As many tokens at the same place that say nothing of use: what a bar's mere presence does.",
    ),
    _bar(
        WRONG,
        PhoneBar.WRONG_BY_ONE,
        "Wrong by one",
        "A bar whose count and verdict are wrong: is it believed?",
    ),
    Arm(
        name="after-question",
        title="Behind the question",
        why="The same bar as the last thing in the prompt, so that the question is read before it.",
        factors={"harness.bar_place": BarPlace.AFTER_QUESTION.value},
    ),
    Arm(
        name="system-prompt",
        title="In the system prompt",
        why="The same bar at the head, far from the question; in a running agent every update would cost the prefix.",
        factors={"harness.bar_place": BarPlace.SYSTEM_PROMPT.value},
    ),
    Arm(
        name="in-tool-result",
        title="At the end of the tool result",
        why="The same bar inside the last tool result, where a tool's words stand.",
        factors={"policy.carrier": Carrier.TAIL_OF_LAST_TOOL_RESULT.value},
    ),
    Arm(
        name="as-tool-response",
        title="As a tool response",
        why="The same bar in a user message that looks like a tool's result.",
        factors={"policy.carrier": Carrier.TOOL_RESPONSE.value},
    ),
    Arm(
        name="append",
        title="All copies stay",
        why="A bar after every step and none taken back: old counts stand beside the newest one.",
        factors={"policy.bar_mode": BarMode.APPEND.value},
    ),
)
