"""Two more figures as data: lines over a number, and a grid of colours with bands along its sides."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FigureName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")]
"""A file name without its ending."""
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito, "Color Universal Design" (2008), those that are clear on white as thin lines first."""
RAMP: Final = ("#ffffff", "#d8e8f6", "#a3c8e6", "#5e9bd0", "#2c66a6", "#143a72", "#0b1a3a")
"""From nothing to all, always darker: it can be read without its hue."""
DASHES: Final = ("-", "--", ":", "-.")


class Line(BaseModel):
    """One line: a value at every place of the figure; `None` is unknown and leaves a gap."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    label: str
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    """Lower bounds of the values; empty: no interval is drawn."""
    high: tuple[float | None, ...] = ()


class LineFigure(BaseModel):
    """Lines over one axis of numbers, with shaded intervals where they are known."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["lines"] = "lines"
    name: FigureName
    title: str
    axis: str
    """What the places mean, with their unit."""
    value_axis: str
    """What the height means, with its unit."""
    places: tuple[float, ...] = Field(min_length=1)
    lines: tuple[Line, ...] = Field(min_length=1)
    even: float | None = None
    """A height with a thin line of its own: chance, an even spread."""
    log: bool = False
    caption: str = ""

    @model_validator(mode="after")
    def _one_value_a_place(self) -> Self:
        for line in self.lines:
            for values in (line.values, line.low, line.high):
                if values and len(values) != len(self.places):
                    raise ValueError(f"{line.label!r} has {len(values)} values for {len(self.places)} places")
        if any(one >= other for one, other in pairwise(self.places)):
            raise ValueError(f"places must rise, got {self.places}")
        return self


class Band(BaseModel):
    """Cells [start, end) of both sides of a grid belong together under a label."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    start: float
    end: float
    label: str
    colour: Annotated[str, Field(pattern=r"^#[0-9A-Fa-f]{6}$")]


class GridFigure(BaseModel):
    """Cells coloured by a value; row 0 on top. With `bands`, both sides are the same sequence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["grid"] = "grid"
    name: FigureName
    title: str
    axis: str
    """What the columns are."""
    row_axis: str
    value_axis: str
    """What the colour means."""
    columns: tuple[str, ...] = Field(min_length=1)
    rows: tuple[str, ...] = Field(min_length=1)
    values: tuple[tuple[float | None, ...], ...]
    least: Annotated[float, Field(gt=0)] = 1e-4
    """Where the logarithmic colours begin; they end at 1, or at the largest value beyond."""
    bands: tuple[Band, ...] = ()
    caption: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(self.values) != len(self.rows) or any(len(row) != len(self.columns) for row in self.values):
            raise ValueError(f"values are {len(self.rows)} rows of {len(self.columns)}")
        return self


def draw_lines(axes: Axes, data: LineFigure) -> None:
    """Draw the lines and name them beside the plot."""
    for number, line in enumerate(data.lines):
        colour = COLOURS[number % len(COLOURS)]
        heights = [float("nan") if value is None else value for value in line.values]
        dash = DASHES[number // len(COLOURS) % len(DASHES)]
        mark = "o" if len(data.places) <= 16 else ""
        axes.plot(
            data.places, heights, color=colour, linestyle=dash, linewidth=1.6, marker=mark, markersize=4
        )
        axes.lines[-1].set_label(short(line.label))
        if line.low and line.high:
            known = [
                (place, low, high)
                for place, low, high in zip(data.places, line.low, line.high, strict=True)
                if low is not None and high is not None
            ]
            if known:
                places, low, high = zip(*known, strict=True)
                axes.fill_between(places, low, high, color=colour, alpha=0.16, linewidth=0)
    if data.even is not None:
        axes.axhline(data.even, color="black", linewidth=0.7, linestyle=(0, (1, 3)))
    if data.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    axes.set_ylabel(short(data.value_axis, 60))
    if len(data.lines) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0)


def draw_grid(axes: Axes, data: GridFigure) -> None:
    """Draw the cells, the colour scale, and the bands or the labels of rows and columns."""
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    values = np.array([[np.nan if cell is None else cell for cell in row] for row in data.values])
    largest = max(1.0, float(np.nanmax(values))) if np.isfinite(values).any() else 1.0
    shown = np.where(
        values > 0, np.maximum(values, data.least), np.where(np.isnan(values), np.nan, data.least)
    )
    image = axes.imshow(
        shown,
        norm=LogNorm(data.least, largest),
        cmap=LinearSegmentedColormap.from_list("ramp", RAMP),
        aspect="equal" if data.bands else "auto",
        interpolation="nearest",
    )
    figure = axes.get_figure()
    assert figure is not None
    scale = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02)
    scale.ax.yaxis.set_major_formatter("{x:g}")
    scale.set_label(short(data.value_axis, 60))
    axes.set_ylabel(short(data.row_axis, 60))
    if data.bands:
        _draw_bands(axes, data)
        return
    for names, ticks, most in ((data.columns, axes.set_xticks, 20), (data.rows, axes.set_yticks, 40)):
        every = -(-len(names) // most)
        ticks(range(0, len(names), every), labels=[short(name, 28) for name in names[::every]])


def _draw_bands(axes: Axes, data: GridFigure) -> None:
    """A strip of colour beside both sides; labels where there is room, the widest first."""
    from matplotlib.patches import Rectangle

    count = len(data.rows)
    thick = count / 45
    axes.set_xlim(-0.5 - 1.4 * thick, count - 0.5)
    axes.set_ylim(count - 0.5 + 1.4 * thick, -0.5)
    labels: list[Band] = []
    for band in sorted(data.bands, key=lambda band: band.start - band.end):
        start, size = band.start - 0.5, band.end - band.start
        for corner, wide, high in (
            ((-0.5 - 1.3 * thick, start), thick, size),
            ((start, count - 0.5 + 0.3 * thick), size, thick),
        ):
            axes.add_patch(Rectangle(corner, wide, high, facecolor=band.colour, edgecolor="none"))
        middle = (band.start + band.end) / 2
        if all(abs(middle - (one.start + one.end) / 2) > count / 32 for one in labels) and band.label:
            labels.append(band)
    labels.sort(key=lambda band: band.start)
    places = [(band.start + band.end) / 2 - 0.5 for band in labels]
    axes.set_yticks(places, labels=[short(band.label, 24) for band in labels], fontsize=8)
    axes.set_xticks(places, labels=[short(band.label, 24) for band in labels], rotation=90, fontsize=8)
    axes.tick_params(length=0)


def grid_table(data: GridFigure) -> tuple[tuple[str, ...], tuple[tuple[str | float | None, ...], ...]]:
    """The numbers of a grid as column names and rows."""
    rows = tuple((name, *values) for name, values in zip(data.rows, data.values, strict=True))
    return (data.row_axis, *data.columns), rows


def line_table(data: LineFigure) -> tuple[tuple[str, ...], tuple[tuple[str | float | None, ...], ...]]:
    """The numbers of all lines, one row a place; bounds follow their line."""
    columns: list[str] = [data.axis]
    parts: list[tuple[float | None, ...]] = [data.places]
    for line in data.lines:
        columns.append(line.label)
        parts.append(line.values)
        if line.low and line.high:
            columns += [f"{line.label}, low", f"{line.label}, high"]
            parts += [line.low, line.high]
    return tuple(columns), tuple(zip(*parts, strict=True))


def short(label: str, limit: int = 34) -> str:
    """The label with nothing hidden in it, cut with an ellipsis."""
    shown = visible(label[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"
