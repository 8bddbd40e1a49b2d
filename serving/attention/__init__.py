"""What a model looked at: exact attention statistics in linear memory, joined to the context's items."""

from __future__ import annotations

from serving.attention.capture import Capture, ModelIdentity
from serving.attention.estimate import Estimate
from serving.attention.measures import (
    HeadShare,
    Sink,
    Triangle,
    find_sinks,
    mass_from,
    rank_heads,
    triangle,
)
from serving.attention.options import CaptureOptions, RowMode, Statistic
from serving.attention.reading import Reading, item_label, read_body, read_packet, segments_from
from serving.attention.refuse import Unsupported, UnsupportedAttentionError
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
from serving.attention.storage import load_capture, save

__all__ = [
    "SINK",
    "AttentionModel",
    "Capture",
    "CaptureOptions",
    "Estimate",
    "HeadShare",
    "ModelIdentity",
    "Reading",
    "RowMode",
    "Run",
    "Segment",
    "SegmentKind",
    "Segments",
    "Sink",
    "Statistic",
    "Triangle",
    "Unsupported",
    "UnsupportedAttentionError",
    "build_segments",
    "capture",
    "find_sinks",
    "item_label",
    "load_capture",
    "mass_from",
    "plain_segments",
    "rank_heads",
    "read_body",
    "read_packet",
    "save",
    "segments_from",
    "triangle",
]
