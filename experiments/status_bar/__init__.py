"""The studies of the status bar: what it does to decisions (`status-bar`), and what it costs (`status-bar-cost`)."""

from __future__ import annotations

from experiments.status_bar.cost import StatusBarCostStudy
from experiments.status_bar.study import StatusBarStudy, StatusBarThinkingStudy

__all__ = ["StatusBarCostStudy", "StatusBarStudy", "StatusBarThinkingStudy"]
