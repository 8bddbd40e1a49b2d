"""Calls that the model wrote in a form of its own, sent back as calls and so in the template's form."""

from __future__ import annotations

import json

from serving.explain.causes import MissCause
from serving.explain.detectors.arguments import calls_of, written_calls
from serving.explain.detectors.finding import Finding, quoted
from serving.explain.difference import Difference


def call_form(difference: Difference) -> Finding | None:
    """The template's own text parts from the reply, and every call of the message stands in that reply as JSON."""
    broken, index = difference.broken, len(difference.stored.messages)
    if not difference.in_reply or broken.sent.path or broken.sent.message_index != index:
        return None
    sent = [(name, _value(arguments)) for name, arguments in calls_of(difference.sent.messages[index])]
    output = difference.stored.text[len(difference.stored.prompt_text) :]
    written = [(name, _value(arguments)) for name, arguments in written_calls(output)]
    if not sent or any(call not in written for call in sent):
        return None
    return Finding(
        MissCause.CALL_FORM,
        f"The model wrote the calls of message {index} as {quoted(broken.stored_text)}, and the template prints "
        f"{quoted(broken.sent_text)}.",
    )


def _value(arguments: str) -> object:
    """Equal for equal JSON; a text that is none stands for itself."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
