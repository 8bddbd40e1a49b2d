"""Compaction as data: a plan, the caller's model calls, and a checked record that the next request carries.

    plan = plan_compaction(log, policy, count=count, budget=budget, used=used, done=done, failures=failures)
    result = finish(plan, [ask(task) for task in plan.tasks], count)
    sent = apply_compactions(log, [*done, result])

Nothing here calls a model, and the log keeps every original.
"""

from __future__ import annotations

from serving.assembler.compaction.apply import apply_compactions
from serving.assembler.compaction.extractive import extractive
from serving.assembler.compaction.finish import call_failed, finish
from serving.assembler.compaction.plan import plan_compaction
from serving.assembler.compaction.policy import CompactionPolicy, OnUnsupported, Reach, Strategy
from serving.assembler.compaction.probes import Grade, Outcome, Probe, ProbeKind, Scores, grade, scores
from serving.assembler.compaction.records import (
    Compaction,
    CompactionFailure,
    CompactionPlan,
    CountTokens,
    Covered,
    Form,
    NoCompaction,
    NoCompactionReason,
    RefusalReason,
    Refused,
    Replaced,
    Replacement,
    Source,
    Spared,
    SpareReason,
    SummaryAnswer,
    SummaryCall,
    SummaryTask,
)

__all__ = [
    "Compaction",
    "CompactionFailure",
    "CompactionPlan",
    "CompactionPolicy",
    "CountTokens",
    "Covered",
    "Form",
    "Grade",
    "NoCompaction",
    "NoCompactionReason",
    "OnUnsupported",
    "Outcome",
    "Probe",
    "ProbeKind",
    "Reach",
    "RefusalReason",
    "Refused",
    "Replaced",
    "Replacement",
    "Scores",
    "Source",
    "SpareReason",
    "Spared",
    "Strategy",
    "SummaryAnswer",
    "SummaryCall",
    "SummaryTask",
    "apply_compactions",
    "call_failed",
    "extractive",
    "finish",
    "grade",
    "plan_compaction",
    "scores",
]
