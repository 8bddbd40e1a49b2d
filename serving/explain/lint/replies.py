"""Which ids a reply was made of, as far as a log tells: recorded, provably the same count, or unknown."""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from typing import NamedTuple

from serving.assembler import Rendered
from serving.chat import ChatRenderer
from serving.errors import UsageError
from serving.explain.difference import text_of
from serving.explain.lint.entry import LogEntry
from serving.explain.turn import JsonObject, reasoning_of

_STOP = 0
"""Stands for the stop token: the last generated token is never stored, so its id does not matter."""


class ReplyIds(StrEnum):
    """How the ids of a reply are known."""

    RECORDED = "recorded"
    INFERRED = "inferred"
    """Made from the reply's text; their number is what the usage says, where there is one."""
    UNKNOWN = "unknown"
    """No reply, or another number of tokens: the prompt alone counts as stored."""


class GeneratedIds(NamedTuple):
    """The ids that a request generated, `()` where they are unknown."""

    ids: tuple[int, ...]
    known: ReplyIds


def generated_ids(entry: LogEntry, renderer: ChatRenderer, rendered: Rendered) -> GeneratedIds:
    """The ids of an entry's reply."""
    if entry.output_ids is not None:
        return GeneratedIds(entry.output_ids, ReplyIds.RECORDED)
    reply = entry.reply
    if reply is None:
        return GeneratedIds((), ReplyIds.UNKNOWN)
    reported = None if entry.usage is None else entry.usage.completion_tokens
    if reasoning_of(reply) is None and not reply.get("tool_calls"):
        ids = renderer.tokenizer.encode(text_of(reply)).ids
        ids = ids if entry.finish_reason == "length" else (*ids, _STOP)
    elif reported is None:
        # How a call or reasoning was written is a guess; only the right number of tokens makes it evidence.
        return GeneratedIds((), ReplyIds.UNKNOWN)
    else:
        ids = _as_printed(entry, reply, renderer, rendered, reported)
    if not ids or (reported is not None and reported != len(ids)):
        return GeneratedIds((), ReplyIds.UNKNOWN)
    return GeneratedIds(ids, ReplyIds.INFERRED)


def reply_tokens(message: JsonObject, rendered: Rendered, start: int) -> int | None:
    """How many tokens a message of text only takes from token `start` of a prompt on, at most.

    None where the message holds more than text: how a call or reasoning is printed is the template's affair.
    """
    if reasoning_of(message) is not None or message.get("tool_calls") or start >= len(rendered.token_offsets):
        return None
    end = rendered.token_offsets[start] + len(text_of(message))
    return bisect_left(rendered.token_offsets, end, lo=start) - start


def _as_printed(
    entry: LogEntry, reply: JsonObject, renderer: ChatRenderer, rendered: Rendered, count: int
) -> tuple[int, ...]:
    """The first `count` ids that the template prints for the reply behind this very prompt."""
    try:
        outline = renderer.outline((*entry.messages, reply), entry.tools)
    except UsageError:
        return ()
    history = outline.text[: outline.prompt_start]
    if not history.startswith(rendered.text):
        return ()
    return renderer.tokenizer.encode(history[len(rendered.text) :]).ids[:count]
