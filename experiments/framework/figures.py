"""Figures as data, and their drawing: PNG, SVG and the numbers behind them, the same bytes each time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

from experiments.framework.crosses import CrossFigure, cross_table, draw_crosses
from experiments.framework.journal import write_whole
from experiments.framework.plots import (
    FigureName,
    GridFigure,
    LineFigure,
    draw_grid,
    draw_lines,
    grid_table,
    line_table,
    short,
)
from experiments.framework.statistics import Interval
from serving.text import visible

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Okabe and Ito, "Color Universal Design" (2008): told apart with every common colour blindness."""
HATCHES = ("", "///", "...", "xxx")
"""After eight parts the colours repeat with another hatch, so that print and more parts still work."""


class Bar(BaseModel):
    """One horizontal bar; `None` bounds draw no whisker, a `None` value draws no bar and says unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, label: str, interval: Interval | None) -> Bar:
        """The bar of an estimate with its bounds; unknown without one."""
        if interval is None:
            return cls(label=label, value=None)
        return cls(label=label, value=interval.estimate, low=interval.low, high=interval.high)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        # A percentile interval may leave its estimate outside, so only the bounds are checked.
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low must not exceed high, got {self.low} and {self.high}")
        return self


class BarFigure(BaseModel):
    """Horizontal bars with intervals, first bar on top."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["bars"] = "bars"
    name: FigureName
    title: str
    axis: str
    """What the length means, with its unit."""
    bars: tuple[Bar, ...] = Field(min_length=1)
    caption: str = ""


class Stack(BaseModel):
    """One horizontal bar made of parts, in the order of `StackedFigure.parts`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    label: str
    values: tuple[Annotated[float, Field(ge=0)], ...]
    mark: float | None = None
    """A length to hold the bar's parts against, drawn as a line across it; None: none is known."""


class StackedFigure(BaseModel):
    """Horizontal bars split by cause; the parts of a bar add up to its length."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["stacked"] = "stacked"
    name: FigureName
    title: str
    axis: str
    parts: tuple[str, ...] = Field(min_length=1)
    stacks: tuple[Stack, ...] = Field(min_length=1)
    mark: str = ""
    """What the marks mean; empty: no stack has one."""
    caption: str = ""

    @model_validator(mode="after")
    def _one_value_a_part(self) -> Self:
        for stack in self.stacks:
            if len(stack.values) != len(self.parts):
                raise ValueError(
                    f"{stack.label!r} has {len(stack.values)} values for {len(self.parts)} parts"
                )
            if stack.mark is not None and not self.mark:
                raise ValueError(f"{stack.label!r} has a mark, and the figure does not say what it means")
        return self


class ScatterFigure(BaseModel):
    """Points of two numbers each, both axes logarithmic and alike, with the line on which both are equal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["scatter"] = "scatter"
    name: FigureName
    title: str
    axis: str
    """What the horizontal number means, with its unit."""
    other_axis: str
    points: tuple[tuple[PositiveFloat, PositiveFloat], ...] = Field(min_length=1)
    caption: str = ""


Row = tuple[str | float | None, ...]
"""A label and its numbers; `None` is unknown."""
AnyFigure = BarFigure | StackedFigure | ScatterFigure | LineFigure | GridFigure | CrossFigure
FigureData = Annotated[AnyFigure, Field(discriminator="kind")]


@dataclass(frozen=True)
class DrawnFigure:
    """A figure with its pictures in memory and where they were written."""

    data: AnyFigure
    svg: bytes
    files: tuple[Path, ...]


def draw(data: AnyFigure, folder: Path) -> DrawnFigure:
    """Write `name.png`, `.svg`, `.json` and `.csv` into `folder`; the same data gives the same SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {  # matplotlib types its keys as one Literal of them all
        "svg.hashsalt": data.name,
        "svg.fonttype": "none",
        "text.parse_math": False,  # a "$" in a label is a dollar
        "font.family": "DejaVu Sans",
        "font.size": 10,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=_size(data), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        match data:
            case BarFigure():
                _bars(axes, data)
                _label_rows(axes, [bar.label for bar in data.bars])
            case StackedFigure():
                _stacks(axes, data)
                _label_rows(axes, [stack.label for stack in data.stacks])
            case ScatterFigure():
                _points(axes, data)
            case LineFigure():
                draw_lines(axes, data)
            case GridFigure():
                draw_grid(axes, data)
            case CrossFigure():
                draw_crosses(axes, data)
        _dress(axes, data)
        png = _save(figure, "png", {"Software": None})
        svg = _save(figure, "svg", {"Date": None, "Creator": None})
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"png": png, "svg": svg, "json": _as_json(data), "csv": _as_csv(data)}
    for ending, content in contents.items():
        write_whole(folder / f"{data.name}.{ending}", content)
    return DrawnFigure(
        data=data, svg=svg, files=tuple(folder / f"{data.name}.{ending}" for ending in contents)
    )


def table_of(data: AnyFigure) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Give the numbers behind a figure as column names and rows: the CSV, and the text under the picture."""
    if isinstance(data, BarFigure):
        columns: tuple[str, ...] = ("label", "value", "low", "high")
        return columns, tuple((bar.label, bar.value, bar.low, bar.high) for bar in data.bars)
    if isinstance(data, ScatterFigure):
        return (data.axis, data.other_axis), data.points
    if isinstance(data, LineFigure):
        return line_table(data)
    if isinstance(data, GridFigure):
        return grid_table(data)
    if isinstance(data, CrossFigure):
        return cross_table(data)
    if not data.mark:
        return ("label", *data.parts), tuple((stack.label, *stack.values) for stack in data.stacks)
    return ("label", *data.parts, data.mark), tuple(
        (stack.label, *stack.values, stack.mark) for stack in data.stacks
    )


