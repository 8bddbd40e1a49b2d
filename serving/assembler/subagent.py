"""Sub-agents: one that continues from the parent's context, one that starts from a task; and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from pydantic import Field

from serving.assembler.gates import in_scope
from serving.assembler.items import ContextItem
from serving.assembler.kinds import KIND_RULES, Kind, Region, Trust
from serving.assembler.manifest import ContextManifest
from serving.assembler.payloads import Instruction, Notification, TaskStateText, Text, ToolResult, UserTurn
from serving.assembler.record import Record
from serving.assembler.request import AssemblyRequest, Decision
from serving.errors import UsageError

CountTokens: TypeAlias = Callable[[str], int]
"""Tokens of a text, the same number for the same text."""

_TURNS: Final = frozenset({Kind.USER_TURN, Kind.ASSISTANT_TURN, Kind.TOOL_STEP})

FINISHED_EVENT: Final = "agent_finished"


def inheriting(
    parent: AssemblyRequest,
    sent: ContextManifest,
    task: str,
    *,
    agent: str,
    trust: Trust = Trust.UNTRUSTED,
) -> AssemblyRequest:
    """The parent's request with `task` at the end of its log: all that it has in front of the dynamic suffix
    is a byte-identical prefix, so that the sub-agent starts from the parent's cache.

    Behind a user turn the task is another one. Inside a tool loop it stands as a text of its own, in the
    policy's carrier: a user turn there would end the loop, and with it reasoning templates drop the reasoning
    that they have already printed.

    `sent` is the manifest of the parent's packet: the examples it chose are pinned, and no others enter, so
    that less room cannot change them. Tools stay offered as they are, limits and stage of the run too; what
    the sub-agent may not do is refused when it is executed, because leaving a tool out would change the
    prefix. `task` is untrusted unless a person or code wrote it.
    """
    chosen = {item.id: index for index, item in enumerate(sent.selected)}

    def pinned(item: ContextItem) -> ContextItem:
        return item.model_copy(update={"required": True, "order": chosen[item.id]})

    candidates = tuple(
        pinned(item) if KIND_RULES[item.kind].region is Region.EXAMPLES else item
        for item in parent.candidates
        if KIND_RULES[item.kind].region is not Region.EXAMPLES or item.id in chosen
    )
    return parent.model_copy(
        update={
            "candidates": candidates,
            "history": (*parent.history, _task(agent, task, trust, in_loop=_in_loop(parent))),
            **_names(parent, agent),
        }
    )


def self_contained(
    parent: AssemblyRequest,
    task: str,
    *,
    agent: str,
    items: Iterable[str] = (),
    role: str | None = None,
    trust: Trust = Trust.UNTRUSTED,
) -> AssemblyRequest:
    """A fresh request that holds `task`, `role` as its instruction, and the parent's `items` by id; no history.

    Candidates and tools can be handed over. The context (tenant, actor, clearance) and the state with its
    limits are the parent's, so nothing widens. `UsageError` for an id that the parent may not show or does
    not have, which are not told apart, and for a turn: what was found there is handed over as evidence.
    """
    wanted = frozenset(items)
    visible = {
        item.id: item for item in (*parent.candidates, *parent.tools) if in_scope(item, parent.context)
    }
    if unknown := sorted(wanted - visible.keys()):
        raise UsageError(
            f"Expected ids of the parent's candidates and tools, but '{unknown[0]}' is none; hand over what a "
            "turn found as evidence."
        )
    rules = (ContextItem(id=f"role:{agent}", payload=Instruction(text=role)),) if role else ()
    tools = tuple(item for item in parent.tools if item.id in wanted)
    return AssemblyRequest(
        context=parent.context,
        candidates=(*rules, *(item for item in parent.candidates if item.id in wanted)),
        history=(_task(agent, task, trust, in_loop=False),),
        tools=tools,
        window=parent.window,
        max_output=parent.max_output,
        overhead=parent.overhead,
        decision=Decision.CHOOSE_TOOL if tools else Decision.ANSWER,
        state=parent.state,
        surface=parent.surface,
        run_id=parent.run_id,
        **_names(parent, agent),
    )


class Conclusion(Record):
    """What a sub-agent hands back: no more than was agreed, and never cut without saying so."""

    agent: Text
    text: Text
    tokens: int = Field(ge=0)
    complete: bool
    """Whether `text` is all that the sub-agent wrote; if not, the text itself says where the rest is."""
    artifact_ref: str | None = None
    """Where the whole of it is kept."""

    def as_result(self, call_id: str) -> ToolResult:
        """The answer to the parent's call that started the sub-agent."""
        return ToolResult(call_id=call_id, content=self.text, artifact_ref=self.artifact_ref)

    def as_item(self, item_id: str) -> ContextItem:
        """An untrusted item for the parent's log, for a sub-agent that no open call waits for."""
        return ContextItem(
            id=item_id,
            payload=Notification(text=self.text, event=FINISHED_EVENT),
            trust=Trust.UNTRUSTED,
            owner=self.agent,
            source=f"agents/{self.agent}",
        )


