"""A conversation as the text of one user message: what both transcript faults send."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.faults.base import CONTENT, closed
from serving.assembler import DraftMessage, LocalSpan, Message, Region


def flattened(messages: Sequence[DraftMessage], title: str) -> DraftMessage:
    """One user message with a line for each of `messages`; every part keeps the item that wrote it.

    Roles are the first word of a line and calls stand in brackets; reasoning and call ids are lost.
    """
    content, spans = title, list[LocalSpan]()
    for message in messages:
        content += f"\n{message.message.role}: "
        own = message.message.content or ""
        spans.extend(
            span.moved(len(content)) for span in closed(message.spans, len(own)) if span.path == CONTENT
        )
        content += own
        owners = {span.path[1]: span.item_id for span in message.spans if span.path[0] == "tool_calls"}
        for place, call in enumerate(message.message.tool_calls):
            start = len(content) + 1
            content += f" [{call.name} {call.arguments}]"
            if place in owners:
                spans.append(LocalSpan(CONTENT, owners[place], start, len(content)))
    kept = tuple(span for span in spans if span.end is None or span.end > span.start)
    return DraftMessage(Message(role="user", content=content), kept, Region.TRAJECTORY)
