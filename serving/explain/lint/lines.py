"""One verdict as one line of JSON, for whoever wants every request."""

from __future__ import annotations

import json

from pydantic import JsonValue

from serving.explain.first_break import FirstBreak
from serving.explain.lint.linter import LintedRequest, SkippedLine


def request_line(item: LintedRequest | SkippedLine) -> str:
    """The verdict without a line break; unknown is null."""
    if isinstance(item, SkippedLine):
        return json.dumps({"line": item.line, "skipped": item.reason})
    miss = item.miss
    record: dict[str, JsonValue] = {
        "line": item.line,
        "prompt_tokens": miss.prompt_tokens,
        "cached_tokens": miss.cached_tokens,
        "possible_tokens": item.possible_tokens,
        "reported_tokens": item.reported_cached,
        "reply_ids": item.reply_ids.value,
        "tokens_by_cause": {cause.value: tokens for cause, tokens in miss.tokens.items()},
        "against": item.against,
        "cause": None if miss.finding is None else miss.finding.cause.value,
        "detail": None if miss.finding is None else miss.finding.detail,
        "break": None if miss.broken is None else _break(miss.broken),
        "usage": {flag.problem.value: flag.sentence for flag in item.flags},
    }
    return json.dumps(record)


def _break(broken: FirstBreak) -> dict[str, JsonValue]:
    return {
        "token": broken.position,
        "segment": broken.sent.segment.value,
        "message": broken.message_index,
        "role": broken.role,
        "tool": broken.sent.tool,
        "json_path": broken.sent.json_path,
        "character": broken.sent.offset,
        "place": broken.sent.words(),
        "stored_place": broken.stored.words(),
        "stored_ids": list(broken.stored_ids),
        "sent_ids": list(broken.sent_ids),
        "stored_text": broken.stored_text,
        "sent_text": broken.sent_text,
    }