class ConclusionTooLong(Record):
    """A refusal: the text is over the bound and is kept nowhere, so a cut would lose the rest of it.

    The caller asks again for a shorter one, or keeps the text as an artifact and concludes with its reference.
    """

    agent: str
    tokens: int
    most_tokens: int


def conclude(
    agent: str, text: str, *, most_tokens: int, count: CountTokens, artifact_ref: str | None = None
) -> Conclusion | ConclusionTooLong:
    """Bound what a sub-agent wrote to `most_tokens`, counted by `count` on the very text that is handed back.

    A text that is too long keeps its first whole lines, else its first whole words, and ends in a line that
    says how much is missing and where all of it is; without `artifact_ref`, or when not even one word and that
    line fit, it is refused. `UsageError` for a text without a word, which is no conclusion.
    """
    if not text.strip():
        raise UsageError(f"Expected a conclusion of {agent}, but it wrote nothing; treat the call as failed.")
    tokens = count(text)
    if tokens <= most_tokens:
        return Conclusion(agent=agent, text=text, tokens=tokens, complete=True, artifact_ref=artifact_ref)
    if artifact_ref is not None:
        for ends in (_ends(text, "\n"), _ends(text, None)):
            if (cut := _longest(text, ends, most_tokens, count, artifact_ref)) is not None:
                return Conclusion(
                    agent=agent, text=cut, tokens=count(cut), complete=False, artifact_ref=artifact_ref
                )
    return ConclusionTooLong(agent=agent, tokens=tokens, most_tokens=most_tokens)


def _longest(
    text: str, ends: list[int], most_tokens: int, count: CountTokens, artifact_ref: str
) -> str | None:
    """The longest of the cuts at `ends` that fits with its notice; bisected, then proven by its own count."""
    low, high, best = 0, len(ends), None
    while low < high:
        middle = (low + high) // 2
        cut = _noted(text, ends[middle], artifact_ref)
        if count(cut) <= most_tokens:
            low, best = middle + 1, cut
        else:
            high = middle
    return best


def _noted(text: str, end: int, artifact_ref: str) -> str:
    missing = len(text) - end
    return f"{text[:end]}\n[{missing} more characters; the whole conclusion: {artifact_ref}]"


def _ends(text: str, separator: str | None) -> list[int]:
    """Where `text` may end: behind each line but the last, or behind each word, so that no number is cut."""
    ends: list[int] = []
    for index, character in enumerate(text):
        stops = character == separator if separator else character.isspace()
        if stops and index and not text[index - 1].isspace():
            ends.append(index)
    return ends


def _in_loop(parent: AssemblyRequest) -> bool:
    turns = [item.kind for item in parent.history if item.kind in _TURNS]
    return bool(turns) and turns[-1] is not Kind.USER_TURN


def _task(agent: str, task: str, trust: Trust, *, in_loop: bool) -> ContextItem:
    if not task.strip():
        raise UsageError(f"Expected a task for {agent}, but it is empty; say what it has to find out.")
    return ContextItem(
        id=f"task:{agent}",
        payload=TaskStateText(text=task) if in_loop else UserTurn(text=task),
        trust=trust,
        owner=agent,
        source="parent",
        required=True,
    )


def _names(parent: AssemblyRequest, agent: str) -> dict[str, str]:
    return {"request_id": f"{parent.request_id}/{agent}", "step_id": f"{parent.step_id}/{agent}"}
