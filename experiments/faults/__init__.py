"""Named sabotage, one file each: a step applied after layout that declares the invariants it breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from experiments.faults.base import BuildFault, FaultContext
from experiments.faults.clock_in_last_message import ClockInLastMessage
from experiments.faults.clock_in_system_head import ClockInSystemHead
from experiments.faults.sliding_window import SlidingWindow
from experiments.faults.text_transcript import TextTranscript
from experiments.faults.tools_shuffled import ToolsShuffled
from serving.assembler import Fault
from serving.errors import UsageError

__all__ = ["FAULTS", "FaultContext", "build_faults"]

FAULTS: Mapping[str, BuildFault] = MappingProxyType(
    {
        "clock-in-system-head": ClockInSystemHead.build,
        "clock-in-last-message": ClockInLastMessage.build,
        "sliding-window": SlidingWindow.build,
        "text-transcript": TextTranscript.build,
        "tools-shuffled": ToolsShuffled.build,
    }
)
"""Every fault by the name under which a manifest and an arm's `fault.*` factor list it."""


def build_faults(names: Sequence[str], context: FaultContext) -> tuple[Fault, ...]:
    """The named faults for one call, in order; `UsageError` names one that does not exist."""
    for name in names:
        if name not in FAULTS:
            raise UsageError(f"There is no fault {name!r}; choose among {', '.join(FAULTS)}.")
    return tuple(FAULTS[name](context) for name in names)
