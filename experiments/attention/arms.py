"""The arms of the study `attention`: a needle at eleven depths, cages to find or to count, and an agent's trace."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from experiments.framework import Arm
from experiments.framework.arms import NULL_REBUILD


class Question(StrEnum):
    """What is asked of which context."""

    NEEDLE = "needle"
    LOOK_UP = "look_up"
    COUNT = "count"
    COUNTED_BY_CODE = "counted_by_code"
    TRACE = "trace"


MIDDLE: Final = "needle-050"
"""The arm that the other depths are compared with."""

LOOK_UP: Final = "cage-look-up"
COUNT: Final = "cage-count"
BY_CODE: Final = "cage-count-by-code"
TRACE: Final = "trace"

DEPTHS: Final = tuple(round(0.1 * step, 1) for step in range(11))


def depth_name(depth: float) -> str:
    """`needle-030`"""
    return f"needle-{round(100 * depth):03d}"


def _depth(depth: float) -> Arm:
    return Arm(
        name=depth_name(depth),
        title=f"Needle at {depth:.0%}",
        why=f"The sentence with the answer stands at {depth:.0%} of the text.",
        factors={} if depth_name(depth) == MIDDLE else {"harness.depth": depth},
    )


ARMS: Final = (
    _depth(0.5),
    Arm(
        name=NULL_REBUILD,
        title="Rebuilt (null)",
        why="The needle in the middle again, from a stored copy: the same ids must give the same attention.",
        factors={"harness.rebuild": True},
    ),
    *(_depth(depth) for depth in DEPTHS if depth_name(depth) != MIDDLE),
    Arm(
        name=LOOK_UP,
        title="One cage is looked up",
        why="Retrieval: the answer stands in one line of the register.",
        factors={"harness.question": Question.LOOK_UP.value},
    ),
    Arm(
        name=COUNT,
        title="Cages are counted",
        why="The same register, and the answer stands in none of its lines: about a tenth of the cats has the colour.",
        factors={"harness.question": Question.COUNT.value},
    ),
    Arm(
        name=BY_CODE,
        title="Cages counted by code",
        why="The count is in the context, so that the question is retrieval again.",
        factors={"harness.question": Question.COUNTED_BY_CODE.value},
    ),
    Arm(
        name=TRACE,
        title="An agent's trace",
        why="Calls and results, then a free answer: who looks where inside an agent's context.",
        factors={"harness.question": Question.TRACE.value},
    ),
)
