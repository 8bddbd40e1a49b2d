"""The arms of `prefix-cache`: each a way of building the same context, two sentences about it, and what it changes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from experiments.framework import Arm
from experiments.framework.arms import NULL_REBUILD
from serving.assembler import BarMode, BarPolicy, Carrier, MaskingLimits
from serving.assembler.compaction import CompactionPolicy, Reach, Strategy

APPEND_ONLY: Final = "append-only"
"""The arm that all others are compared with."""
REASONING: Final = frozenset({"reasoning-dropped", "reasoning-echoed"})
"""Arms without a meaning where no reasoning is: they replay the tour of a model that thinks."""
FIRST: Final = (
    APPEND_ONLY,
    NULL_REBUILD,
    "clock-system-head",
    "clock-last-message",
    "tools-shuffled",
    "sliding-window",
    "text-transcript",
)
"""What a first look needs: the arms of `ctxlab demo`."""
TIMED: Final = frozenset({APPEND_ONLY, NULL_REBUILD, "clock-system-head", "tools-shuffled", "sliding-window"})
"""Arms whose times are worth an hour: the best, its null, two that lose nearly all, one with short prompts."""

BASE: Final[MappingProxyType[str, JsonValue]] = MappingProxyType(
    {
        "fault.applied": [],
        "harness.rebuild": False,
        "harness.window": None,  # what the server serves
        "policy.carrier": Carrier.BY_TEMPLATE.value,
        "policy.compaction": None,
        "policy.masking": None,
        "policy.status_bar": None,
        "render.surface": "chat",
    }
)
"""The factors in which arms may differ, each with its usual value."""

MASKED_FROM: Final = 300
"""Tokens of all results above which those of a finished task give way, all at once: the first task has more."""
COMPACTED_IN: Final = 1_900
"""A window of which the tour reaches four fifths once, in its second task."""


def _fault(name: str, title: str, why: str, fault: str | None = None) -> Arm:
    return Arm(name=name, title=title, why=why, factors={"fault.applied": [fault or name]})


def _bar(mode: BarMode, carrier: Carrier, short: str, where: str, why: str) -> Arm:
    return Arm(
        name=f"bar-{mode.value}-{short}",
        title=f"Bar {'replaced' if mode is BarMode.REPLACE else 'appended'}, {where}",
        why=why,
        factors={
            "policy.status_bar": BarPolicy(mode=mode).model_dump(mode="json"),
            "policy.carrier": carrier.value,
        },
    )


_MASKING: Final[JsonValue] = MaskingLimits(threshold=MASKED_FROM, target=0).model_dump(mode="json")

_CLOCKS: Final = (
    _fault(
        "clock-system-head",
        "Clock in the system prompt",
        "The time of day is the first thing the model reads. It changes in every call, and nothing behind it "
        "can be reused.",
        "clock-in-system-head",
    ),
    _fault(
        "clock-system-tail",
        "Clock ending the system prompt",
        "The time of day closes the system prompt, so its text is kept. The template prints the tools behind it, and "
        "they are lost with the whole conversation.",
        "clock-in-system-tail",
    ),
    _fault(
        "clock-last-user-message",
        "Clock in the user's last message",
        "The time of day closes the question, which looks like the end. In a tool loop all steps stand behind the "
        "question, and each call computes them again.",
        "clock-in-last-user-message",
    ),
    _fault(
        "clock-last-message",
        "Clock in the last message",
        "The time of day stands at the end of the newest message. The next call sends that message without "
        "it, so only the tail is computed again.",
        "clock-in-last-message",
    ),
    _fault(
        "clock-by-tool",
        "Clock appended by a tool",
        "A tool tells the time, and what it told stays where it was told. Nothing is lost; two short messages a call "
        "are the price.",
    ),
    _fault(
        "profile-counter",
        "Counter in the first message",
        "A profile in front of the first question counts down with every call. Tools and system prompt are kept, the "
        "conversation is not.",
        "profile-counter-in-first-message",
    ),
)

_TOOLS: Final = (
    _fault(
        "tools-shuffled",
        "Tools in changing order",
        "The same tools come in another order each time, as from a set. Templates print them near the head, "
        "so almost everything is computed again.",
    ),
    _fault(
        "tools-by-use",
        "Tools ordered by use",
        "The most used tool comes first, so the list changes whenever one overtakes another. That is often at first "
        "and seldom later, and each time all behind the list is lost.",
    ),
    _fault(
        "tools-only-relevant",
        "Only the tools that fit",
        "Four tools that fit the last words are offered and the others left out. It saves their tokens and loses "
        "what stands behind the list whenever the choice changes.",
    ),
    _fault(
        "tools-appended",
        "Tools appended on discovery",
        "Three tools at first, one more with every call, always at the end of the list. The list keeps its head, and "
        "the conversation behind it moves and is computed again until all tools are out.",
    ),
)

_HISTORY: Final = (
    _fault(
        "sliding-window",
        "Sliding window of 6 messages",
        "Only the newest messages are sent. Prompts are short, but each begins its history elsewhere, so what "
        "is sent is computed anew.",
    ),
    _fault(
        "sliding-window-10",
        "Sliding window of 10 messages",
        "The window is wider, so it begins to move later. Once it moves, each call computes more than with the "
        "narrow one.",
    ),
    _fault(
        "text-transcript",
        "Transcript as text",
        "The conversation is flattened into one user message that grows at its end. The prefix survives; "
        "roles and call structure do not.",
    ),
    _fault(
        "text-transcript-moving-head",
        "Transcript with a moving head",
        "The same text begins with how many messages follow. That number changes in every call, and all behind it is "
        "lost.",
    ),
    _fault(
        "arguments-reserialised",
        "Arguments written again",
        "A client parses the model's arguments and prints them with keys in any order. Where a call has two arguments "
        "and their order changed, all behind it is computed again.",
    ),
)

_REASONING: Final = (
    _fault(
        "reasoning-dropped",
        "Reasoning not sent back",
        "What the model thought is left out of every request, so each extends the one before. What the engine holds "
        "of the thoughts themselves is never asked for again.",
    ),
    _fault(
        "reasoning-echoed",
        "Reasoning sent back as text",
        "All thoughts come back inside the answer's text, where no template drops them. The prefix survives the next "
        "question, and every later call reads all old thoughts.",
    ),
)

_TAIL, _USER, _RESPONSE = Carrier.TAIL_OF_LAST_TOOL_RESULT, Carrier.USER, Carrier.TOOL_RESPONSE
_REPLACED: Final = (
    "One bar, always at the end and always fresh: the old one is taken out of the message it stood in."
)
_APPENDED: Final = (
    "Every bar stays where it came and the next one follows later: nothing that was sent changes."
)

_BARS: Final = (
    _bar(BarMode.REPLACE, _TAIL, "tail", "tail", f"{_REPLACED} The newest message is computed twice."),
    _bar(
        BarMode.REPLACE,
        _USER,
        "user",
        "user message",
        f"{_REPLACED} With Qwen3's template it also ends the loop.",
    ),
    _bar(
        BarMode.REPLACE,
        _RESPONSE,
        "response",
        "tool response",
        f"{_REPLACED} It looks like a part of the tool loop, which goes on.",
    ),
    _bar(
        BarMode.APPEND,
        _TAIL,
        "tail",
        "tail",
        f"{_APPENDED} Every call reads all bars so far, from the cache.",
    ),
    _bar(
        BarMode.APPEND,
        _USER,
        "user",
        "user message",
        f"{_APPENDED} Each bar adds a message with its framing.",
    ),
    _bar(
        BarMode.APPEND,
        _RESPONSE,
        "response",
        "tool response",
        f"{_APPENDED} Each adds its tags, and none ends the tool loop.",
    ),
)

_SHORTER: Final = (
    Arm(
        name="masking-frozen",
        title="Old results masked once",
        why="Each time the prompt passes a threshold, results of finished work make room for a line each, and no line "
        "ever changes. A break each time, then shorter prompts that are reused.",
        factors={"policy.masking": _MASKING},
    ),
    Arm(
        name="masking-rotated",
        title="Masks worded anew",
        why="The same results are masked, and each line names the request it stands in. So every call breaks at the "
        "first of them.",
        factors={"policy.masking": _MASKING, "fault.applied": ["replacements-rotated"]},
    ),
    Arm(
        name="compaction",
        title="Compaction at 80 %",
        why="At four fifths of a small window all but the last steps make room for a summary, here of whole sentences "
        "copied by code. The head stays cached, and what follows is computed once and then grows again.",
        factors={
            "harness.window": COMPACTED_IN,
            "policy.compaction": CompactionPolicy(
                strategy=Strategy.COMBINED, threshold=0.8, reach=Reach.RUNNING_TASK, target_tokens=128
            ).model_dump(mode="json"),
        },
    ),
)

ARMS: Final = (
    Arm(
        name=APPEND_ONLY,
        title="Append-only",
        why="Every request repeats the one before and adds to its end. This is what a prefix cache is made for.",
    ),
    Arm(
        name=NULL_REBUILD,
        title="Rebuilt (null)",
        why="The same bytes built anew from a stored copy, with every unordered input in another order. Any "
        "difference to append-only is the noise of the measurement.",
        factors={"harness.rebuild": True},
    ),
    *_CLOCKS,
    *_TOOLS,
    *_HISTORY,
    *_REASONING,
    *_BARS,
    *_SHORTER,
    Arm(
        name="token-in",
        title="Token ids instead of messages",
        why="The lab renders the prompt and sends its ids, so no template runs on the server. In a replay the ids are "
        "the same and so is the reuse; what it saves are answers that would be tokenised again.",
        factors={"render.surface": "token-in"},
    ),
)
