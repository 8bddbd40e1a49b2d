"""From a difference to a named cause: one detector a subject, asked in order, first answer wins."""

from __future__ import annotations

from serving.explain.causes import MissCause
from serving.explain.detectors.arguments import reprinted_arguments
from serving.explain.detectors.call_form import call_form
from serving.explain.detectors.closing import closing_lines
from serving.explain.detectors.finding import Detector, Finding
from serving.explain.detectors.history import changed_history
from serving.explain.detectors.moved import whole_messages
from serving.explain.detectors.reasoning import moved_reasoning
from serving.explain.detectors.retokenised import retokenised
from serving.explain.detectors.template import asymmetry, other_arguments, system_merge, template_date
from serving.explain.detectors.tools import tool_definitions, tool_order, tool_set
from serving.explain.detectors.volatile import passing_clock, volatile
from serving.explain.detectors.whitespace import whitespace
from serving.explain.difference import Difference

__all__ = ["DETECTORS", "Detector", "Finding", "name_cause"]

DETECTORS: tuple[Detector, ...] = (
    retokenised,
    other_arguments,
    tool_order,
    tool_set,
    template_date,
    whole_messages,
    volatile,
    passing_clock,
    tool_definitions,
    system_merge,
    moved_reasoning,
    asymmetry,
    call_form,
    reprinted_arguments,
    whitespace,
    closing_lines,
    changed_history,
)
"""In the order in which they are asked: the narrower proof before the wider one."""


def name_cause(difference: Difference) -> Finding:
    """The first detector's finding, or UNKNOWN: the ids differ and nothing here proves why."""
    for detector in DETECTORS:
        if (found := detector(difference)) is not None:
            return found
    return Finding(
        MissCause.UNKNOWN,
        "The ids differ here and nothing in the two requests proves why: compare both texts.",
    )
