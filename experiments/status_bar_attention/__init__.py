"""The study `status-bar-attention`: what a status bar gets of a model's attention beside the records it sums up."""

from __future__ import annotations

from experiments.status_bar_attention.study import ARMS, StatusBarAttentionStudy

__all__ = ["ARMS", "StatusBarAttentionStudy"]
