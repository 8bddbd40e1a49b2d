"""From chosen items to messages: static head, tools, examples, trajectory, dynamic suffix, in this order.

Everything that may change from call to call stands behind everything that does not. Texts are sent as they
are, but for marks of the model in the words of others (`neutral.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from serving.assembler.draft import Draft, DraftMessage, DraftTool, TextPart
from serving.assembler.items import ContextItem
from serving.assembler.kinds import KIND_RULES, Kind, Region, Trust
from serving.assembler.messages import Message, part_id
from serving.assembler.neutral import Neutraliser
from serving.assembler.payloads import AssistantTurn, Example, ToolContract, ToolStep, UserTurn
from serving.assembler.policy import Carrier, ContextPolicy, ReasoningEcho, SuffixPosition, ToolOrder
from serving.assembler.text import shown

JOINT: Final = "\n\n"
"""Between two items in one message; belongs to neither."""

OPEN_CALL_TEXT: Final = "No result has been recorded for this call."
"""Closes a call that has not returned: an open pair is never sent, and a pending call is never lost."""

_TURNS: Final = frozenset({Kind.USER_TURN, Kind.ASSISTANT_TURN, Kind.TOOL_STEP})


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The items of a packet, region by region, each region in its final order."""

    head: tuple[ContextItem, ...]
    tools: tuple[ContextItem, ...]
    examples: tuple[ContextItem, ...]
    history: tuple[ContextItem, ...]
    suffix: tuple[ContextItem, ...]

    @property
    def items(self) -> tuple[ContextItem, ...]:
        """All items in packet order."""
        return (*self.head, *self.tools, *self.examples, *self.history, *self.suffix)


def arrange(
    candidates: Sequence[ContextItem],
    history: Sequence[ContextItem],
    tools: Sequence[ContextItem],
    policy: ContextPolicy,
    worth: Mapping[str, float],
) -> Arrangement:
    """Put items in order; `worth` holds the utility of every candidate by id.

    By layer, then by `order`, kind, required ones first, the more useful ones first, and id; the status bar
    is always last. `history` keeps its own order.
    """
    layers = {layer: index for index, layer in enumerate(policy.layer_order)}
    kinds = {kind: index for index, kind in enumerate(Kind)}

    def place(item: ContextItem) -> tuple[bool, int, int, int, bool, float, str]:
        is_bar = item.kind is Kind.STATUS_BAR
        useful = 0.0 if item.is_required else -worth[item.id]
        return (
            is_bar,
            layers[item.layer],
            item.order,
            kinds[item.kind],
            not item.is_required,
            useful,
            item.id,
        )

    def tool_place(item: ContextItem) -> tuple[int, str]:
        name = item.payload.spec.name if isinstance(item.payload, ToolContract) else item.id
        return (item.order if policy.tool_order is ToolOrder.DECLARED else 0, name)

    ranked = sorted(candidates, key=place)
    head, examples, suffix = (
        tuple(item for item in ranked if KIND_RULES[item.kind].region is region)
        for region in (Region.HEAD, Region.EXAMPLES, Region.SUFFIX)
    )
    return Arrangement(head, tuple(sorted(tools, key=tool_place)), examples, tuple(history), suffix)


def lay_out(arrangement: Arrangement, policy: ContextPolicy, neutraliser: Neutraliser) -> Draft:
    """The messages and tools of an arrangement, no mark of the model live in the words of others."""
    messages: list[DraftMessage] = []
    if arrangement.head:
        head = _parts(arrangement.head, neutraliser)
        messages.append(DraftMessage.of_parts("system", head, Region.HEAD, JOINT))
    for item in arrangement.examples:
        if isinstance(item.payload, Example):
            messages.extend(
                DraftMessage.whole(
                    message if item.trust is Trust.TRUSTED else neutraliser.message(message),
                    item.id,
                    Region.EXAMPLES,
                )
                for message in item.payload.messages
            )
    messages.extend(_trajectory(arrangement.history, policy, neutraliser))
    if arrangement.suffix:
        messages = _with_suffix(messages, arrangement, policy, _parts(arrangement.suffix, neutraliser))
    tools = (
        DraftTool(item.payload.spec, item.id)
        for item in arrangement.tools
        if isinstance(item.payload, ToolContract)
    )
    return Draft(tuple(messages), tuple(tools))


