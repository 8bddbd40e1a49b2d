"""Calls that the model wrote in a form of its own, sent back as calls and so in the template's form."""

from __future__ import annotations

from serving.explain.causes import MissCause
from serving.explain.detectors.arguments import calls_of, parsed_arguments, written_calls
from serving.explain.detectors.finding import Finding, quoted
from serving.explain.difference import Difference


def call_form(difference: Difference) -> Finding | None:
    """The template's own text parts from the reply, and every call of the message stands in that reply as JSON."""
    broken, index = difference.broken, len(difference.stored.messages)
    if not difference.in_reply or broken.sent.path or broken.sent.message_index != index:
        return None
    sent = [
        (name, parsed_arguments(arguments)) for name, arguments in calls_of(difference.sent.messages[index])
    ]
    written = [
        (name, parsed_arguments(arguments))
        for name, arguments in written_calls(difference.stored.output_text)
    ]
    if not sent or any(call not in written for call in sent):
        return None
    return Finding(
        MissCause.CALL_FORM,
        f"The model wrote the calls of message {index} as {quoted(broken.stored_text)}, and the template prints "
        f"{quoted(broken.sent_text)}.",
    )
