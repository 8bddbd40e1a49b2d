"""What every study shares: arms, trials, the runner, records, statistics, figures, the report."""

from __future__ import annotations

from experiments.framework.analysis import Analysis, Exclusion, Table
from experiments.framework.arms import Arm, ArmDiff, FactorPrefix, factors_of
from experiments.framework.failures import InequalityError, InfrastructureError, StoppedError
from experiments.framework.figures import Bar, BarFigure, Stack, StackedFigure
from experiments.framework.report import publish
from experiments.framework.runner import RunOptions, RunSummary, run_study
from experiments.framework.study import Served, Size, Study, TrialContext
from experiments.framework.trials import CallRecord, TrialOutcome, TrialRecord, TrialSpec

__all__ = [
    "Analysis",
    "Arm",
    "ArmDiff",
    "Bar",
    "BarFigure",
    "CallRecord",
    "Exclusion",
    "FactorPrefix",
    "InequalityError",
    "InfrastructureError",
    "RunOptions",
    "RunSummary",
    "Served",
    "Size",
    "Stack",
    "StackedFigure",
    "StoppedError",
    "Study",
    "Table",
    "TrialContext",
    "TrialOutcome",
    "TrialRecord",
    "TrialSpec",
    "factors_of",
    "publish",
    "run_study",
]
