"""The earlier requests of a log: a few numbers of each in memory, the rest read again when it is needed."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from serving.assembler import Rendered
from serving.assembler.record import canonical_json
from serving.chat import ChatRenderer
from serving.explain.lint.entry import LogEntry, parse_entry
from serving.explain.lint.reader import LogReader
from serving.explain.lint.replies import GeneratedIds, ReplyIds, generated_ids
from serving.explain.turn import Turn, turn_of

_RENDERERS = 4
"""Sets of template arguments whose renderers are kept; a log has one or two."""
_TURNS = 8
"""Requests that are kept parsed and rendered: a request mostly leaves one that came shortly before."""


class Renderers:
    """One renderer for each set of template arguments, the latest few kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: OrderedDict[str, ChatRenderer] = OrderedDict()

    def given(self, template_kwargs: Mapping[str, JsonValue]) -> ChatRenderer:
        """The renderer that hands these arguments to the template."""
        key = canonical_json(dict(template_kwargs)) if template_kwargs else ""
        if key not in self._made:
            self._made[key] = ChatRenderer(self._folder, template_kwargs=template_kwargs)
            if len(self._made) > _RENDERERS:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return self._made[key]


class EarlierRequests:
    """Where each request stands in the log, by its number in the prediction."""

    def __init__(self, reader: LogReader, renderers: Renderers) -> None:
        self._reader = reader
        self._renderers = renderers
        self._offsets, self._lines, self._messages = array("Q"), array("Q"), array("I")
        self._replies: list[ReplyIds] = []
        self._turns: OrderedDict[int, Turn] = OrderedDict()

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, entry: LogEntry, offset: int, reply: ReplyIds, turn: Turn) -> None:
        """Remember the next request; the whole `turn` for as long as it is one of the latest."""
        self._keep(len(self), turn)
        self._offsets.append(offset)
        self._lines.append(entry.line)
        self._messages.append(len(entry.messages))
        self._replies.append(reply)

    def line(self, request: int) -> int:
        """The line of a request."""
        return self._lines[request]

    def messages(self, request: int) -> int:
        """How many messages it had."""
        return self._messages[request]

    def reply(self, request: int) -> ReplyIds:
        """How the ids of its reply are known."""
        return self._replies[request]

    def turn(self, request: int) -> Turn:
        """The request with its tokens, read again unless it is one of the latest that were asked for."""
        turn = self._turns.get(request)
        if turn is None:
            entry = parse_entry(self._reader.line_at(self._offsets[request]), self._lines[request])
            renderer = self._renderers.given(entry.template_kwargs)
            rendered = renderer.render_body(entry.messages, entry.tools)
            turn = entry_turn(entry, renderer, rendered, generated_ids(entry, renderer, rendered))
        self._keep(request, turn)
        return turn

    def _keep(self, request: int, turn: Turn) -> None:
        self._turns[request] = turn
        self._turns.move_to_end(request)
        if len(self._turns) > _TURNS:
            self._turns.popitem(last=False)


def entry_turn(entry: LogEntry, renderer: ChatRenderer, rendered: Rendered, generated: GeneratedIds) -> Turn:
    """A request of the log as the cache met it."""
    return turn_of(
        renderer,
        entry.messages,
        entry.tools,
        rendered=rendered,
        prompt_ids=entry.prompt_ids,
        output_ids=generated.ids,
        reply=entry.reply,
        template_kwargs=entry.template_kwargs,
    )
