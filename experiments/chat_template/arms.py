"""The arms of the chat-template studies: each is one way to send the same conversation."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from experiments.chat_template.names import (
    DROPPED,
    ECHOED,
    IDS_KEPT,
    LATE_SYSTEM,
    REMINDER_HEAD,
    SWAPPED,
    TEXT,
    THINKING_OFF,
    TOOL_ROLE,
    USER_ROLE,
)
from experiments.framework import Arm
from experiments.framework.arms import NULL_REBUILD
from serving.client import Surface
from serving.models import reasons

FAULT: Final = "fault.applied"
THINKING: Final = "render.thinking"
SURFACE: Final = "render.surface"
TEMPLATE: Final = "render.template"
REBUILD: Final = "harness.rebuild"
REMINDER: Final = "harness.reminder"

DECLARED: Final = frozenset({FAULT, THINKING, SURFACE, TEMPLATE, REBUILD, REMINDER})

FAMILIES: Final = (
    "deepseekv3",
    "gemma4_v5",
    "glm4moe",
    "gptoss",
    "lfm2_v2",
    "llama3_1",
    "nemotron_3_nano",
    "qwen2_5",
    "qwen3_6",
    "qwen3_8",
)
"""Templates of TRL's collection, one a family and two where a family changed its habits."""

_BASE_ARM: Final = Arm(
    name=TOOL_ROLE,
    title="Structured, results as the tool",
    why="Calls, results and reasoning are sent in the fields that the API has for them, over the chat surface. The "
    "template decides what the model reads of them.",
)
_NULL_ARM: Final = Arm(
    name=NULL_REBUILD,
    title="Rebuilt (null)",
    why="The same bytes built anew from a stored copy. Any difference to the first arm is noise of the measurement.",
    factors={REBUILD: True},
)
_CARRIERS: Final = (
    Arm(
        name=USER_ROLE,
        title="Results as the user",
        why="Every tool result is sent as a message of the user. The text stays; what the model is told of who speaks "
        "does not, and a template that looks for the last question finds one in every result.",
        factors={FAULT: ["tool-result-as-user"]},
    ),
    Arm(
        name=TEXT,
        title="Flattened to text",
        why="The whole conversation is one user message that grows. The call structure is gone, and the answer of the "
        "model comes back inside a message of the user, so it never matches what was generated.",
        factors={FAULT: ["text-transcript"]},
    ),
    Arm(
        name=SWAPPED,
        title="Parallel results swapped",
        why="Results of one message come in the opposite order. It costs no cache, for every request swaps alike; "
        "where the template prints no call ids, the model reads them crossed over.",
        factors={FAULT: ["parallel-results-swapped"]},
    ),
    Arm(
        name=LATE_SYSTEM,
        title="Late system message",
        why="A second system message stands behind the newest message and moves with it. The next request sends that "
        "message without it, so the tail is computed again; some templates refuse it.",
        factors={FAULT: ["late-system-message"]},
    ),
)
_REMINDER_ARM: Final = Arm(
    name=REMINDER_HEAD,
    title="Same reminder at the head",
    why="The sentence of the late system message stands at the end of the first one, in every request. What this arm "
    "changes, the words do; what the late message changes beyond it, its place does.",
    factors={REMINDER: True},
)
_IDS_ARM: Final = Arm(
    name=IDS_KEPT,
    title="Ids kept (token-in)",
    why="Token ids are sent: each prompt is the last one, the ids that were generated, and what is new. Nothing is "
    "rendered twice, so no template and no tokenizer can lose what is stored.",
    factors={SURFACE: Surface.TOKEN_IN.value},
)
_THINKING_OFF_ARM: Final = Arm(
    name=THINKING_OFF,
    title="Thinking off",
    why="The template is told `enable_thinking=False`, and there is no reasoning in the history. Qwen3's puts an empty "
    "think block behind each question and takes it out of the history again.",
    factors={THINKING: False},
)
_DROPPED_ARM: Final = Arm(
    name=DROPPED,
    title="Reasoning dropped",
    why="What the model thought is not sent back. The cache holds it, so the next request leaves what is stored where "
    "the thought began, and the model goes on without it.",
    factors={FAULT: ["reasoning-dropped"]},
)
_ECHOED_ARM: Final = Arm(
    name=ECHOED,
    title="Reasoning echoed as text",
    why="All reasoning is sent back as text in front of the answer, also where the template would take it out at the "
    "next question. The prefix survives, and every old thought is paid for in each prompt.",
    factors={FAULT: ["reasoning-echoed"]},
)


def base_factors(model: str, *, block_size: int, max_tokens: int, window: int) -> dict[str, JsonValue]:
    """Every factor of these studies with its usual value; `render.thinking` is None for a model without reasoning."""
    return {
        FAULT: [],
        THINKING: True if reasons(model) else None,
        SURFACE: Surface.CHAT.value,
        TEMPLATE: None,
        REBUILD: False,
        REMINDER: False,
        "decode.max_tokens": max_tokens,
        "engine.model": model,
        "engine.block_size": block_size,
        "engine.max_model_len": window,
        "engine.kv_cache_bytes": None,
    }


def accuracy_arms(model: str) -> tuple[Arm, ...]:
    """The arms under which a model works; echoing is none, for one question never takes reasoning out."""
    thinking = (_THINKING_OFF_ARM, _DROPPED_ARM) if reasons(model) else ()
    return (_BASE_ARM, _NULL_ARM, *_CARRIERS, _REMINDER_ARM, _IDS_ARM, *thinking)


def replay_arms(model: str) -> tuple[Arm, ...]:
    """The arms under which one conversation is replayed, those of other families' templates among them."""
    thinking = (_THINKING_OFF_ARM, _DROPPED_ARM, _ECHOED_ARM) if reasons(model) else ()
    plain = tuple(_family(name, late=False) for name in FAMILIES)
    late = tuple(_family(name, late=True) for name in FAMILIES)
    return (_BASE_ARM, _NULL_ARM, *_CARRIERS, _IDS_ARM, *thinking, *plain, *late)


def is_family(arm: Arm) -> bool:
    """Whether an arm renders with another model's template."""
    return arm.factors.get(TEMPLATE) is not None


def _family(name: str, *, late: bool) -> Arm:
    short = name.replace("_", "-")
    factors: dict[str, JsonValue] = {SURFACE: Surface.TOKEN_IN.value, TEMPLATE: name}
    if late:
        return Arm(
            name=f"late-{short}",
            title=f"{name}, late system",
            why=f"The late system message in the template of {name}: some families print it where it stands, some "
            "refuse it, and some move it to the head.",
            factors={**factors, FAULT: ["late-system-message"]},
        )
    return Arm(
        name=f"family-{short}",
        title=f"Template of {name}",
        why=f"The same conversation as {name} prints it, as ids of the served model's tokenizer. Cost only: no model "
        "that was trained on it reads it.",
        factors=factors,
    )
