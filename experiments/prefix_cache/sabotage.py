"""What the faults of one call may know, read off its request: the same in a replay and in the agent loop."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from experiments.faults import FaultContext, build_faults
from experiments.faults.base import reasoning_by_call
from serving.assembler import AssemblyRequest, Fault

BEGIN: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""When a run says it happened; call n is n × 37 s later, so that a clock never stands still."""
STEP: Final = timedelta(seconds=37)


def time_of(call: int) -> datetime:
    """The time at which call number `call` (from 0) is made."""
    return BEGIN + call * STEP


def faults_of(
    names: Sequence[str], request: AssemblyRequest, seed: int, *, always_offered: frozenset[str] = frozenset()
) -> tuple[Fault, ...]:
    """The named faults for a request: one call for every message of the model in its log, each at its time."""
    reasoning = reasoning_by_call(request)
    call = len(reasoning)
    return build_faults(
        names,
        FaultContext(
            call=call,
            now=time_of(call),
            seed=seed,
            times=tuple(time_of(earlier) for earlier in range(call)),
            reasoning=reasoning,
            # Nothing masked yet is nothing to reword; only where no policy masks does a fault choose itself.
            masked=frozenset(request.carry.masked),
            always_offered=always_offered,
        ),
    )
