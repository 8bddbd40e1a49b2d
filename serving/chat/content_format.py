"""Whether a template reads message content as one string or walks its parts.

vLLM decides this from the template's syntax tree (`vllm/renderers/hf.py`, `_detect_content_format`): a loop
over a message's content means parts. The rule is repeated here because the two forms render differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from jinja2 import nodes


class ContentFormat(StrEnum):
    """What the template is handed as `content`."""

    STRING = "string"
    """One string; text parts joined by newlines."""

    PARTS = "openai"
    """A list of `{"type": "text", "text": …}`."""


def detect_content_format(tree: nodes.Template) -> ContentFormat:
    """PARTS when the template loops over a message's content, directly or inside a macro given it."""
    messages = _message_names(tree)
    macro_loops = _loops_in_macros(tree, messages)
    for loop in tree.find_all(nodes.For):
        if any(_reads(loop.iter, name, "content") for name in messages):
            return ContentFormat.PARTS
        if isinstance(loop.iter, nodes.Name):
            parameters = macro_loops.get(id(loop))
            # Outside macros a loop over any variable called `content` counts, whatever set it.
            walks = loop.iter.name == "content" if parameters is None else loop.iter.name in parameters
            if walks:
                return ContentFormat.PARTS
    return ContentFormat.STRING


def _message_names(tree: nodes.Template) -> list[str]:
    """Loop variables that stand for one message: `for m in messages`, or over a name set from it."""
    sources = list(_aliases(tree, "messages"))
    return [
        loop.target.name
        for loop in tree.find_all(nodes.For)
        if isinstance(loop.target, nodes.Name) and any(_reads(loop.iter, source) for source in sources)
    ]


def _aliases(tree: nodes.Template, name: str) -> Iterator[str]:
    """`name` and every variable that is assigned from it, directly or through others."""
    waiting, seen = [name], {name}
    while waiting:
        current = waiting.pop(0)
        yield current
        for assignment in tree.find_all(nodes.Assign):
            target = assignment.target
            if (
                isinstance(target, nodes.Name)
                and target.name not in seen
                and _reads(assignment.node, current)
            ):
                seen.add(target.name)
                waiting.append(target.name)


def _loops_in_macros(tree: nodes.Template, messages: list[str]) -> dict[int, set[str]]:
    """Loops inside macros (by identity), with the macro's parameters that receive a message's content."""
    found: dict[int, set[str]] = {}
    for macro in tree.find_all(nodes.Macro):
        names = [argument.name for argument in macro.args]
        given: set[str] = set()
        for call in tree.find_all(nodes.Call):
            if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
                continue
            pairs = [*zip(names, call.args, strict=False)]
            pairs += [(kw.key, kw.value) for kw in call.kwargs if kw.key in names]
            given |= {n for n, v in pairs if any(_reads(v, message, "content") for message in messages)}
        for loop in macro.find_all(nodes.For):
            found[id(loop)] = given
    return found


def _reads(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Whether `node` is the variable (or its `key`), through filters, tests and slices."""
    if isinstance(node, nodes.Filter | nodes.Test):
        return _reads(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _reads(node.node, name, key)
    if key is None:
        return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
    if isinstance(node, nodes.Getattr):
        return node.attr == key and _reads_name(node.node, name)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value == key and _reads_name(node.node, name)
    return False


def _reads_name(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
