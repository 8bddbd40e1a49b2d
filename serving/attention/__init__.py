"""What a model looked at: exact attention statistics in linear memory, joined to the context's items."""

from __future__ import annotations

from serving.attention.capture import Capture, ModelIdentity
from serving.attention.options import CaptureOptions, RowMode, Statistic
from serving.attention.run import AttentionModel, capture
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
    "AttentionModel",
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
    "capture",
    "plain_segments",
]
