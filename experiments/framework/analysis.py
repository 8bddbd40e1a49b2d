"""What a study concludes: one computed sentence, tables and figures as data, exclusions."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from experiments.framework.figures import FigureData

Cell = bool | int | float | str | None
"""A table cell; `None` is shown as unknown."""


class Table(BaseModel):
    """A titled table; every row is as long as `columns`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


class Exclusion(BaseModel):
    """Trials that no statistic counts, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str
    trials: int


class Analysis(BaseModel):
    """The result of `Study.analyse`, in data that a report can show and a test can check."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    conclusion: str
    """Computed from the records: other numbers must give another sentence."""
    tables: tuple[Table, ...] = ()
    figures: tuple[FigureData, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
