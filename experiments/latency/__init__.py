"""How fast a served model is under load, against what the machine allows: the study behind `ctxlab bench`."""

from __future__ import annotations

from experiments.latency.compare import Comparison, compare_runs
from experiments.latency.study import LatencyStudy
from experiments.latency.workload import Shape

__all__ = ["Comparison", "LatencyStudy", "Shape", "compare_runs"]
