"""From a capture to what the page holds: a header in JSON and the arrays that it points into.

The sink is set apart first: token 0's mass is taken out of a map's first column and kept exactly beside it. What
is left of a row goes into bytes; the page scales every row so that row and sink sum to 1 again, so rounding can
move mass between cells and never lose any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from pydantic import JsonValue

from serving.attention.capture import Capture
from serving.attention.measures import SINK_THRESHOLD, SINK_TOKENS, find_sinks, mass_from
from serving.attention.options import RowMode
from serving.attention.page.packing import Blob, linear_shorts, log_bytes, lower_triangle
from serving.attention.views import layer_profile, maps_apart, position_curve, triangles
from serving.text import visible

TOKEN_CHARACTERS: Final = 60
"""Of a token's text that the page shows; the longest tokens of real vocabularies are runs of spaces."""

HEAD_VALUES: Final = 1 << 21
"""Bytes that mass per head, looking segment and segment may take; earlier looking segments are left out."""

KEYS_LISTED: Final = 20


def capture_payload(capture: Capture, name: str, blob: Blob) -> JsonValue:
    """The header of one capture; its arrays go into `blob`."""
    model = capture.model
    pieces = capture.pieces or [f"[{token}]" for token in capture.token_ids]
    return {
        "name": visible(name, newlines=False),
        "model": visible(model.name, newlines=False),
        "weights": "random" if model.weights_sha256 is None else model.weights_sha256[:12],
        "tokens": capture.tokens,
        "promptTokens": capture.segments.prompt_tokens,
        "layers": list(capture.layers),
        "heads": list(capture.heads),
        "segments": [
            {
                "id": visible(segment.id, newlines=False),
                "label": visible(segment.label, newlines=False),
                "kind": segment.kind.value,
                "tokens": int(size),
                "rows": int(rows),
            }
            for segment, size, rows in zip(
                capture.segments.segments, capture.segments.sizes, capture.rows_in, strict=True
            )
        ],
        "runs": [[run.start, run.end, run.segment] for run in capture.segments.runs],
        "text": _token_text(pieces, blob),
        "maps": _maps(capture, blob),
        "between": _between(capture, blob),
        "triangles": _triangles(capture),
        "profile": _profile(capture),
        "position": _position(capture, blob),
        "resting": _resting(capture),
    }


def shown_piece(piece: str) -> str:
    """A token's text on one line, cut, with everything that acts or hides spelt out."""
    whole = piece.replace("\n", "↵").replace("\t", "⇥")
    cut = whole[:TOKEN_CHARACTERS]
    return visible(cut, newlines=False) + (f"… ({len(whole):,} characters)" if len(whole) > len(cut) else "")


def _token_text(pieces: Sequence[str], blob: Blob) -> JsonValue:
    words: dict[str, int] = {}
    places = [words.setdefault(shown_piece(piece), len(words)) for piece in pieces]
    return {"words": list(words), "places": blob.add(np.array(places, dtype=np.uint32))}


def _maps(capture: Capture, blob: Blob) -> JsonValue:
    """The maps by what they show: one for every head, mean and maximum over heads."""
    maps = maps_apart(capture)
    if maps is None:
        return None
    return {
        name: {
            "bins": one.rest.shape[-1],
            "width": one.width,
            "cells": blob.add(log_bytes(lower_triangle(one.rest))),
            "sink": blob.add(linear_shorts(one.sink)),
        }
        for name, one in (("head", maps.head), ("mean", maps.mean), ("max", maps.max))
    }


def _between(capture: Capture, blob: Blob) -> JsonValue:
    """Who gives how much to which segment: over heads for every looking segment, per head for the last ones."""
    parts = len(capture.segments.segments)
    per_source = len(capture.layers) * len(capture.heads) * parts
    looking = [place for place in range(parts) if capture.rows_in[place]]
    kept = looking[-max(1, HEAD_VALUES // per_source - 1) :]
    names = [capture.segments.segments[place].id for place in kept]
    by_head = [mass_from(capture), *(mass_from(capture, [name]) for name in names)]
    return {
        "all": blob.add(linear_shorts(mass_from(capture).mean(1))),
        "mean": blob.add(linear_shorts(capture.between.mean(1))),
        "baseline": None
        if capture.baseline is None
        else blob.add(linear_shorts(capture.baseline.mean((0, 1)))),
        "sources": [-1, *kept],
        "heads": blob.add(log_bytes(np.stack(by_head))),
    }


def _triangles(capture: Capture) -> JsonValue:
    return [
        {
            "name": triangle.name,
            "rows": triangle.rows,
            "mass": triangle.mass,
            "expected": triangle.expected,
            "ratio": triangle.ratio,
        }
        for triangle in triangles(capture)
    ]


def _profile(capture: Capture) -> JsonValue:
    profile = layer_profile(capture)
    return {
        "sink": profile.sink.tolist(),
        "entropy": None if profile.entropy is None else profile.entropy.tolist(),
        "distance": None if profile.distance is None else profile.distance.tolist(),
    }


def _position(capture: Capture, blob: Blob) -> JsonValue:
    curve = position_curve(capture)
    if curve is None:
        return None
    return {"starts": list(curve.starts), "ends": list(curve.ends), "timesEven": blob.add(curve.times_even)}


def _resting(capture: Capture) -> JsonValue:
    if capture.received is None or capture.options.rows is RowMode.CHOSEN:
        return None
    sinks = sorted(find_sinks(capture), key=lambda sink: -sink.share)
    return {
        "threshold": SINK_THRESHOLD,
        "length": SINK_TOKENS,
        "found": len(sinks),
        "keys": [[sink.position, sink.share] for sink in sinks[:KEYS_LISTED]],
    }
