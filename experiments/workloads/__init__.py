"""Generators of scenarios and trajectories: the same work for every arm of a study."""

from __future__ import annotations

from experiments.workloads.cage_count import CageAsk, CageCount, cage_count
from experiments.workloads.file_tour import file_tour
from experiments.workloads.grading import Grade, Reason
from experiments.workloads.needle import NeedleScenario, needle
from experiments.workloads.phone_bars import PhoneBar, phone_bar
from experiments.workloads.phone_limit import AnswerForm, Ask, LimitPlace, PhoneLimit, phone_limit
from experiments.workloads.rare_constraint import Forbidden, RareConstraint, rare_constraint
from experiments.workloads.scenario import Scenario
from experiments.workloads.tenant_mix import TenantMix, tenant_mix
from experiments.workloads.version_clash import Marking, VersionClash, version_clash

__all__ = [
    "AnswerForm",
    "Ask",
    "CageAsk",
    "CageCount",
    "Forbidden",
    "Grade",
    "LimitPlace",
    "Marking",
    "NeedleScenario",
    "PhoneBar",
    "PhoneLimit",
    "RareConstraint",
    "Reason",
    "Scenario",
    "TenantMix",
    "VersionClash",
    "cage_count",
    "file_tour",
    "needle",
    "phone_bar",
    "phone_limit",
    "rare_constraint",
    "tenant_mix",
    "version_clash",
]
