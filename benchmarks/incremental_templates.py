"""Every published chat template that renders tools: is rendering from what is known the same as anew?

    python -m benchmarks.incremental_templates --write

A conversation with tools, reasoning and three user messages is rendered before each model call, by a renderer
that remembers and by one that does not, and ids, places, spans and reasons are compared. The templates are
those of the `trl` wheel, read as data. The tokenizer is Qwen3's, to which the markers that a template writes
(`<|eot_id|>`, `<turn|>` …) are added, as each is one token in its own model; once more without any added
token, where no text can be cut and all is encoded anew each time.

`--write` writes `results/incremental-rendering/templates.md` and `.json`; without it the table is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from serving.assembler import Message, PacketSpan, Rendered, ToolCall, ToolSpec
from serving.chat import ChatRenderer, ChatTokenizer, probe_template
from serving.errors import UsageError
from serving.models import ensure, load_catalogue
from serving.models.catalogue import ShapeRecipe
from serving.models.wheels import fetch_wheels
from serving.progress import Silent

MODEL = "qwen3-nano-shape"
RESULTS = Path(__file__).parents[1] / "results" / "incremental-rendering"
COMMAND = "python -m benchmarks.incremental_templates --write"

_TEMPLATE = re.compile(r"trl/chat_templates/(\w+)\.jinja")
_MARKER = re.compile(r"<\|[^\s<>|]+\|?>|<[^\s<>|]+\|>|<｜[^\s<>]+｜>")
"""How models write their control tokens: `<|eot_id|>`, `<|turn>`, `<turn|>`, `<｜User｜>`."""


@dataclass(frozen=True)
class Row:
    """What one template did; shares are of the tokens of all calls but the first."""

    template: str
    parallel_calls: bool
    """False: the template refuses them, and the conversation has none."""
    reads_clock: bool
    """Its text, and so its tokens, change with the day."""
    calls: int
    equal: bool
    tokens: int
    reused: int
    whole: dict[str, int]
    """Calls after the first in which all had to be encoded, by reason."""
    rewritten: dict[str, int]
    """Unchanged messages that were rendered otherwise than in the call before, by kind."""
    calls_rewriting: int
    """Calls in which that happened."""
    equal_without_tokens: bool
    whole_without_tokens: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The row as it is committed."""
        return asdict(self)

    @property
    def verdict(self) -> str:
        """In words: what was taken over, and why not more."""
        if self.whole:
            return "fallback: " + ", ".join(sorted(self.whole))
        return f"incremental, {self.reused / self.tokens:.1%} taken over"

    @property
    def looks_back(self) -> str:
        """In words: what the template did to messages that stayed the same."""
        if not self.rewritten:
            return "no"
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.rewritten.items()))
        return f"{kinds} (in {self.calls_rewriting} of {self.calls - 1} calls)"


def published_templates() -> dict[str, str]:
    """The templates of the pinned `trl` wheel that render tools, by name."""
    recipe = load_catalogue()[MODEL].recipe
    if not isinstance(recipe, ShapeRecipe):
        raise SystemExit(f"{MODEL} was expected to name the wheel of its template")
    with tempfile.TemporaryDirectory() as folder:
        [wheel] = fetch_wheels([recipe.template], Path(folder), environ=os.environ, progress=Silent())
        with zipfile.ZipFile(wheel) as archive:
            sources = {
                found[1]: archive.read(name).decode("utf-8")
                for name in sorted(archive.namelist())
                if (found := _TEMPLATE.fullmatch(name))
            }
    return {name: source for name, source in sources.items() if probe_template(source).renders_tools}


def table(templates: Mapping[str, str]) -> list[Row]:
    """One row a template, by name."""
    with tempfile.TemporaryDirectory() as folder:
        base = ensure(MODEL).path
        markers = sorted({marker for source in templates.values() for marker in _MARKER.findall(source)})
        own = _tokenizer(base, Path(folder) / "own", markers)
        bare = _tokenizer(base, Path(folder) / "bare", None)
        return [_row(name, source, base, own, bare) for name, source in templates.items()]


