"""Generators of scenarios and trajectories: the same work for every arm of a study."""

from __future__ import annotations

from experiments.workloads.file_tour import file_tour

__all__ = ["file_tour"]