def _size(data: AnyFigure) -> tuple[float, float]:
    match data:
        case BarFigure():
            return 9.0, 1.4 + 0.36 * len(data.bars)
        case StackedFigure():
            return 9.0, 1.4 + max(0.36 * len(data.stacks), 0.24 * len(data.parts))
        case ScatterFigure():
            return 6.4, 5.4
        case LineFigure():
            return 9.0, 3.8
        case CrossFigure():
            return 9.0, 4.8
        case GridFigure() if data.bands:
            return 9.0, 7.4
        case GridFigure():
            return 9.0, 1.6 + 0.22 * min(len(data.rows), 40)


def _bars(axes: Axes, data: BarFigure) -> None:
    for row, bar in enumerate(data.bars):
        if bar.value is None:
            axes.text(0, row, " unknown", va="center", style="italic")
            continue
        axes.barh(row, bar.value, color=COLOURS[4], height=0.62)
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [row, row], color="black", linewidth=1.4, solid_capstyle="butt")
            for end in (bar.low, bar.high):
                axes.plot([end, end], [row - 0.14, row + 0.14], color="black", linewidth=1.4)
    axes.axvline(0, color="black", linewidth=0.8)


def _stacks(axes: Axes, data: StackedFigure) -> None:
    from matplotlib.lines import Line2D

    left = [0.0] * len(data.stacks)
    handles: list[Artist | tuple[Artist, ...]] = []
    for part in range(len(data.parts)):
        widths = [stack.values[part] for stack in data.stacks]
        drawn = axes.barh(
            range(len(data.stacks)),
            widths,
            left=left,
            height=0.62,
            color=COLOURS[part % len(COLOURS)],
            hatch=HATCHES[part // len(COLOURS) % len(HATCHES)],
            edgecolor="white",
            linewidth=0.6,
        )
        handles.append(drawn)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    names = [short(name) for name in data.parts]
    for row, stack in enumerate(data.stacks):
        if stack.mark is not None:
            axes.plot([stack.mark, stack.mark], [row - 0.42, row + 0.42], color="black", linewidth=1.6)
    if data.mark:
        handles.append(Line2D([], [], color="black", linewidth=1.6))
        names.append(short(data.mark))
    axes.legend(
        handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0
    )


def _points(axes: Axes, data: ScatterFigure) -> None:
    across, up = zip(*data.points, strict=True)
    low, high = 0.9 * min(*across, *up), 1.1 * max(*across, *up)
    axes.plot([low, high], [low, high], color="black", linewidth=0.8)
    axes.scatter(across, up, s=14, color=COLOURS[0], alpha=0.55, linewidths=0)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set_ylabel(short(data.other_axis, 100))
    for numbers in (axes.xaxis, axes.yaxis):
        numbers.set_major_formatter("{x:g}")
        numbers.set_minor_formatter("")


def _label_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels=[short(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _dress(axes: Axes, data: AnyFigure) -> None:
    axes.set_xlabel(short(data.axis, 100))
    axes.set_title(short(data.title, 90), loc="left", fontsize=11, fontweight="bold")
    if not isinstance(data, GridFigure):
        both = isinstance(data, ScatterFigure | LineFigure | CrossFigure)
        axes.grid(axis="both" if both else "x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, form: str, metadata: dict[str, None]) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=form, metadata=metadata, dpi=150, facecolor="white")
    return target.getvalue()


def _as_json(data: AnyFigure) -> bytes:
    return json.dumps(data.model_dump(mode="json"), indent=2).encode("ascii") + b"\n"


def _as_csv(data: AnyFigure) -> bytes:
    columns, rows = table_of(data)
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
    return target.getvalue().encode("utf-8", "backslashreplace")


def _csv_cell(cell: str | float | None) -> str | float:
    if cell is None:
        return ""
    return visible(cell) if isinstance(cell, str) else cell