def carry(
    messages: Sequence[DraftMessage], parts: Sequence[TextPart], carrier: Carrier, region: Region
) -> list[DraftMessage]:
    """`messages` with `parts` at their end, in the carrier that the policy names."""
    last = messages[-1] if messages else None
    if (
        carrier is Carrier.TAIL_OF_LAST_TOOL_RESULT
        and last is not None
        and last.region is Region.TRAJECTORY
        and last.message.role in ("tool", "user")
    ):
        return [*messages[:-1], last.extended(parts, JOINT)]
    carried = DraftMessage.of_parts("user", parts, region, JOINT)
    return [*messages, _wrapped(carried) if carrier is Carrier.TOOL_RESPONSE else carried]


def _parts(items: Sequence[ContextItem], neutraliser: Neutraliser) -> list[TextPart]:
    return [TextPart(shown(item, neutraliser), item.id) for item in items]


def _trajectory(
    history: Sequence[ContextItem], policy: ContextPolicy, neutraliser: Neutraliser
) -> list[DraftMessage]:
    last_user = max((index for index, item in enumerate(history) if item.kind is Kind.USER_TURN), default=-1)
    messages: list[DraftMessage] = []
    standing: list[TextPart] = []
    for index, item in enumerate(history):
        if item.kind not in _TURNS:
            # Sent at this place before: it stays here, in the bytes it had.
            standing += _parts([item], neutraliser)
            continue
        messages, standing = _with_standing(messages, standing, policy.carrier), []
        echo = policy.reasoning is ReasoningEcho.ALL or index > last_user
        match item.payload:
            case UserTurn(text=text, name=name):
                turn = Message(role="user", content=text, name=name)
                messages.append(_whole(turn, item.id, neutraliser))
            case AssistantTurn(text=text, reasoning=reasoning):
                turn = Message(role="assistant", content=text, reasoning=reasoning if echo else None)
                messages.append(_whole(turn, item.id, neutraliser))
            case ToolStep() as step:
                messages.extend(_step_messages(item.id, step, neutraliser, echo=echo))
    return _with_standing(messages, standing, policy.carrier)


def _with_standing(
    messages: list[DraftMessage], parts: Sequence[TextPart], carrier: Carrier
) -> list[DraftMessage]:
    """Texts that stand in the history one after another: together at a tail, else each in its own message."""
    if not parts:
        return messages
    if carrier is Carrier.TAIL_OF_LAST_TOOL_RESULT:
        return carry(messages, parts, carrier, Region.TRAJECTORY)
    return [*messages, *chain.from_iterable(carry((), [part], carrier, Region.TRAJECTORY) for part in parts)]


def _step_messages(
    item_id: str, step: ToolStep, neutraliser: Neutraliser, *, echo: bool
) -> list[DraftMessage]:
    """The calling message and one tool message a call, in call order whatever order the results came in."""
    calling = Message(
        role="assistant", content=step.text, reasoning=step.reasoning if echo else None, tool_calls=step.calls
    )
    messages = [_whole(calling, item_id, neutraliser)]
    contents = {result.call_id: result.content for result in step.results}
    for call in step.calls:
        result = Message(role="tool", content=contents.get(call.id, OPEN_CALL_TEXT), tool_call_id=call.id)
        messages.append(_whole(result, part_id(item_id, call.id), neutraliser))
    return messages


def _whole(message: Message, owner: str, neutraliser: Neutraliser) -> DraftMessage:
    return DraftMessage.whole(neutraliser.message(message), owner, Region.TRAJECTORY)


def _with_suffix(
    messages: Sequence[DraftMessage],
    arrangement: Arrangement,
    policy: ContextPolicy,
    parts: Sequence[TextPart],
) -> list[DraftMessage]:
    task_is_last = bool(arrangement.history) and arrangement.history[-1].kind is Kind.USER_TURN
    if policy.suffix_position is SuffixPosition.BEFORE_TASK and task_is_last:
        carried = DraftMessage.of_parts("user", parts, Region.SUFFIX, JOINT)
        return [*messages[:-1], carried, messages[-1]]
    return carry(messages, parts, policy.carrier, Region.SUFFIX)


def _wrapped(carried: DraftMessage) -> DraftMessage:
    """The message inside `<tool_response>`, its spans moved by the length of the opening tag."""
    opening, closing = "<tool_response>\n", "\n</tool_response>"
    content = f"{opening}{carried.message.content}{closing}"
    spans = tuple(span.moved(len(opening)) for span in carried.spans)
    return DraftMessage(carried.message.model_copy(update={"content": content}), spans, carried.region)
