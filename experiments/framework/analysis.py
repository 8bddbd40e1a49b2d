"""What a study concludes: one computed sentence, tables and figures as data, exclusions."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from experiments.framework.arms import Arm
from experiments.framework.figures import FigureData
from experiments.framework.trials import TrialRecord
from serving.errors import UsageError

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


def arms_that_ran(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> list[Arm]:
    """The arms of which there is a record, in their order; `UsageError` where there is none of any."""
    met = {record.arm for record in records}
    ran = [arm for arm in arms if arm.name in met]
    if not ran:
        raise UsageError(
            f"No record is of an arm of this study; its arms are {', '.join(arm.name for arm in arms)}."
        )
    return ran