def markdown(rows: Sequence[Row]) -> str:
    """The table as it is committed."""
    lines = [
        "# Incremental rendering over published chat templates",
        "",
        f"Written by `{COMMAND}`: every template of trl {_trl_version()} that renders tools, over a conversation with "
        "tools, reasoning and three user messages, rendered before each model call.",
        "",
        "- *Equal*: ids, token places, spans and reasons of every call are those of a renderer that remembers "
        "nothing.",
        "- *Rendering*: the share of tokens (of all calls but the first) that were not encoded again, or why all were.",
        "- *Looks back*: messages that stayed the same and that the template rendered otherwise than in the call "
        "before; only their pieces are encoded again.",
        "- *Without its tokens*: the same with a tokenizer that has no added tokens, so that no text can be cut.",
        "",
        "| template | calls | equal | rendering | looks back | without its tokens |",
        "| --- | ---: | --- | --- | --- | --- |",
    ]
    for row in rows:
        bare = "equal, " if row.equal_without_tokens else "DIFFERS, "
        bare += (
            "fallback: " + ", ".join(sorted(row.whole_without_tokens)) if row.whole_without_tokens else "cut"
        )
        notes = ("" if row.parallel_calls else " (refuses parallel calls)") + (
            " (reads the clock)" * row.reads_clock
        )
        lines.append(
            f"| {row.template}{notes} | {row.calls} | {'yes' if row.equal else '**no**'} | {row.verdict} | "
            f"{row.looks_back} | {bare} |"
        )
    return "\n".join(lines) + "\n"


def _row(name: str, source: str, folder: Path, own: ChatTokenizer, bare: ChatTokenizer) -> Row:
    messages, parallel = _accepted(source, folder, own)
    equal, renderings = _compared(source, folder, own, messages)
    equal_bare, renderings_bare = _compared(source, folder, bare, messages)
    later = [rendered.reuse for rendered in renderings[1:] if rendered.reuse is not None]
    rewritten = Counter(found.kind.value for reuse in later for found in reuse.rewritten)
    return Row(
        template=name,
        parallel_calls=parallel,
        reads_clock=probe_template(source).reads_clock,
        calls=len(renderings),
        equal=equal,
        tokens=sum(reuse.reused + reuse.encoded for reuse in later),
        reused=sum(reuse.reused for reuse in later),
        whole=_reasons(renderings),
        rewritten=dict(sorted(rewritten.items())),
        calls_rewriting=sum(bool(reuse.rewritten) for reuse in later),
        equal_without_tokens=equal_bare,
        whole_without_tokens=_reasons(renderings_bare),
    )


def _accepted(source: str, folder: Path, tokenizer: ChatTokenizer) -> tuple[list[Message], bool]:
    """The conversation with parallel calls, or the one without where the template refuses them."""
    for parallel in (True, False):
        messages = _conversation(parallel=parallel)
        try:
            ChatRenderer(folder, template_override=source, tokenizer=tokenizer).render(messages, TOOLS)
        except UsageError:
            continue
        return messages, parallel
    raise SystemExit("a template that renders tools was expected to accept a conversation with tools")


def _compared(
    source: str, folder: Path, tokenizer: ChatTokenizer, messages: Sequence[Message]
) -> tuple[bool, list[Rendered]]:
    """Render before each model call; whether both renderers agreed each time, and what the first one gave."""
    remembering, anew = (
        ChatRenderer(folder, template_override=source, tokenizer=tokenizer, incremental=incremental)
        for incremental in (True, False)
    )
    renderings: list[Rendered] = []
    equal = True
    for end in _calls(messages):
        spans = [PacketSpan(path=("messages", place), item_id=f"m{place}") for place in range(end)]
        spans += [PacketSpan(path=("tools", place), item_id=f"t{place}") for place in range(len(TOOLS))]
        renderings.append(remembering.render(messages[:end], TOOLS, spans))
        equal = equal and renderings[-1] == anew.render(messages[:end], TOOLS, spans)
    return equal, renderings


