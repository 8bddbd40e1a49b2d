"""A figure of points with intervals both ways: two outcomes of each arm in one plane, both from a common base."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from experiments.framework.plots import COLOURS, FigureName, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS: Final = "os^Dvp*Xh<>P"
"""Shapes beside colours, so that points can be told apart in print."""


class Cross(BaseModel):
    """One point; `None` bounds draw no whisker."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    label: str
    across: float
    across_low: float | None = None
    across_high: float | None = None
    up: float
    up_low: float | None = None
    up_high: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for low, high in ((self.across_low, self.across_high), (self.up_low, self.up_high)):
            if low is not None and high is not None and low > high:
                raise ValueError(f"low must not exceed high, got {low} and {high}")
        return self


class CrossFigure(BaseModel):
    """Points over two differences; the lines through zero are where nothing changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["crosses"] = "crosses"
    name: FigureName
    title: str
    axis: str
    """What lies to the right, with its unit."""
    other_axis: str
    """What lies up, with its unit."""
    crosses: Annotated[tuple[Cross, ...], Field(min_length=1)]
    caption: str = ""


def draw_crosses(axes: Axes, data: CrossFigure) -> None:
    """Draw the zero lines, the points with their whiskers, and name them beside the plot."""
    axes.axhline(0, color="black", linewidth=0.8)
    axes.axvline(0, color="black", linewidth=0.8)
    for number, cross in enumerate(data.crosses):
        colour = COLOURS[number % len(COLOURS)]
        if cross.across_low is not None and cross.across_high is not None:
            axes.plot(
                [cross.across_low, cross.across_high], [cross.up, cross.up], color=colour, linewidth=1.2
            )
        if cross.up_low is not None and cross.up_high is not None:
            axes.plot(
                [cross.across, cross.across], [cross.up_low, cross.up_high], color=colour, linewidth=1.2
            )
        mark = MARKS[number % len(MARKS)]
        axes.plot([cross.across], [cross.up], mark, color=colour, markersize=7, label=short(cross.label))
    axes.set_ylabel(short(data.other_axis, 80))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0)


def cross_table(data: CrossFigure) -> tuple[tuple[str, ...], tuple[tuple[str | float | None, ...], ...]]:
    """The numbers of all points, one row each."""
    columns = ("label", data.axis, "low", "high", data.other_axis, "low of that", "high of that")
    return columns, tuple(
        (one.label, one.across, one.across_low, one.across_high, one.up, one.up_low, one.up_high)
        for one in data.crosses
    )
