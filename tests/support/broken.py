"""Which invariants a fault really breaks, seen from outside: the drafts of one run with it and without it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from serving.assembler import Draft, DraftMessage, Invariant, Region, item_of
from serving.assembler.faults import broken_invariants


def broken(plain: Sequence[Draft], faulty: Sequence[Draft]) -> frozenset[Invariant]:
    """The invariants that some call of `faulty` breaks; call n of both sides is the same call."""
    both = list(zip(plain, faulty, strict=True))
    found: set[Invariant] = set()
    for draft in faulty:
        found |= broken_invariants(draft)
    for invariant, holds in (
        (Invariant.STATIC_HEAD, len({(_head(draft), _tools(draft)) for draft in faulty}) == 1),
        (Invariant.TOOLS_FIXED, len({_tools(draft) for draft in faulty}) == 1),
        (Invariant.APPEND_ONLY, all(_extends(before, after) for before, after in pairwise(faulty))),
        (Invariant.STRUCTURE_KEPT, all(_forms(one) <= _forms(two) for two, one in both)),
        (Invariant.ARGUMENTS_VERBATIM, all(_arguments(one) <= _arguments(two) for two, one in both)),
        (Invariant.REASONING_ECHOED, all(_same_reasoning(two, one) for two, one in both)),
        (Invariant.REPLACEMENTS_FROZEN, _frozen(both)),
        (Invariant.REQUIRED_PRESENT, all(_items(one) == _items(two) for two, one in both)),
    ):
        if not holds:
            found.add(invariant)
    return frozenset(found)


def written(draft: Draft) -> Iterator[tuple[str, str]]:
    """Every (owner, text) of contents and reasoning."""
    for message in draft.messages:
        for span in message.spans:
            if span.path in (("content",), ("reasoning",)):
                text = getattr(message.message, str(span.path[0])) or ""
                yield span.item_id, text[span.start : span.end]


def _head(draft: Draft) -> str:
    return repr([m.message for m in draft.messages if m.region in (Region.HEAD, Region.EXAMPLES)])


def _tools(draft: Draft) -> str:
    return repr(draft.tools)


def _trajectory(draft: Draft) -> list[DraftMessage]:
    return [message for message in draft.messages if message.region is Region.TRAJECTORY]


def _extends(before: Draft, after: Draft) -> bool:
    """Message by message, but a text may grow at its end where it is the last one."""
    one = [message.message for message in _trajectory(before)]
    two = [message.message for message in _trajectory(after)][: len(one)]
    if one[:-1] != two[:-1]:
        return False
    grown = two[-1].model_copy(update={"content": one[-1].content})
    return grown == one[-1] and (two[-1].content or "").startswith(one[-1].content or "")


def _forms(draft: Draft) -> set[tuple[str, str, str]]:
    return {
        (span.item_id, message.message.role, str(span.path[0]))
        for message in draft.messages
        for span in message.spans
    }


def _arguments(draft: Draft) -> set[tuple[str, str]]:
    return {
        (call.id, call.arguments)
        for message in draft.messages
        if message.spans
        for call in message.message.tool_calls
    }


def _same_reasoning(plain: Draft, faulty: Draft) -> bool:
    def thoughts(draft: Draft) -> set[tuple[str, str | None]]:
        return {(m.spans[0].item_id, m.message.reasoning) for m in draft.messages if m.message.reasoning}

    present = {span.item_id for message in faulty.messages for span in message.spans}
    return thoughts(faulty) == {pair for pair in thoughts(plain) if pair[0] in present}


def _frozen(both: Sequence[tuple[Draft, Draft]]) -> bool:
    """Whether an owner's text, where it is another one than its own, is the same in all calls."""
    replacements: defaultdict[str, set[str]] = defaultdict(set)
    for plain, faulty in both:
        own = defaultdict(set)
        for owner, text in written(plain):
            own[owner].add(text)
        for owner, text in written(faulty):
            if "#" in owner and text not in own[owner]:
                replacements[owner].add(text)
    return all(len(texts) == 1 for texts in replacements.values())


def _items(draft: Draft) -> set[str]:
    spans = [span.item_id for message in draft.messages for span in message.spans]
    return {item_of(owner) for owner in [*spans, *(tool.item_id for tool in draft.tools)]} - {"framing"}
