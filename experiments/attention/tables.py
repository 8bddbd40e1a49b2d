"""A capture as tables of numbers: what the page shows, as text and for scripts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments.framework import Table
from serving.attention import Capture, SegmentKind
from serving.attention.views import (
    ROWS_FOR_SINK,
    SINK_LENGTH,
    SINK_THRESHOLD,
    compare,
    layer_profile,
    looked_at,
    rank_heads,
    resting_keys,
    triangles,
)

HEADS_LISTED = 10
KEYS_LISTED = 10


def capture_tables(capture: Capture) -> Iterator[Table]:
    """Mass per segment, triangles, heads on the segment that is looked at most, layers, and sinks."""
    source, target = looking_segment(capture), read_segment(capture)
    yield mass_table(capture, source)
    yield triangle_table(capture)
    yield head_table(capture, target, source)
    yield layer_table(capture)
    yield from resting_tables(capture)


def looking_segment(capture: Capture) -> int | None:
    """The last segment with captured rows that is not framing: the answer, or the newest message."""
    for place in reversed(range(len(capture.segments.segments))):
        kind = capture.segments.segments[place].kind
        if capture.rows_in[place] and kind not in (SegmentKind.FRAMING, SegmentKind.SINK):
            return place
    return None


def read_segment(capture: Capture) -> int:
    """The segment beside sink, framing and itself that the looking one gives most."""
    source = looking_segment(capture)
    masses = looked_at(capture, source).mean((0, 1))
    apart = capture.segments.of_kind(SegmentKind.SINK, SegmentKind.FRAMING)
    left = [place for place in range(len(masses)) if place not in apart and place != source]
    return max(left, key=lambda place: float(masses[place])) if left else 0


def mass_table(capture: Capture, source: int | None) -> Table:
    """Tokens, mass, and mass beside the sink for every segment."""
    by_layer = looked_at(capture, source).mean(1)
    masses = by_layer.mean(0)
    sinks = list(capture.segments.of_kind(SegmentKind.SINK))
    rest = 1 - float(masses[sinks].sum())
    expected = (
        None if capture.baseline is None or source is None else capture.baseline[:, :, source].mean((0, 1))
    )
    rows = []
    for place, (segment, size) in enumerate(
        zip(capture.segments.segments, capture.segments.sizes, strict=True)
    ):
        mass = float(masses[place])
        baseline = None if expected is None else float(expected[place])
        rows.append(
            (
                segment.label,
                segment.kind.value,
                int(size),
                mass,
                None if place in sinks or rest <= 0 else mass / rest,
                mass / baseline if baseline else None,
                int(capture.layers[int(by_layer[:, place].argmax())]),
            )
        )
    looking = "all captured rows" if source is None else capture.segments.segments[source].label
    return Table(
        title=f"Attention mass from {looking}",
        columns=(
            "segment",
            "kind",
            "tokens",
            "mass share",
            "share beside the sink",
            "× random order",
            "most in layer",
        ),
        rows=tuple(rows),
        note="Mean over rows, heads and layers; the mass shares sum to 1. Random order: the context's parts shuffled, "
        "the same heads.",
    )


def triangle_table(capture: Capture) -> Table:
    """The triangles against their baseline."""
    return Table(
        title="Triangles",
        columns=("who looks where", "rows", "mass share", "expected share", "mass ÷ expected"),
        rows=tuple((one.name, one.rows, one.mass, one.expected, one.ratio) for one in triangles(capture)),
        note="Expected: what parts of these lengths get with the same heads when they stand in random order.",
    )


def head_table(capture: Capture, target: int, source: int | None) -> Table:
    """The heads that give most to a segment."""
    ranked = rank_heads(capture, target, source, limit=HEADS_LISTED)
    return Table(
        title=f"Heads that look at {capture.segments.segments[target].label}",
        columns=("layer", "head", "mass share"),
        rows=tuple((one.layer, one.head, one.mass) for one in ranked),
    )


def layer_table(capture: Capture) -> Table:
    """Sink share, entropy and distance by layer."""
    profile = layer_profile(capture)
    empty = np.full(len(capture.layers), np.nan)
    columns = [profile.sink, *(empty if one is None else one for one in (profile.entropy, profile.distance))]
    return Table(
        title="By depth",
        columns=("layer", "sink share", "entropy, nats", "mean tokens back"),
        rows=tuple(
            (layer, *(None if np.isnan(column[place]) else float(column[place]) for column in columns))
            for place, layer in enumerate(capture.layers)
        ),
    )


def resting_tables(capture: Capture) -> Iterator[Table]:
    """Keys that heads rest on; nothing where `received` was not captured."""
    keys = resting_keys(capture)
    if keys is None:
        return
    segments, owners = capture.segments.segments, capture.segments.by_token
    heads = len(capture.layers) * len(capture.heads)
    pieces = capture.pieces or [f"[{token}]" for token in capture.token_ids]
    yield Table(
        title="Keys that heads rest on",
        columns=("token", "text", "segment", "heads", "of", "largest mean share"),
        rows=tuple(
            (key.token, pieces[key.token], segments[owners[key.token]].label, key.heads, heads, key.largest)
            for key in keys[:KEYS_LISTED]
        ),
        note=f"A head rests on a key that gets more than {SINK_THRESHOLD} of it on average over the rows that see it "
        f"(Gu et al., 2410.10781, over {SINK_LENGTH} tokens; here over {capture.tokens}, at least {ROWS_FOR_SINK} "
        "rows).",
    )


def compare_table(first: Capture, second: Capture, names: tuple[str, str]) -> Table:
    """Two contexts, aligned by segment id, from the last looking segment that both have."""
    source = _shared_source(first, second)
    pairs = compare(first, second, source)
    place = source[1]
    looking = "all captured rows" if place is None else second.segments.segments[place].label
    return Table(
        title=f"{names[0]} and {names[1]}: attention mass from {looking}",
        columns=("segment", f"{names[0]} share", f"{names[1]} share", "change of share"),
        rows=tuple((pair.label, pair.first, pair.second, pair.change) for pair in pairs),
        note="Segments are the same where their ids are.",
    )


def _shared_source(first: Capture, second: Capture) -> tuple[int | None, int | None]:
    for place in reversed(range(len(second.segments.segments))):
        segment = second.segments.segments[place]
        if segment.kind in (SegmentKind.FRAMING, SegmentKind.SINK) or not second.rows_in[place]:
            continue
        for other, one in enumerate(first.segments.segments):
            if one.id == segment.id and first.rows_in[other]:
                return other, place
    return None, None
