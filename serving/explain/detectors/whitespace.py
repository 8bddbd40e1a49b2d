"""The same words with other white space."""

from __future__ import annotations

from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding
from serving.explain.difference import Difference


def whitespace(difference: Difference) -> Finding | None:
    """One text of one message changed, and only its spaces and line breaks."""
    change = difference.change
    if change is None or not change.stored.split() or change.stored.split() != change.sent.split():
        return None
    lost = len(change.stored) - len(change.sent)
    how = (
        f"{abs(lost)} white-space characters {'fewer' if lost > 0 else 'more'}"
        if lost
        else "other white space"
    )
    return Finding(
        MissCause.WHITESPACE,
        f"The {change.field} of message {change.message_index} has the same words and {how}.",
    )
