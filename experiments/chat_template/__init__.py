"""The studies `chat-template`, `-reading`, `-cost` and `-replay`: what a way of sending a conversation breaks."""

from __future__ import annotations

from experiments.chat_template.reading_study import ChatTemplateReadingStudy
from experiments.chat_template.replay_study import ChatTemplateReplayStudy
from experiments.chat_template.study import ChatTemplateCostStudy, ChatTemplateStudy

__all__ = [
    "ChatTemplateCostStudy",
    "ChatTemplateReadingStudy",
    "ChatTemplateReplayStudy",
    "ChatTemplateStudy",
]
