"""Replies for the stub server: what goes out, when, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

Json = dict[str, object]


class End(StrEnum):
    CLOSE = "close"  # the body ends as HTTP says
    CUT = "cut"  # the connection is reset
    HANG = "hang"  # nothing more, for ever


@dataclass(frozen=True)
class Send:
    """One write to the socket."""

    at_ms: float
    data: bytes
    token: bool = False  # whether it completes an event that carries a token


@dataclass(frozen=True)
class Script:
    sends: tuple[Send, ...]
    end: End = End.CLOSE
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"


DONE = b"data: [DONE]\n\n"
PROMPT_IDS = (11, 12, 13, 14, 15)


def sse(body: Json) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def chunk(
    delta: Json,
    *,
    ids: list[int] | None = None,
    finish: str | None = None,
    prompt_ids: tuple[int, ...] | None = None,
) -> Json:
    choice: Json = {"index": 0, "delta": delta, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    body: Json = {"id": "c", "object": "chat.completion.chunk", "model": "stub", "choices": [choice]}
    if prompt_ids is not None:
        body["prompt_token_ids"] = list(prompt_ids)
    return body


def usage(completion: int, cached: int | None = 4, metrics: Json | None = None) -> Json:
    counts: Json = {"prompt_tokens": len(PROMPT_IDS), "completion_tokens": completion}
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    body: Json = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": counts}
    return body if metrics is None else body | {"metrics": metrics}


ROLE = sse(chunk({"role": "assistant", "content": ""}, prompt_ids=PROMPT_IDS))


def role_first() -> Script:
    words = ["One", " two", " three"]
    return Script(
        (
            Send(10, ROLE),
            *(
                Send(60 + 20 * i, sse(chunk({"content": word}, ids=[100 + i])), token=True)
                for i, word in enumerate(words)
            ),
            Send(120, sse(chunk({}, ids=[999], finish="stop")), token=True),
            Send(121, sse(usage(4)) + DONE),
        )
    )


def _call(index: int, **function: str) -> Json:
    head: Json = {"id": f"call-{index}", "type": "function"} if "name" in function else {}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


def reasoning_then_tools() -> Script:
    deltas: list[tuple[float, Json]] = [
        (40, {"reasoning": "Let me "}),
        (50, {"reasoning": "look."}),
        (60, {"content": "Looking"}),
        (70, {"content": " up."}),
        (80, _call(0, name="search", arguments="")),
        (90, _call(0, arguments='{"q": "a }')),
        (100, _call(0, arguments=' \\" b"')),
        (110, _call(0, arguments="}")),
        (210, _call(1, name="read", arguments='{"n"')),
        (220, _call(1, arguments=": [1]}")),
    ]
    return Script(
        (
            Send(10, ROLE),
            *(Send(at, sse(chunk(delta, ids=[200 + i])), token=True) for i, (at, delta) in enumerate(deltas)),
            Send(230, sse(chunk({}, ids=[999], finish="tool_calls")), token=True),
            Send(231, sse(usage(11, metrics={"queue_ms": 1.5}))),
            Send(232, DONE),
        )
    )


def several_tokens_a_chunk() -> Script:
    groups = [[1], [2, 3, 4], [5, 6]]
    return Script(
        (
            Send(10, ROLE),
            *(Send(50 + 30 * i, sse(chunk({"content": "x"}, ids=ids)), True) for i, ids in enumerate(groups)),
            Send(140, sse(chunk({}, ids=[], finish="length"))),
            Send(141, sse(usage(6)) + DONE),
        )
    )


def held_back() -> Script:
    return Script(
        (
            Send(10, ROLE),
            Send(40, sse(chunk({}, ids=[1])), token=True),
            Send(60, sse(chunk({}, ids=[2])), token=True),
            Send(80, sse(chunk({"content": "<tool_ca was text"}, ids=[3])), token=True),
            Send(100, sse(chunk({"content": "!"}, ids=[]))),
            Send(101, sse(chunk({}, ids=[9], finish="stop")), token=True),
            Send(102, sse(usage(4)) + DONE),
        )
    )


def split_utf8() -> Script:
    event = sse(chunk({"content": "naïve 日本 🙂"}, ids=[1]))
    cut = event.index("本".encode()) + 1
    return Script(
        (
            Send(10, ROLE),
            Send(40, event[:cut]),
            Send(90, event[cut:-1]),
            Send(110, event[-1:], token=True),
            Send(120, sse(chunk({}, ids=[9], finish="stop")), token=True),
            Send(121, sse(usage(2)) + DONE),
        )
    )


def one_write() -> Script:
    events = b"".join(sse(chunk({"content": word}, ids=[i])) for i, word in enumerate("abc"))
    ending = sse(chunk({}, ids=[9], finish="stop")) + sse(usage(4)) + DONE
    return Script((Send(30, ROLE + events + ending, token=True),))


def no_usage() -> Script:
    return Script(
        (Send(10, ROLE), Send(30, sse(chunk({"content": "x"}, ids=[1], finish="stop"))), Send(31, DONE))
    )


def bare() -> Script:
    """A server without token ids, cached-token counts or metrics."""
    return Script(
        (
            Send(10, sse(chunk({"role": "assistant", "content": ""}))),
            Send(40, sse(chunk({"content": "He"})), token=True),
            Send(60, sse(chunk({"content": "llo"})), token=True),
            Send(80, sse(chunk({}, finish="stop")), token=True),
            Send(81, sse(usage(3, cached=None)) + DONE),
        )
    )


def _ten_tokens() -> tuple[Send, ...]:
    return tuple(Send(20 + 5 * i, sse(chunk({"content": "t"}, ids=[i])), token=True) for i in range(10))


def error_after_ten() -> Script:
    error = {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}}
    return Script((Send(10, ROLE), *_ten_tokens(), Send(80, sse(error)), Send(81, DONE)))


def completion() -> Script:
    """The token-in surface: `text` instead of a delta, prompt ids inside the choice."""

    def piece(text: str, ids: list[int], **more: object) -> bytes:
        choice: Json = {"index": 0, "text": text, "token_ids": ids, "finish_reason": None, **more}
        return sse({"id": "c", "object": "text_completion", "choices": [choice]})

    return Script(
        (
            Send(30, piece("a", [1], prompt_token_ids=[7, 8, 9]), token=True),
            Send(50, piece("b", [2]), token=True),
            Send(70, piece("", [3], finish_reason="stop"), token=True),
            Send(71, sse(usage(3)) + DONE),
        )
    )


def steady(n: int, gap_ms: float, first_ms: float) -> Script:
    return Script(
        (
            Send(5, ROLE),
            *(
                Send(first_ms + gap_ms * i, sse(chunk({"content": " word"}, ids=[i])), token=True)
                for i in range(n)
            ),
            Send(first_ms + gap_ms * n, sse(chunk({}, ids=[], finish="length")) + sse(usage(n)) + DONE),
        )
    )


QUOTED_KEY = "sk-quoted-by-the-server"


def _failure(status: int, said: str = "the stub was told to answer") -> Script:
    body = json.dumps({"error": {"message": f"{said} {status}", "code": status}})
    return Script((Send(0, body.encode()),), status=status, content_type="application/json")


@dataclass(frozen=True)
class Beat:
    """One event of a timed stream, and what a reader of it is to make of it."""

    at_ms: float
    kind: str
    """A value of `experiments.latency.definitions.ChunkKind`, which this process need not import."""
    tokens: int = 0


def _timed(first_ms: float, gap_ms: float, kinds: list[str], tokens: int = 1) -> tuple[Beat, ...]:
    """A role chunk after 5 ms, chunks of `tokens` tokens from `first_ms` on, the finish and the usage right after."""
    last = first_ms + gap_ms * (len(kinds) - 1)
    return (
        Beat(5, "role"),
        *(Beat(first_ms + gap_ms * place, kind, tokens) for place, kind in enumerate(kinds)),
        Beat(last + 2, "finish"),
        Beat(last + 3, "usage"),
    )


TIMED: Mapping[str, tuple[Beat, ...]] = {
    "timed-role-first": _timed(80, 20, ["text"] * 16),
    "timed-reasoning-first": _timed(80, 20, ["reasoning"] * 8 + ["text"] * 8),
    "timed-several-a-chunk": _timed(80, 40, ["text"] * 8, tokens=3),
    "timed-slow-start": _timed(600, 20, ["text"] * 16),
}
"""Streams whose every event is known, for judging clients: one send a beat."""


def timed(beats: tuple[Beat, ...]) -> Script:
    total = sum(beat.tokens for beat in beats)
    return Script(tuple(Send(beat.at_ms, _event(beat, total), beat.tokens > 0) for beat in beats))


def _event(beat: Beat, total: int) -> bytes:
    match beat.kind:
        case "role":
            return ROLE
        case "finish":
            return sse(chunk({}, ids=[], finish="length"))
        case "usage":
            return sse(usage(total)) + DONE
        case "reasoning":
            return sse(chunk({"reasoning": " thought"}, ids=[7] * beat.tokens))
        case _:
            return sse(chunk({"content": " word" * beat.tokens}, ids=[8] * beat.tokens))


SCRIPTS: Mapping[str, Callable[[], Script]] = {
    "role-first": role_first,
    "reasoning-then-tools": reasoning_then_tools,
    "several-tokens-a-chunk": several_tokens_a_chunk,
    "held-back": held_back,
    "split-utf8": split_utf8,
    "one-write": one_write,
    "no-usage": no_usage,
    "bare": bare,
    "completion": completion,
    "error-after-ten": error_after_ten,
    "cut": lambda: Script((Send(10, ROLE), *_ten_tokens()), End.CUT),
    "no-done": lambda: Script((Send(10, ROLE), *_ten_tokens())),
    "silence": lambda: Script((Send(10, ROLE), *_ten_tokens()), End.HANG),
    "mute": lambda: Script((), End.HANG, status=0),
    "done-but-open": lambda: Script(
        (Send(10, ROLE), *_ten_tokens(), Send(80, sse(usage(10)) + DONE)), End.HANG
    ),
    "bad-json": lambda: Script((Send(10, ROLE), *_ten_tokens(), Send(80, b'data: {"choices": [\n\n'))),
    "bad-shape": lambda: Script((Send(10, ROLE), Send(20, b'data: {"choices": [{"delta": 7}]}\n\n'))),
    "not-a-stream": lambda: Script((Send(0, b'{"choices": []}'),), content_type="application/json"),
    "http-400": lambda: _failure(400),
    "http-401": lambda: _failure(401, f"incorrect API key {QUOTED_KEY}:"),
    "http-503": lambda: _failure(503),
    "steady": lambda: steady(40, 10, 50),
    **{name: partial(timed, beats) for name, beats in TIMED.items()},
}
