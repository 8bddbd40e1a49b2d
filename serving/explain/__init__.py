"""From a cache miss to the message, the item and the cause behind it."""

from __future__ import annotations

from serving.explain.causes import MissCause, advice
from serving.explain.detectors import Finding, name_cause
from serving.explain.difference import Difference, difference
from serving.explain.first_break import FirstBreak, first_break
from serving.explain.miss import Miss, explain_miss
from serving.explain.place import Place, Segment
from serving.explain.turn import Turn, turn_of

__all__ = [
    "Difference",
    "Finding",
    "FirstBreak",
    "Miss",
    "MissCause",
    "Place",
    "Segment",
    "Turn",
    "advice",
    "difference",
    "explain_miss",
    "first_break",
    "name_cause",
    "turn_of",
]
