"""The model's own chat template: messages to token ids, and the tokens of every item."""

from __future__ import annotations

from serving.chat.dialect import DialectName
from serving.chat.last_render import LastRender
from serving.chat.outline import Origin, Outline
from serving.chat.probe import ReasoningField, TemplateFacts, probe_template
from serving.chat.render import ChatRenderer
from serving.chat.template import TemplateRefusesError
from serving.chat.tokenizer import ChatTokenizer, ShownToken

__all__ = [
    "ChatRenderer",
    "ChatTokenizer",
    "DialectName",
    "LastRender",
    "Origin",
    "Outline",
    "ReasoningField",
    "ShownToken",
    "TemplateFacts",
    "TemplateRefusesError",
    "probe_template",
]
