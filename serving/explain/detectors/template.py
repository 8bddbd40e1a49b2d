"""The template or the server printed what the client had sent before in another way."""

from __future__ import annotations

from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding, quoted
from serving.explain.detectors.volatile import changed_clock
from serving.explain.difference import Difference
from serving.explain.place import Segment


def other_arguments(difference: Difference) -> Finding | None:
    """The template's own text differs, and so do the arguments that the requests gave it."""
    was, now = difference.stored.template_kwargs, difference.sent.template_kwargs
    if was == now or not difference.in_template:
        return None
    names = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
    changes = ", ".join(f"{name} was {was.get(name)!r}, now {now.get(name)!r}" for name in names)
    return Finding(MissCause.TEMPLATE_ARGUMENTS, f"The template was given other arguments: {changes}.")


def template_date(difference: Difference) -> Finding | None:
    """The template itself prints the time."""
    pair = changed_clock(difference) if difference.in_template else None
    if pair is None:
        return None
    return Finding(
        MissCause.TEMPLATE_DATE,
        f"The template prints the date: {quoted(pair.stored)} became {quoted(pair.sent)}; no message holds it.",
    )


def system_merge(difference: Difference) -> Finding | None:
    """Text of a message that was added at the end stands at the head of the prompt."""
    index, role = difference.broken.sent.message_index, difference.broken.sent.role
    if not difference.appends or index is None or index < len(difference.stored.messages):
        return None
    if role not in ("system", "developer") or difference.broken.stored.segment is Segment.GENERATION_PROMPT:
        return None
    return Finding(
        MissCause.SERVER_SYSTEM_MERGE,
        f"The {role} message {index} was added at the end, and the server prints it at the head, with the first "
        "system message.",
    )


def asymmetry(difference: Difference) -> Finding | None:
    """The client only added messages, and the template prints the old ones otherwise than before."""
    if not difference.appends or difference.in_reply or not difference.rendered_here:
        return None
    if difference.stored.template_kwargs != difference.sent.template_kwargs:
        return None
    place, broken = difference.broken.stored, difference.broken
    if place.segment is Segment.GENERATION_PROMPT:
        index = len(difference.stored.messages)
        return Finding(
            MissCause.TEMPLATE_ASYMMETRY,
            f"The generation prompt goes on with {quoted(broken.stored_text)}, and the template prints message "
            f"{index} in the history without it: {quoted(broken.sent_text)}.",
        )
    return Finding(
        MissCause.TEMPLATE_ASYMMETRY,
        f"The client sent {place.words()} unchanged, and the template prints it otherwise once more messages "
        "follow.",
    )
