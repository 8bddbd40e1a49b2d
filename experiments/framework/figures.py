"""Figures as data, and their drawing: PNG, SVG and the numbers behind them, the same bytes each time."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from experiments.framework.journal import write_whole
from experiments.framework.plain import visible

if TYPE_CHECKING:
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
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")
    """File name without its ending."""
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


class StackedFigure(BaseModel):
    """Horizontal bars split by cause; the parts of a bar add up to its length."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["stacked"] = "stacked"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")
    title: str
    axis: str
    parts: tuple[str, ...] = Field(min_length=1)
    stacks: tuple[Stack, ...] = Field(min_length=1)
    caption: str = ""

    @model_validator(mode="after")
    def _one_value_a_part(self) -> Self:
        for stack in self.stacks:
            if len(stack.values) != len(self.parts):
                raise ValueError(
                    f"{stack.label!r} has {len(stack.values)} values for {len(self.parts)} parts"
                )
        return self


Row = tuple[str | float | None, ...]
"""A label and its numbers; `None` is unknown."""
FigureData = Annotated[BarFigure | StackedFigure, Field(discriminator="kind")]


@dataclass(frozen=True)
class DrawnFigure:
    """A figure with its pictures in memory and where they were written."""

    data: BarFigure | StackedFigure
    svg: bytes
    files: tuple[Path, ...]


def draw(data: BarFigure | StackedFigure, folder: Path) -> DrawnFigure:
    """Write `name.png`, `.svg`, `.json` and `.csv` into `folder`; the same data gives the same SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = len(data.bars) if isinstance(data, BarFigure) else len(data.stacks)
    style: dict[Any, Any] = {  # matplotlib types its keys as one Literal of them all
        "svg.hashsalt": data.name,
        "svg.fonttype": "none",
        "text.parse_math": False,  # a "$" in a label is a dollar
        "font.family": "DejaVu Sans",
        "font.size": 10,
    }
    with mpl.rc_context(style):
        keys = 0 if isinstance(data, BarFigure) else len(data.parts)
        figure = Figure(figsize=(9.0, 1.4 + max(0.36 * rows, 0.24 * keys)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        if isinstance(data, BarFigure):
            _bars(axes, data)
        else:
            _stacks(axes, data)
        _dress(axes, data, rows)
        png = _save(figure, "png", {"Software": None})
        svg = _save(figure, "svg", {"Date": None, "Creator": None})
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"png": png, "svg": svg, "json": _as_json(data), "csv": _as_csv(data)}
    for ending, content in contents.items():
        write_whole(folder / f"{data.name}.{ending}", content)
    return DrawnFigure(
        data=data, svg=svg, files=tuple(folder / f"{data.name}.{ending}" for ending in contents)
    )


def table_of(data: BarFigure | StackedFigure) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Give the numbers behind a figure as column names and rows: the CSV, and the text under the picture."""
    if isinstance(data, BarFigure):
        columns: tuple[str, ...] = ("label", "value", "low", "high")
        return columns, tuple((bar.label, bar.value, bar.low, bar.high) for bar in data.bars)
    return ("label", *data.parts), tuple((stack.label, *stack.values) for stack in data.stacks)


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
    left = [0.0] * len(data.stacks)
    handles = []
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
    names = [_short(name) for name in data.parts]
    axes.legend(
        handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0
    )


def _dress(axes: Axes, data: BarFigure | StackedFigure, rows: int) -> None:
    labels = (
        [bar.label for bar in data.bars] if isinstance(data, BarFigure) else [s.label for s in data.stacks]
    )
    axes.set_yticks(range(rows), labels=[_short(label) for label in labels])
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlabel(_short(data.axis, 100))
    axes.set_title(_short(data.title, 90), loc="left", fontsize=11, fontweight="bold")
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _save(figure: Figure, form: str, metadata: dict[str, None]) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=form, metadata=metadata, dpi=150, facecolor="white")
    return target.getvalue()


def _short(label: str, limit: int = 34) -> str:
    shown = visible(label[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _as_json(data: BarFigure | StackedFigure) -> bytes:
    return json.dumps(data.model_dump(mode="json"), indent=2).encode("ascii") + b"\n"


def _as_csv(data: BarFigure | StackedFigure) -> bytes:
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
