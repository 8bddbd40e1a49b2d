"""What every study shares: arms, trials, the runner, records, statistics, figures, the report.

A study is one file:

    class Clock(Study[str]):
        name, title = "clock", "A clock in the prompt"
        question = "What does a clock at the head of the prompt cost?"
        base = {"fault.clock": None, "harness.rebuild": False, "engine.block_size": 16}
        declared = frozenset({"fault.clock", "harness.rebuild"})
        null_arm = "null"
        arms = (
            Arm(name="append", title="Append-only", why="Keeps the prefix."),
            Arm(name="null", title="Rebuilt", why="The same bytes again.", factors={"harness.rebuild": True}),
            Arm(name="head", title="Clock first", why="Breaks it.", factors={"fault.clock": "head"}),
        )
        sizes = (Size(name="quick", tasks=1, seeds=3), Size(name="full", tasks=4, seeds=20))

        def run_trial(self, spec, context):
            cached = 0 if context.factors["fault.clock"] else 96  # a real one sends with context.salt
            call = CallRecord(prompt_tokens=100 + spec.seed, cached_tokens=cached, predicted_tokens=cached)
            return TrialOutcome(calls=(call,), measures={"uncached": 100 + spec.seed - cached})

        def analyse(self, records):
            effect = paired_effect(
                by_cluster(records, "head", "uncached"),
                by_cluster(records, "append", "uncached"),
                numpy.random.default_rng(0),
            )
            added = effect.interval.estimate
            return Analysis(conclusion=f"The clock adds {added:.0f} uncached tokens a call.")

    @contextmanager
    def serve(engine):  # starts what the engine.* factors ask for
        yield Served(target="http://127.0.0.1:8000", environment={"vllm": "0.32.0"})

    run_study(Clock(), Clock.sizes[0], folder=Path("runs/clock"), serve=serve)
    publish(Clock(), Path("runs/clock"))
"""

from __future__ import annotations

from experiments.framework.analysis import Analysis, Exclusion, Table
from experiments.framework.arms import Arm, ArmDiff, FactorPrefix
from experiments.framework.crosses import Cross, CrossFigure
from experiments.framework.executor import Limits
from experiments.framework.failures import InequalityError, InfrastructureError, StoppedError
from experiments.framework.figures import Bar, BarFigure, ScatterFigure, Stack, StackedFigure
from experiments.framework.plots import Band, GridFigure, Line, LineFigure
from experiments.framework.report import publish
from experiments.framework.runner import RunOptions, RunSummary, run_study
from experiments.framework.statistics import PairedEffect, by_cluster, paired_effect
from experiments.framework.study import SaltScope, Served, Size, Study, TrialContext
from experiments.framework.trials import CallRecord, TrialOutcome, TrialRecord, TrialSpec

__all__ = [
    "Analysis",
    "Arm",
    "ArmDiff",
    "Band",
    "Bar",
    "BarFigure",
    "CallRecord",
    "Cross",
    "CrossFigure",
    "Exclusion",
    "FactorPrefix",
    "GridFigure",
    "InequalityError",
    "InfrastructureError",
    "Limits",
    "Line",
    "LineFigure",
    "PairedEffect",
    "RunOptions",
    "RunSummary",
    "SaltScope",
    "ScatterFigure",
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
    "by_cluster",
    "paired_effect",
    "publish",
    "run_study",
]
