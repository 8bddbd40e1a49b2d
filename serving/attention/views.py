"""A capture as a reader wants it: named triangles, maps without the sink, curves, two contexts side by side.

Built on `measures.py`; masses are where heads looked, not what mattered. Means over heads and layers count every
head once, means over rows every captured row once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from serving.attention.capture import Capture, Floats
from serving.attention.measures import Triangle, mass_from, triangle
from serving.attention.segments import SegmentKind, Segments
from serving.errors import UsageError


@dataclass(frozen=True, slots=True, eq=False)
class NamedTriangle:
    """How much the rows of some parts give to some parts, beside what lengths and places alone would give."""

    name: str
    rows: int
    """Captured rows that look."""
    triangle: Triangle
    """By layer."""

    @property
    def mass(self) -> float:
        """Mean over layers."""
        return float(self.triangle.mass.mean())

    @property
    def expected(self) -> float | None:
        """The same with the context's parts in random order; None where no baseline was captured."""
        baseline = self.triangle.baseline
        return None if baseline is None else float(baseline.mean())

    @property
    def ratio(self) -> float | None:
        """Mass ÷ expected; None without a baseline, or where the baseline is nothing."""
        return self.mass / self.expected if self.expected else None


_PAIRS: Final = (
    ("thinking → itself", SegmentKind.THINKING, None),
    ("thinking → tool results", SegmentKind.THINKING, SegmentKind.TOOL_RESULT),
    ("thinking → tool contracts", SegmentKind.THINKING, SegmentKind.TOOL),
    ("thinking → user", SegmentKind.THINKING, SegmentKind.USER),
    ("answer → itself", SegmentKind.ANSWER, None),
    ("answer → thinking", SegmentKind.ANSWER, SegmentKind.THINKING),
    ("answer → tool results", SegmentKind.ANSWER, SegmentKind.TOOL_RESULT),
    ("answer → user", SegmentKind.ANSWER, SegmentKind.USER),
    ("answer → status bar", SegmentKind.ANSWER, SegmentKind.STATUS_BAR),
    ("tool calls → themselves", SegmentKind.TOOL_CALL, None),
    ("tool calls → tool contracts", SegmentKind.TOOL_CALL, SegmentKind.TOOL),
    ("tool results → themselves", SegmentKind.TOOL_RESULT, None),
)
"""A name, the kind that looks, and the kind that is read; None: every block reads itself."""


def triangles(capture: Capture) -> tuple[NamedTriangle, ...]:
    """The blocks of segment × segment mass that a reader of agent traces asks for, as far as they exist.

    `x → itself` is the triangle that a block makes on the diagonal: every block's mass on that very block.
    """
    found = []
    for name, looking, read in _PAIRS:
        places = [place for place in capture.segments.of_kind(looking) if capture.rows_in[place]]
        targets = None if read is None else _ids(capture, capture.segments.of_kind(read))
        if places and targets != []:
            rows = int(capture.rows_in[places].sum())
            sources = _ids(capture, places)
            blocks = _own_blocks(capture, places) if targets is None else triangle(capture, sources, targets)
            found.append(NamedTriangle(name, rows, blocks))
    # Exactly nothing: the parts that are read all stand behind the rows that look.
    return tuple(one for one in found if one.mass > 0)


def _ids(capture: Capture, places: Sequence[int]) -> list[str]:
    return [capture.segments.segments[place].id for place in places]


