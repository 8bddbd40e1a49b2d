"""Which carrier of dynamic text a template gets on with: found by rendering a running tool loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from serving.assembler.draft import DraftMessage, TextPart
from serving.assembler.kinds import Carrier, Region
from serving.assembler.layout import carry
from serving.assembler.messages import Message, ToolCall, ToolSpec
from serving.errors import UsageError

IN_ORDER_OF_PREFERENCE: Final = (
    Carrier.TAIL_OF_LAST_TOOL_RESULT,
    Carrier.TOOL_RESPONSE,
    Carrier.USER,
)
"""The first adds no message at all, the second none that looks like a new question."""

_CALL: Final = ToolCall(id="zqxcall01", name="zqxtool", arguments="{}")
_TOOL: Final = ToolSpec(name="zqxtool", description="zqx", parameters={"type": "object", "properties": {}})
_RESULT, _CARRIED = "zqxresult", "zqxcarried"
_LOOP: Final = (
    Message(role="user", content="zqxquestion"),
    Message(role="assistant", content="", reasoning="zqxthought", tool_calls=(_CALL,)),
    Message(role="tool", content=_RESULT, tool_call_id=_CALL.id),
)


def best_carrier(render: Callable[[Sequence[Message], Sequence[ToolSpec]], str]) -> Carrier:
    """The first carrier whose text reaches the prompt and leaves all up to the tool result as it was.

    `render` gives the text of messages and tools, generation prompt included. Where a template takes no tool
    loop, or none of the three keeps it, it is the first that reaches the prompt, and the first of all when
    none does.
    """
    try:
        plain = render(_LOOP, (_TOOL,))
    except UsageError:
        return IN_ORDER_OF_PREFERENCE[0]
    kept = plain[: plain.find(_RESULT) + len(_RESULT)] if _RESULT in plain else ""
    texts = {carrier: _carried(render, carrier) for carrier in IN_ORDER_OF_PREFERENCE}
    reaching = [carrier for carrier, text in texts.items() if _CARRIED in text]
    keeping = [carrier for carrier in reaching if texts[carrier].startswith(kept)]
    return next(iter((*keeping, *reaching)), IN_ORDER_OF_PREFERENCE[0])


def _carried(render: Callable[[Sequence[Message], Sequence[ToolSpec]], str], carrier: Carrier) -> str:
    drafts = [DraftMessage(message, (), Region.TRAJECTORY) for message in _LOOP]
    carried = carry(drafts, [TextPart(_CARRIED, "zqx")], carrier, Region.SUFFIX)
    try:
        return render([draft.message for draft in carried], (_TOOL,))
    except UsageError:
        return ""  # the template refuses this carrier, so it reaches nothing
