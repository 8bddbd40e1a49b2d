"""The names that the studies, their records and their tables share."""

from __future__ import annotations

from typing import Final

TOOL_ROLE: Final = "tool-role"
"""The base: calls and results in the structure that the template has for them."""
USER_ROLE: Final = "user-role"
TEXT: Final = "text-transcript"
SWAPPED: Final = "results-swapped"
LATE_SYSTEM: Final = "late-system"
REMINDER_HEAD: Final = "reminder-head"
"""The sentence of the late system message at the head: tells its words from its place."""
IDS_KEPT: Final = "ids-kept"
THINKING_OFF: Final = "thinking-off"
DROPPED: Final = "reasoning-dropped"
ECHOED: Final = "reasoning-echoed"

LOST: Final = "avoidable_"
"""Before the name of a cause: avoidable tokens of a replay."""
DRIFT: Final = "drift_"
"""Before the name of a cause: requests of a turn that do not extend the one before and its answer."""
