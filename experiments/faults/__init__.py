"""Named sabotage, one file each: a step applied after layout that declares the invariants it breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from experiments.faults.arguments_reserialised import ArgumentsReserialised
from experiments.faults.base import BuildFault, FaultContext
from experiments.faults.clock_by_tool import ClockByTool
from experiments.faults.clock_in_last_message import ClockInLastMessage
from experiments.faults.clock_in_last_user_message import ClockInLastUserMessage
from experiments.faults.clock_in_system_head import ClockInSystemHead
from experiments.faults.clock_in_system_tail import ClockInSystemTail
from experiments.faults.clock_result_refreshed import ClockResultRefreshed
from experiments.faults.date_in_system_head import DateInSystemHead
from experiments.faults.late_system_message import LateSystemMessage
from experiments.faults.null import Null
from experiments.faults.parallel_results_swapped import ParallelResultsSwapped
from experiments.faults.profile_counter_in_first_message import ProfileCounterInFirstMessage
from experiments.faults.profile_in_first_message import ProfileInFirstMessage
from experiments.faults.reasoning_dropped import ReasoningDropped
from experiments.faults.reasoning_echoed import ReasoningEchoed
from experiments.faults.replacements_rotated import ReplacementsRotated
from experiments.faults.sliding_window import SlidingWindow
from experiments.faults.text_transcript import TextTranscript
from experiments.faults.text_transcript_moving_head import TextTranscriptMovingHead
from experiments.faults.tool_result_as_user import ToolResultAsUser
from experiments.faults.tools_appended import ToolsAppended
from experiments.faults.tools_by_use import ToolsByUse
from experiments.faults.tools_only_relevant import ToolsOnlyRelevant
from experiments.faults.tools_shuffled import ToolsShuffled
from serving.assembler import Fault
from serving.errors import UsageError

__all__ = ["FAULTS", "FaultContext", "build_faults"]

FAULTS: Mapping[str, BuildFault] = MappingProxyType(
    {
        "null": Null.build,
        "clock-in-system-head": ClockInSystemHead.build,
        "clock-in-system-tail": ClockInSystemTail.build,
        "clock-in-last-user-message": ClockInLastUserMessage.build,
        "clock-in-last-message": ClockInLastMessage.build,
        "clock-result-refreshed": ClockResultRefreshed.build,
        "clock-by-tool": ClockByTool.build,
        "date-in-system-head": DateInSystemHead.build,
        "profile-in-first-message": ProfileInFirstMessage.build,
        "profile-counter-in-first-message": ProfileCounterInFirstMessage.build,
        "tools-shuffled": ToolsShuffled.build,
        "tools-by-use": ToolsByUse.build,
        "tools-only-relevant": ToolsOnlyRelevant.build,
        "tools-appended": ToolsAppended.build,
        "sliding-window": SlidingWindow.build,
        "sliding-window-10": SlidingWindow.build_of_ten,
        "text-transcript": TextTranscript.build,
        "text-transcript-moving-head": TextTranscriptMovingHead.build,
        "tool-result-as-user": ToolResultAsUser.build,
        "late-system-message": LateSystemMessage.build,
        "parallel-results-swapped": ParallelResultsSwapped.build,
        "arguments-reserialised": ArgumentsReserialised.build,
        "reasoning-dropped": ReasoningDropped.build,
        "reasoning-echoed": ReasoningEchoed.build,
        "replacements-rotated": ReplacementsRotated.build,
    }
)
"""Every fault by the name under which a manifest and an arm's `fault.*` factor list it."""


def build_faults(names: Sequence[str], context: FaultContext) -> tuple[Fault, ...]:
    """The named faults for one call, in order; `UsageError` names one that does not exist."""
    for name in names:
        if name not in FAULTS:
            raise UsageError(f"There is no fault {name!r}; choose among {', '.join(FAULTS)}.")
    return tuple(FAULTS[name](context) for name in names)