def _own_blocks(capture: Capture, places: Sequence[int]) -> Triangle:
    """Every block's mass on that very block; a long block counts by its rows."""
    weights = capture.rows_in[list(places)]
    blocks = [triangle(capture, [identity], [identity]) for identity in _ids(capture, places)]
    baselines = [block.baseline for block in blocks if block.baseline is not None]
    return Triangle(
        mass=np.average([block.mass for block in blocks], axis=0, weights=weights),
        baseline=np.average(baselines, axis=0, weights=weights) if baselines else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class MapApart:
    """A pooled map without the sink, and the sink beside it; together the bins of a row sum to what they did."""

    width: int
    """Tokens in a bin."""
    rest: Floats
    """[…, B, B]: token 0 taken out of the first column."""
    sink: Floats
    """[…, B]: the rows' mass on token 0."""


@dataclass(frozen=True, slots=True)
class MapsApart:
    """The maps of a capture: of every head, and mean and maximum over heads in twice the resolution."""

    head: MapApart
    mean: MapApart
    max: MapApart
    """From the maximum of the sum the sink's maximum is taken: in the first column a lower bound."""


def maps_apart(capture: Capture) -> MapsApart | None:
    """Set the sink apart from all pooled maps; None where none were captured.

    Exact where stored rows do not straddle bins (`viewer_options` sees to it); of one that does, every bin gets
    its share.
    """
    if capture.heatmap is None or capture.heatmap_mean is None or capture.heatmap_max is None:
        return None
    fine = -(-capture.tokens // (2 * capture.options.heatmap_bins))
    in_fine = capture.sink @ _rows_in_bins(capture, fine)
    in_coarse = capture.sink @ _rows_in_bins(capture, 2 * fine)
    return MapsApart(
        head=_apart(capture.heatmap, in_coarse, 2 * fine),
        mean=_apart(capture.heatmap_mean, in_fine.mean(1), fine),
        max=_apart(capture.heatmap_max, in_fine.max(1), fine),
    )


def _apart(maps: Floats, sink: Floats, width: int) -> MapApart:
    apart = np.minimum(sink, maps[..., 0])
    rest = maps.copy()
    rest[..., 0] -= apart
    return MapApart(width, rest, apart)


def _rows_in_bins(capture: Capture, width: int) -> Floats:
    """[R, B]: the weight of every stored row in the mean of a bin's rows."""
    edges = np.arange(0, capture.tokens + width, width)[: -(-capture.tokens // width) + 1]
    starts, ends = capture.row_starts[:, None], capture.row_ends[:, None]
    shared = np.clip(np.minimum(ends, edges[1:]) - np.maximum(starts, edges[:-1]), 0, None).astype(np.float32)
    weights: Floats = shared / np.maximum(shared.sum(0), 1)
    return weights


@dataclass(frozen=True, slots=True, eq=False)
class LayerProfile:
    """Means over heads and rows of every captured layer, [L] each; None where it was not captured.

    Row 0 sees itself alone and is left out where it has a stored row of its own.
    """

    sink: Floats
    entropy: Floats | None
    """Nats."""
    distance: Floats | None
    """Tokens back."""


def layer_profile(capture: Capture) -> LayerProfile:
    """Sink share, entropy and distance by depth."""
    weights = capture.row_counts.astype(np.float64)
    if len(weights) > 1 and capture.row_ends[0] == 1:
        weights[0] = 0

    def mean(values: Floats | None) -> Floats | None:
        return (
            None if values is None else np.average(values, axis=2, weights=weights).mean(1).astype(np.float32)
        )

    sink = mean(capture.sink)
    assert sink is not None
    return LayerProfile(sink=sink, entropy=mean(capture.entropy), distance=mean(capture.distance))


@dataclass(frozen=True, slots=True, eq=False)
class PositionCurve:
    """Mass by place in the context, as a multiple of an even spread. This is attention, not accuracy."""

    starts: tuple[int, ...]
    """[B]: first token of every bin; the sink (token 0) is in none."""
    ends: tuple[int, ...]
    times_even: Floats
    """[L, B]: mass received ÷ what the same rows would give if they spread evenly over all keys they see."""


def position_curve(capture: Capture, bins: int = 48) -> PositionCurve | None:
    """The curve over `bins` stretches of the context, mean over heads; None where `received` is missing."""
    tokens = capture.tokens
    if capture.received is None or tokens < 2:
        return None
    rows = np.concatenate(
        [np.arange(*ends) for ends in zip(capture.row_starts, capture.row_ends, strict=True)]
    )
    even = np.zeros(tokens)
    even[rows] = 1 / (rows + 1)
    even = np.cumsum(even[::-1])[::-1]
    cuts = np.unique(np.linspace(1, tokens, min(bins, tokens - 1) + 1).round().astype(int))
    got = np.add.reduceat(capture.received.mean(1, dtype=np.float64), cuts[:-1], axis=1)
    base = np.add.reduceat(even, cuts[:-1])
    return PositionCurve(
        starts=tuple(map(int, cuts[:-1])),
        ends=tuple(map(int, cuts[1:])),
        times_even=(got / np.where(base > 0, base, np.inf)).astype(np.float32),
    )


@dataclass(frozen=True, slots=True)
class SegmentPair:
    """One segment in two contexts; None where a context does not have it."""

    id: str
    label: str
    first: float | None
    second: float | None

    @property
    def change(self) -> float | None:
        """Second − first; None where one is missing."""
        return None if self.first is None or self.second is None else self.second - self.first


def align(first: Segments, second: Segments) -> tuple[tuple[int | None, int | None], ...]:
    """Places of equal segment ids in both, in the order of the second, then what only the first has."""
    places = {segment.id: place for place, segment in enumerate(first.segments)}
    pairs: list[tuple[int | None, int | None]] = [
        (places.pop(segment.id, None), place) for place, segment in enumerate(second.segments)
    ]
    return (*pairs, *((place, None) for place in places.values()))


def compare(first: Capture, second: Capture, sources: Sequence[str] = ()) -> tuple[SegmentPair, ...]:
    """Mean mass per segment in two contexts of one model, aligned by segment id.

    `sources` look, in both of them; none named: all rows. Raises: UsageError for two different models, and as
    `mass_from`.
    """
    if first.model != second.model:
        raise UsageError(
            f"Expected two captures of one model, got {first.model.name} and {second.model.name}; "
            "capture both contexts with the same weights."
        )
    masses = [mass_from(capture, sources).mean((0, 1)) for capture in (first, second)]
    pairs = []
    for one, other in align(first.segments, second.segments):
        segment = second.segments.segments[other] if other is not None else first.segments.segments[one or 0]
        pairs.append(
            SegmentPair(
                id=segment.id,
                label=segment.label,
                first=None if one is None else float(masses[0][one]),
                second=None if other is None else float(masses[1][other]),
            )
        )
    return tuple(pairs)
