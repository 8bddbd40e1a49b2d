"""The studies `status-bar-attention` and `status-bar-decided`: what a status bar gets of a model's attention."""

from __future__ import annotations

from experiments.status_bar_attention.decided import StatusBarDecidedStudy
from experiments.status_bar_attention.study import ARMS, StatusBarAttentionStudy

__all__ = ["ARMS", "StatusBarAttentionStudy", "StatusBarDecidedStudy"]
