"""A capture as figures: maps with their segments, masses by layer, and what changes with depth and position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from experiments.framework import Band, GridFigure, Line, LineFigure
from serving.attention import Capture, SegmentKind
from serving.attention.capture import Floats
from serving.attention.measures import mass_from
from serving.attention.views import layer_profile, maps_apart, position_curve

BAND_COLOURS: Final = {
    SegmentKind.SINK: "#000000",
    SegmentKind.FRAMING: "#9A9A9A",
    SegmentKind.TOOL: "#E69F00",
    SegmentKind.USER: "#009E73",
    SegmentKind.MEMORY: "#009E73",
    SegmentKind.THINKING: "#CC79A7",
    SegmentKind.ANSWER: "#D55E00",
    SegmentKind.TOOL_CALL: "#D55E00",
    SegmentKind.TOOL_RESULT: "#56B4E9",
    SegmentKind.EVIDENCE: "#56B4E9",
    SegmentKind.SUMMARY: "#56B4E9",
    SegmentKind.STATE: "#F0E442",
    SegmentKind.STATUS_BAR: "#F0E442",
}
"""The page's colours; every other kind is blue."""

_BLUE: Final = "#0072B2"


def capture_figures(
    capture: Capture, *, name: str = "", layers: Sequence[int] | None = None
) -> Iterator[GridFigure | LineFigure]:
    """Maps of `layers` (first, middle and last where None; mean over heads), masses, and curves.

    `name` goes before every file's name. What the capture does not hold is left out.
    """
    prefix = f"{name}-" if name else ""
    chosen = layers if layers is not None else _spread(capture.layers)
    maps = maps_apart(capture)
    if maps is not None:
        for layer in chosen:
            yield map_figure(
                capture,
                maps.mean.rest[capture.layer(layer)],
                maps.mean.width,
                name=f"{prefix}map-layer-{layer:02d}",
                title=f"Layer {layer}, mean over heads",
            )
        yield map_figure(
            capture,
            maps.mean.rest.mean(0),
            maps.mean.width,
            name=f"{prefix}map-mean",
            title="Mean over layers and heads",
        )
    yield mass_figure(capture, name=f"{prefix}mass-by-layer")
    yield from profile_figures(capture, prefix)
    yield from position_figures(capture, prefix)


def map_figure(capture: Capture, values: Floats, width: int, *, name: str, title: str) -> GridFigure:
    """One pooled map ([B, B] without the sink, bins of `width` tokens) with the segments as bands."""
    bins = values.shape[0]
    cells = tuple(
        tuple(None if key > row else round(float(values[row, key]), 6) for key in range(bins))
        for row in range(bins)
    )
    places = tuple(str(place * width) for place in range(bins))
    return GridFigure(
        name=name,
        title=title,
        axis="keys (what is looked at)",
        row_axis="rows (what looks)",
        value_axis=f"share of a row's attention in {width} tokens",
        columns=places,
        rows=places,
        values=cells,
        bands=tuple(_bands(capture, width)),
        caption="Attention mass, pooled so that a row keeps its sum but for the sink (token 0), which is left "
        "out: where heads looked, not what mattered.",
    )


def _bands(capture: Capture, width: int) -> Iterator[Band]:
    for run in capture.segments.runs:
        segment = capture.segments.segments[run.segment]
        yield Band(
            start=run.start / width,
            end=run.end / width,
            label="" if segment.kind in (SegmentKind.FRAMING, SegmentKind.SINK) else segment.label,
            colour=BAND_COLOURS.get(segment.kind, _BLUE),
        )


def mass_figure(capture: Capture, *, name: str) -> GridFigure:
    """Mass per segment and layer, mean over heads and all captured rows."""
    masses = mass_from(capture).mean(1)
    return GridFigure(
        name=name,
        title="Attention mass per segment and layer",
        axis="layer",
        row_axis="segment",
        value_axis="share of a row's attention",
        columns=tuple(str(layer) for layer in capture.layers),
        rows=tuple(segment.label for segment in capture.segments.segments),
        values=tuple(tuple(round(float(value), 6) for value in column) for column in masses.T),
        caption="Mean over heads and all captured rows; the segments of a layer sum to 1.",
    )


def profile_figures(capture: Capture, prefix: str = "") -> Iterator[LineFigure]:
    """Sink share, entropy and distance by layer."""
    profile = layer_profile(capture)
    for part, values, title, unit in (
        ("sink", profile.sink, "Attention on the sink by layer", "share of a row on token 0"),
        ("entropy", profile.entropy, "Entropy of attention by layer", "nats"),
        ("distance", profile.distance, "How far back attention looks", "mean tokens back"),
    ):
        if values is not None:
            yield LineFigure(
                name=f"{prefix}{part}-by-layer",
                title=title,
                axis="layer",
                value_axis=unit,
                places=tuple(map(float, capture.layers)),
                lines=(Line(label="mean over heads and rows", values=tuple(map(float, values))),),
            )


def position_figures(capture: Capture, prefix: str = "") -> Iterator[LineFigure]:
    """Mass received by place: attention, not accuracy."""
    curve = position_curve(capture)
    if curve is not None:
        middles = tuple((start + end - 1) / 2 for start, end in zip(curve.starts, curve.ends, strict=True))
        yield LineFigure(
            name=f"{prefix}attention-by-position",
            title="Attention by position: attention, not accuracy",
            axis="token",
            value_axis="mass received ÷ an even spread",
            places=middles,
            lines=(
                Line(label="mean over layers and heads", values=tuple(map(float, curve.times_even.mean(0)))),
            ),
            even=1.0,
            log=True,
            caption="1 is what the same rows would give if they spread evenly over all keys they see; the sink is "
            "left out.",
        )


def _spread(layers: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((layers[0], layers[len(layers) // 2], layers[-1])))