def _calls(messages: Sequence[Message]) -> Iterator[int]:
    """How many messages each model call reads: all before an assistant message, and all at the end."""
    yield from (place for place, message in enumerate(messages) if message.role == "assistant")
    yield len(messages)


def _reasons(renderings: Sequence[Rendered]) -> dict[str, int]:
    reasons = (rendered.reuse.whole for rendered in renderings[1:] if rendered.reuse is not None)
    return dict(sorted(Counter(reason.value for reason in reasons if reason is not None).items()))


def _tokenizer(base: Path, folder: Path, markers: Sequence[str] | None) -> ChatTokenizer:
    """Qwen3's tokenizer with `markers` as further added tokens; None: without any added token."""
    folder.mkdir()
    source: dict[str, Any] = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    added = source["added_tokens"]
    known = {token["content"] for token in added}
    first = max(token["id"] for token in added) + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    new = [marker for marker in markers or () if marker not in known]
    source["added_tokens"] = (
        []
        if markers is None
        else [
            *added,
            *(
                {"id": first + place, "content": text, **flags, "special": True}
                for place, text in enumerate(new)
            ),
        ]
    )
    (folder / "tokenizer.json").write_text(json.dumps(source), encoding="utf-8")
    (folder / "tokenizer_config.json").write_bytes((base / "tokenizer_config.json").read_bytes())
    return ChatTokenizer(folder)


TOOLS = (
    ToolSpec(
        name="read_file",
        description="Reads a file.",
        parameters={
            "type": "object",
            "properties": {"path": {"type": "string", "description": "where it is"}},
            "required": ["path"],
        },
    ),
    ToolSpec(
        name="search",
        description="Finds lines.",
        parameters={"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
    ),
)


def _conversation(*, parallel: bool) -> list[Message]:
    """Three tasks of two tool steps and an answer, with text that templates like to trim or to take for theirs."""
    messages = [Message(role="system", content="You look before you answer.")]
    for task, question in enumerate(
        ("  Why is berth 7 taken twice?\n", "And <b>invoices</b>?", "é\u0301 日本 thanks")
    ):
        messages.append(Message(role="user", content=question))
        for step in range(2):
            calls = [
                ToolCall(id=f"call{task}{step}{place}", name=name, arguments=json.dumps(arguments))
                for place, (name, arguments) in enumerate(
                    [
                        ("read_file", {"path": f"docs/{task}-{step}.md"}),
                        ("search", {"pattern": 'berth="7"\n'}),
                    ][: 1 + (parallel and step == 1)]
                )
            ]
            messages.append(
                Message(
                    role="assistant",
                    content="I look. " if step else "",
                    reasoning=f"Step {step} of task {task} needs a look.\n",
                    tool_calls=tuple(calls),
                )
            )
            messages += (
                Message(role="tool", content=f"{call.name} says:\n\n  line {step}\n", tool_call_id=call.id)
                for call in calls
            )
        messages.append(
            Message(role="assistant", content=f"\nTask {task} is done. ", reasoning="That was all.")
        )
    messages.append(Message(role="user", content="Sum up."))
    return messages


def _trl_version() -> str:
    recipe = load_catalogue()[MODEL].recipe
    return recipe.template.version if isinstance(recipe, ShapeRecipe) else ""


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}/templates.md and .json")
    rows = table(published_templates())
    if parser.parse_args().write:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / "templates.md").write_text(markdown(rows), encoding="utf-8")
        text = json.dumps([row.as_json() for row in rows], indent=1, ensure_ascii=False)
        (RESULTS / "templates.json").write_text(text + "\n", encoding="utf-8")
    print(markdown(rows), end="")


if __name__ == "__main__":
    main()
