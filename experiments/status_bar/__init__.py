"""The studies of the status bar: what it does to decisions, given at once (`status-bar`) or thought out
(`status-bar-thinking`), what it costs (`status-bar-cost`), and which of its techniques help (`status-bar-techniques`).
"""

from __future__ import annotations

from experiments.status_bar.cost import StatusBarCostStudy
from experiments.status_bar.study import StatusBarStudy, StatusBarThinkingStudy
from experiments.status_bar.techniques import StatusBarTechniquesStudy

__all__ = ["StatusBarCostStudy", "StatusBarStudy", "StatusBarTechniquesStudy", "StatusBarThinkingStudy"]
