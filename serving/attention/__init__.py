"""What a model looked at: exact attention statistics in linear memory, joined to the context's items."""

from __future__ import annotations

from serving.attention.capture import Capture, ModelIdentity
from serving.attention.options import CaptureOptions, RowMode, Statistic

from serving.attention.segments import (
    SINK,
    Run,
    Segment,
    SegmentKind,
    Segments,
    build_segments,
    plain_segments,
)

__all__ = [
    "SINK",
    "Capture",
    "CaptureOptions",
    "ModelIdentity",
    "RowMode",
    "Run",
    "Segment",
    "SegmentKind",
    "Segments",
    "Statistic",
    "build_segments",
    "plain_segments",
]
