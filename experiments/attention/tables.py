"""A capture as tables of numbers: what the page shows, as text and for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.framework import Table
from serving.attention import Capture, RowMode, SegmentKind
from serving.attention.measures import SINK_THRESHOLD, SINK_TOKENS, find_sinks, mass_from, rank_heads
from serving.attention.views import compare, layer_profile, triangles

HEADS_LISTED = 10
KEYS_LISTED = 10


def capture_tables(capture: Capture) -> Iterator[Table]:
    """Mass per segment, triangles, heads on the segment that is looked at most, layers, and sinks."""
    sources = looking_segment(capture)
    yield mass_table(capture, sources)
    yield triangle_table(capture)
    if (target := read_segment(capture, sources)) is not None:
        yield head_table(capture, target, sources)
    yield layer_table(capture)
    yield from sink_tables(capture)


def looking_segment(capture: Capture) -> tuple[str, ...]:
    """The last segment with captured rows that is not framing – the answer, or the newest message; else none."""
    for place in reversed(range(len(capture.segments.segments))):
        segment = capture.segments.segments[place]
        if capture.rows_in[place] and segment.kind not in (SegmentKind.FRAMING, SegmentKind.SINK):
            return (segment.id,)
    return ()


def read_segment(capture: Capture, sources: Sequence[str]) -> str | None:
    """The segment beside sink, framing and those that look which these give most."""
    masses = mass_from(capture, sources).mean((0, 1))
    apart = (SegmentKind.SINK, SegmentKind.FRAMING)
    left = [
        (float(masses[place]), segment.id)
        for place, segment in enumerate(capture.segments.segments)
        if segment.kind not in apart and segment.id not in sources
    ]
    return max(left)[1] if left else None


def mass_table(capture: Capture, sources: Sequence[str]) -> Table:
    """Tokens, mass, and mass beside the sink for every segment."""
    by_layer = mass_from(capture, sources).mean(1)
    masses = by_layer.mean(0)
    sinks = list(capture.segments.of_kind(SegmentKind.SINK))
    rest = 1 - float(masses[sinks].sum())
    expected = None
    if capture.baseline is not None and sources:
        expected = capture.baseline[:, :, capture.segments.index(sources[0])].mean((0, 1))
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
    looking = _label(capture, sources)
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


def head_table(capture: Capture, target: str, sources: Sequence[str]) -> Table:
    """The heads that give most to a segment."""
    ranked = rank_heads(capture, [target], sources)[:HEADS_LISTED]
    return Table(
        title=f"Heads that look at {_label(capture, [target])}",
        columns=("layer", "head", "mass share"),
        rows=tuple((one.layer, one.head, one.mass) for one in ranked),
    )


def _label(capture: Capture, ids: Sequence[str]) -> str:
    labels = [capture.segments.segments[capture.segments.index(identity)].label for identity in ids]
    return " and ".join(labels) or "all captured rows"


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


def sink_tables(capture: Capture) -> Iterator[Table]:
    """Keys that heads rest on; nothing where not all rows, or not what keys received, was captured."""
    if capture.received is None or capture.options.rows is RowMode.CHOSEN:
        return
    segments, owners = capture.segments.segments, capture.segments.by_token
    pieces = capture.pieces or [f"[{token}]" for token in capture.token_ids]
    sinks = sorted(find_sinks(capture), key=lambda sink: -sink.share)[:KEYS_LISTED]
    yield Table(
        title="Keys that heads rest on",
        columns=("token", "text", "segment", "share of heads"),
        rows=tuple(
            (one.position, pieces[one.position], segments[owners[one.position]].label, one.share)
            for one in sinks
        ),
        note=f"A head rests on a key that gets more than {SINK_THRESHOLD} of it on average over the rows that see it "
        f"(Gu et al., 2410.10781, over {SINK_TOKENS} tokens; here over {capture.tokens}).",
    )


def compare_table(first: Capture, second: Capture, names: tuple[str, str]) -> Table:
    """Two contexts, aligned by segment id, from the last looking segment that both have."""
    sources = _shared_sources(first, second)
    pairs = compare(first, second, sources)
    looking = _label(second, sources)
    return Table(
        title=f"{names[0]} and {names[1]}: attention mass from {looking}",
        columns=("segment", f"{names[0]} share", f"{names[1]} share", "change of share"),
        rows=tuple((pair.label, pair.first, pair.second, pair.change) for pair in pairs),
        note="Segments are the same where their ids are.",
    )


def _shared_sources(first: Capture, second: Capture) -> tuple[str, ...]:
    """The last segment with captured rows in both that is neither framing nor sink."""
    rows = {segment.id: count for segment, count in zip(first.segments.segments, first.rows_in, strict=True)}
    for segment, count in reversed(list(zip(second.segments.segments, second.rows_in, strict=True))):
        if segment.kind not in (SegmentKind.FRAMING, SegmentKind.SINK) and count and rows.get(segment.id):
            return (segment.id,)
    return ()
