"""The studies `chat-template`, `chat-template-cost` and `chat-template-replay`: what a way of sending costs."""

from __future__ import annotations

from experiments.chat_template.replay_study import ChatTemplateReplayStudy
from experiments.chat_template.study import ChatTemplateCostStudy, ChatTemplateStudy

__all__ = ["ChatTemplateCostStudy", "ChatTemplateReplayStudy", "ChatTemplateStudy"]
