"""From what a model said to the tool calls in it, and in which form they came."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from experiments.agent.callids import CallIds
from experiments.agent.jsoncalls import bare_calls, cut_out, fenced_calls, tries_to_call
from experiments.agent.taggedcalls import TaggedReply
from serving.assembler import ToolCall
from serving.client import Exchange, Surface
from serving.text import require_unicode_text


class CallForm(StrEnum):
    """How an answer asked for tools; recorded with every call of the loop."""

    NATIVE = "native"
    """As the model's template has it: the server's parser found the calls, or ours on the token-in surface."""
    FENCED = "fenced"
    """As JSON between code fences, which small Qwen coders write; read here, where the loop allows it."""
    BARE = "bare"
    """As JSON without fences at the end of the text, which small Qwen coders write once a fenced call went
    back to them as a real one; read here, where the loop allows it."""
    MALFORMED = "malformed"
    """An attempt at a call that cannot be read: arguments that are no JSON object, a tag or JSON that stays
    open. With `Said.calls`, they are answered one by one; without, the whole message is."""
    NONE = "none"
    """No tool was called."""


FALLBACK_FORMS: Final = frozenset({CallForm.FENCED, CallForm.BARE})
"""The forms that no template has; a loop may refuse them, and then they are text."""


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A call with the id that the history will use, and the server's, which may be missing or taken already."""

    call: ToolCall
    received_id: str | None


@dataclass(frozen=True, slots=True)
class Said:
    """What the model said, as the history will repeat it."""

    form: CallForm
    text: str
    """As received; with the fenced and the bare form, without the JSON that is sent back as calls."""
    reasoning: str | None
    calls: tuple[ReceivedCall, ...]

    @property
    def empty(self) -> bool:
        """Whether it holds neither words nor a call."""
        return self.form is CallForm.NONE and not self.text.strip()


UNNAMED: Final = "unnamed"
"""The name of a call that came without one, which no tool has."""


def read_answer(
    exchange: Exchange,
    *,
    tool_names: Collection[str],
    used_ids: Collection[str],
    accept: Collection[CallForm] = FALLBACK_FORMS,
) -> Said:
    """Read text, reasoning and calls of a finished exchange; arguments stay byte for byte.

    JSON in the text counts as a call only if no native call came, `accept` has its form, and it is one object
    that names one of `tool_names` and has an object of arguments. Raises `UsageError` for an answer that
    UTF-8 cannot carry back.
    """
    text, reasoning = exchange.text, exchange.reasoning
    native = [(call.id, call.name or UNNAMED, call.arguments) for call in exchange.tool_calls]
    broken_tag = "<tool_call>" in text and not native
    if exchange.surface is Surface.TOKEN_IN:
        reply = TaggedReply.read(text)
        text, reasoning, broken_tag = reply.text, reply.reasoning or reasoning, reply.broken
        native = [(None, call.name, call.arguments) for call in reply.calls]
    require_unicode_text(text + reasoning, "the model's answer")
    thought = reasoning or None
    if native:
        sound = all(is_object(arguments) for _, _, arguments in native)
        form = CallForm.NATIVE if sound and not broken_tag else CallForm.MALFORMED
        return Said(form, text, thought, _with_ids(native, used_ids))
    for form, find in ((CallForm.FENCED, fenced_calls), (CallForm.BARE, bare_calls)):
        if form in accept and (found := list(find(text, tool_names))):
            calls = _with_ids([(None, call.name, call.arguments) for call in found], used_ids)
            return Said(form, cut_out(text, found), thought, calls)
    if tool_names and (broken_tag or (accept and tries_to_call(text, tool_names))):
        return Said(CallForm.MALFORMED, text, thought, ())
    return Said(CallForm.NONE, text, thought, ())


def is_object(arguments: str) -> bool:
    """Whether a call's arguments are one JSON object; several servers write none as an empty text."""
    if not arguments.strip():
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _with_ids(
    received: list[tuple[str | None, str, str]], used_ids: Collection[str]
) -> tuple[ReceivedCall, ...]:
    ids = CallIds(used_ids)
    calls: list[ReceivedCall] = []
    for received_id, name, arguments in received:
        require_unicode_text(f"{received_id}{name}{arguments}", "the model's tool call")
        call = ToolCall(id=ids.give(received_id), name=name, arguments=arguments)
        calls.append(ReceivedCall(call, received_id))
    return tuple(calls)
