"""Notices what a template does to messages that stay the same: looking back, stripping reasoning, joining.

Such a template renders a longer conversation to a text that does not begin with the shorter one's, which
costs the prefix cache all that lies behind. Encoding is right whatever is found here; this only says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

from serving.assembler.reuse import RewriteKind, Rewritten
from serving.chat.reading import Body
from serving.chat.recent import Recent
from serving.chat.traced import Run
from serving.text import common_prefix

RENDERINGS_KEPT: Final = 8
"""The last rendering of as many conversations, or the last few of one."""


class RewriteWatch:
    """Compares each rendering with an earlier one of the same conversation. Threads may share it."""

    def __init__(self, generation_prompts: Sequence[str | None]) -> None:
        """Args: what the template puts behind the last message, without tools and with them; None where it is
        not known, and joined messages are not noticed.
        """
        self._generation_prompts = tuple(generation_prompts)
        self._kept: Recent[str, _Shown] = Recent(RENDERINGS_KEPT)

    def rewritten(self, body: Body, text: str, origins: Sequence[Run]) -> tuple[Rewritten, ...]:
        """What became of the messages that this body and the earlier one most like it begin with.

        `origins` are those of `text`, the body as rendered.
        """
        new = _Shown(body, text, origins)
        old, alike = None, 0
        for known in self._kept.values():
            if known.body.tools == body.tools and (count := _alike(known.body, body)) > alike:
                old, alike = known, count
                if alike == len(known.body.messages):
                    # All of it is here: no earlier rendering has more to say of this conversation.
                    break
        self._kept.put(text, new)
        prompt = self._generation_prompts[bool(body.tools)]
        if old is None or old.goes_on_in(new, prompt):
            return ()
        found = [
            Rewritten(index, _kind(before, after))
            for index in range(alike)
            if (before := old.part(index)) != (after := new.part(index))
        ]
        if prompt is not None and _is_joined(old, new, alike, prompt):
            found.append(Rewritten(alike - 1, RewriteKind.JOINED))
        return tuple(found)


class _Extent(NamedTuple):
    """Where a message stands: its first to its last character, with the template's own text before them."""

    start: int
    end: int


class _Shown:
    def __init__(self, body: Body, text: str, origins: Sequence[Run]) -> None:
        self.body = body
        self.text = text
        self._origins = origins

    @cached_property
    def extents(self) -> tuple[_Extent | None, ...]:
        """Of each message; None: no character came from it."""
        return _extents(self._origins, len(self.body.messages))

    def goes_on_in(self, new: _Shown, prompt: str | None) -> bool:
        """Whether `new` begins with all of this but the generation prompt, so that nothing was taken back."""
        return self.text.endswith(prompt or "") and new.text.startswith(self.text.removesuffix(prompt or ""))

    def part(self, index: int) -> str:
        extent = self.extents[index]
        return "" if extent is None else self.text[extent.start : extent.end]


def _extents(origins: Sequence[Run], messages: int) -> tuple[_Extent | None, ...]:
    own: dict[int, tuple[int, int]] = {}
    position = 0
    for length, leaf, _ in origins:
        if leaf is not None and leaf.path[0] == "messages":
            index = int(leaf.path[1])
            own[index] = (own[index][0] if index in own else position, position + length)
        position += length
    extents: list[_Extent | None] = []
    reached = 0
    for index in range(messages):
        if index not in own:
            extents.append(None)
            continue
        first, end = own[index]
        extents.append(_Extent(min(reached, first), end))
        reached = max(reached, end)
    return tuple(extents)


def _alike(one: Body, other: Body) -> int:
    """How many messages the two begin with alike."""
    fewer = min(len(one.messages), len(other.messages))
    return next((i for i in range(fewer) if one.messages[i] != other.messages[i]), fewer)


def _kind(before: str, after: str) -> RewriteKind:
    start = common_prefix(before, after)
    end = common_prefix(before[start:][::-1], after[start:][::-1])
    if start + end == len(after):
        return RewriteKind.SHORTENED
    return RewriteKind.EXTENDED if start + end == len(before) else RewriteKind.CHANGED


def _is_joined(old: _Shown, new: _Shown, alike: int, generation_prompt: str) -> bool:
    """Whether the template had closed the last message of `old`, and opened it again for what follows."""
    before, after = old.extents[alike - 1], new.extents[alike - 1]
    is_longer = alike == len(old.body.messages) < len(new.body.messages)
    if not is_longer or before is None or after is None or not old.text.endswith(generation_prompt):
        return False
    closing = old.text[before.end : len(old.text) - len(generation_prompt)]
    return not new.text.startswith(closing, after.end)
