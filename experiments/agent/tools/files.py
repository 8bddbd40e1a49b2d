"""`FileTools`: runs the model's calls inside one folder, and answers everything in words."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from experiments.agent.tools.definitions import (
    ARGUMENTS,
    TOOL_SPECS,
    Arguments,
    Directory,
    FindFiles,
    Grep,
    Lines,
    OnePath,
    ReadFile,
)
from experiments.agent.tools.folder import MAX_FILE_BYTES, Entry, EntryKind, Folder, shown_name
from experiments.agent.tools.outcome import Clean, Failure, Reply, ToolError, ToolOutcome, as_it_is
from experiments.agent.tools.pattern import LinePattern
from experiments.agent.tools.tool import (
    ALL_STAGES,
    MAX_OUTCOME_CHARACTERS,
    Tool,
    cancellable,
    cut,
    failed,
    parsed_arguments,
    shown,
)
from experiments.agent.tools.workspace import Workspace
from serving.assembler import ToolContract, ToolSpec

MAX_GLOB_CHARACTERS: Final = 1_000
"""Each of its parts is tried on every name of the tree."""
MAX_LINES: Final = 200
MAX_CHARACTERS: Final = MAX_OUTCOME_CHARACTERS
MAX_LINE_CHARACTERS: Final = 400
MAX_ENTRIES_WALKED: Final = 20_000
MAX_CHARACTERS_SEARCHED: Final = 4_000_000
_MAX_SEARCHED_LINE: Final = 2_000
_HEADING: Final = re.compile(r"#{1,6} ")
_NEXT: Final = "continue with start_line={}"


class FileTools:
    """Read-only file tools inside `root`: deterministic, bounded, and never a word from outside the root.

    Paths are relative to `root`, or to the working directory of a workspace. Raises `UsageError` when `root` is
    no folder. Nothing that a model passes to `run` raises.
    """

    specs: tuple[ToolSpec, ...] = TOOL_SPECS

    def __init__(self, root: Path | Workspace, *, clean: Clean = as_it_is) -> None:
        """`clean` reads every file before any line of it is counted, searched or shown."""
        self._workspace = root if isinstance(root, Workspace) else Workspace(root)
        self._clean = clean

    def run(self, name: str, arguments: str) -> ToolOutcome:
        """Run one call; `arguments` is the JSON text as the model wrote it."""
        try:
            wanted = ARGUMENTS.get(name)
            if wanted is None:
                known = ", ".join(ARGUMENTS)
                raise ToolError(
                    f"There is no tool {name[:80]!r}; the tools are {known}.", Failure.UNKNOWN_TOOL
                )
            return ToolOutcome(self.answer(name, parsed_arguments(name, wanted, arguments)), ok=True)
        except ToolError as error:
            return failed(error)

    def answer(self, name: str, arguments: Arguments) -> str:
        """The observation of one call of the nine; raises `ToolError`."""
        return _Reading(self._workspace.folder(), self._clean).answer(name, arguments)


class _Reading:
    """One call, in the folder that was the working directory when it came."""

    def __init__(self, folder: Folder, clean: Clean) -> None:
        self._folder = folder
        self._clean = clean

    def answer(self, name: str, arguments: Arguments) -> str:
        match arguments:
            case ReadFile(path=path, start_line=start, max_lines=most):
                return self._read(path, start, most)
            case FindFiles(pattern=pattern):
                return self._find(pattern)
            case Grep(pattern=pattern, path=path):
                return self._grep(pattern, path)
            case Directory(path=path):
                return self._list(path)
            case Lines(path=path, lines=count):
                lines = self._lines(path)
                start = 1 if name == "head" else max(1, len(lines) - count + 1)
                return _page(lines, start, count)
            case OnePath(path=path):
                about: dict[str, Callable[[str], str]] = {
                    "file_info": self._info,
                    "count_lines": self._count,
                    "outline": self._outline,
                }
                return about[name](path)
        raise AssertionError(f"no tool takes {type(arguments).__name__}")

    def _lines(self, path: str) -> list[str]:
        return _split(self._clean(self._folder.read(path)))

    def _read(self, path: str, start: int, most: int) -> str:
        lines = self._lines(path)
        if start > max(1, len(lines)):
            raise ToolError(f"{path!r} has {len(lines)} lines; start_line {start} is behind its end.")
        return _page(lines, start, most)

    def _find(self, pattern: str) -> str:
        if len(pattern) > MAX_GLOB_CHARACTERS:
            raise ToolError(
                f"A glob has at most {MAX_GLOB_CHARACTERS:,} characters, not {len(pattern):,}; give a shorter one.",
                Failure.LIMIT,
            )
        wanted = [part for part in pattern.split("/") if part not in ("", ".")]
        if pattern.startswith(("/", "~")) or ".." in wanted or not wanted:
            raise ToolError(
                f"{pattern!r} is no glob inside the folder; give one such as '*.py' or 'src/**/*.md'."
            )
        if len(wanted) == 1:
            wanted = ["**", *wanted]

        def found() -> Iterator[str]:
            for entry in self._files("."):
                if _glob(entry.path.split("/"), wanted):
                    yield shown_name(entry.path)

        return _listing(found(), "files") or f"No file matches {shown(pattern)}."

    def _grep(self, pattern: str, path: str) -> str:
        compiled = LinePattern(pattern)

        def found() -> Iterator[str]:
            left = MAX_CHARACTERS_SEARCHED
            for entry in self._files(path):
                try:
                    lines = self._lines(entry.path)
                except ToolError:
                    if self._folder.entry(path).kind is EntryKind.FILE:
                        raise  # asked for by name, so why it cannot be read is the answer
                    continue
                for number, line in enumerate(lines, 1):
                    searched = line[:_MAX_SEARCHED_LINE]
                    left -= len(searched) + 1
                    if left < 0:
                        yield f"[stopped at {shown_name(entry.path)}:{number}: too much text; give a smaller path]"
                        return
                    if compiled.found_in(searched):
                        yield f"{shown_name(entry.path)}:{number}: {line.strip()}"

        return _listing(found(), "matches") or f"No line matches {shown(pattern)}."

    def _files(self, path: str) -> Iterator[Entry]:
        """The files below a folder in a fixed order, or the one file; too large a tree is refused whole."""
        start = self._folder.entry(path)
        if start.kind is EntryKind.FILE:
            yield start
            return
        for count, entry in enumerate(self._folder.walk(path)):
            if count >= MAX_ENTRIES_WALKED:
                raise ToolError(
                    f"{path!r} has more than {MAX_ENTRIES_WALKED:,} entries; give a smaller path."
                )
            if entry.kind is EntryKind.FILE:
                yield entry

    def _list(self, path: str) -> str:
        def found() -> Iterator[str]:
            for entry in self._folder.children(path):
                name = shown_name(entry.name)
                match entry.kind:
                    case EntryKind.FOLDER:
                        yield f"{name}/"
                    case EntryKind.FILE:
                        yield f"{name} ({entry.size:,} bytes)"
                    case _:
                        yield f"{name} ({entry.kind.value})"

        return _listing(found(), "entries") or "The folder is empty."

    def _info(self, path: str) -> str:
        entry = self._folder.entry(path)
        if entry.kind is EntryKind.FOLDER:
            return f"folder, {len(self._folder.children(path))} entries"
        if entry.kind is not EntryKind.FILE:
            return entry.kind.value
        size = f"file, {entry.size:,} bytes"
        try:
            return f"{size}, {len(self._lines(path)):,} lines of text"
        except ToolError:
            return f"{size}, no text or more than {MAX_FILE_BYTES:,} bytes"

    def _count(self, path: str) -> str:
        return f"{len(self._lines(path))} lines"

    def _outline(self, path: str) -> str:
        text = self._clean(self._folder.read(path))
        if path.endswith((".py", ".pyi")):
            found = _python_outline(path, text)
        elif path.endswith((".md", ".markdown")):
            found = _markdown_outline(text)
        else:
            raise ToolError(f"{path!r} is neither Python nor Markdown; use head or grep.")
        return _listing(iter(found), "entries") or "The file has no classes, functions or headings."


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _page(lines: list[str], start: int, most: int) -> str:
    """Lines from `start` (from 1) on, as many as fit; what was left out is said in the last line."""
    if not lines:
        return "The file is empty."
    kept: list[str] = []
    room = MAX_CHARACTERS
    for line in lines[start - 1 : start - 1 + min(most, MAX_LINES)]:
        short = cut(line, MAX_LINE_CHARACTERS)
        if kept and len(short) + 1 > room:
            break
        kept.append(short)
        room -= len(short) + 1
    end = start - 1 + len(kept)
    if end < len(lines) or start > 1:
        after = f"; {_NEXT.format(end + 1)}" if end < len(lines) else ""
        kept.append(f"[lines {start}-{end} of {len(lines)}{after}]")
    return "\n".join(kept)


def _listing(found: Iterator[str], what: str) -> str:
    """One line each, as many as fit; empty for none. The rest is not counted, which could take long."""
    kept: list[str] = []
    room = MAX_CHARACTERS
    for line in found:
        short = cut(line, MAX_LINE_CHARACTERS)
        if len(kept) >= MAX_LINES or len(short) + 1 > room:
            kept.append(f"[the first {len(kept)} {what}; there are more: be more specific]")
            break
        kept.append(short)
        room -= len(short) + 1
    return "\n".join(kept)


def _glob(names: list[str], wanted: list[str]) -> bool:
    """Match name by name; `**` stands for any number of folders. At most names × wanted comparisons."""
    reachable = {0}
    for name in [*names, None]:
        for index, part in enumerate(wanted):
            if index in reachable and part == "**":
                reachable.add(index + 1)
        if name is None:
            return len(wanted) in reachable
        following = set()
        for index in reachable & set(range(len(wanted))):
            if wanted[index] == "**":
                following.add(index)
            elif fnmatchcase(name, wanted[index]):
                following.add(index + 1)
        reachable = following
    return False


def _python_outline(path: str, text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"{path!r} is no valid Python ({type(error).__name__}); use head or grep.") from error
    found: list[str] = []

    def visit(body: list[ast.stmt], indent: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                found.append(f"{indent}class {node.name} (line {node.lineno})")
                visit(node.body, indent + "  ")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(f"{indent}def {node.name} (line {node.lineno})")

    visit(tree.body, "")
    return found


def _markdown_outline(text: str) -> list[str]:
    found: list[str] = []
    fenced = False
    for number, line in enumerate(_split(text), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and _HEADING.match(line):
            found.append(f"{line.strip()} (line {number})")
    return found


def file_tools(workspace: Workspace, clean: Clean = as_it_is) -> tuple[Tool, ...]:
    """The nine tools with their contracts."""
    reading = FileTools(workspace, clean=clean)
    return tuple(_tool(reading, spec) for spec in TOOL_SPECS)


def _tool(reading: FileTools, spec: ToolSpec) -> Tool:
    def run(arguments: Arguments, cancel: threading.Event | None) -> Reply:
        return Reply(reading.answer(spec.name, arguments))

    contract = ToolContract(
        spec=spec,
        idempotent=True,
        stages=ALL_STAGES,
        failures=(Failure.WRONG_ARGUMENTS, Failure.REFUSED, Failure.NOT_FOUND),
    )
    return cancellable(contract, ARGUMENTS[spec.name], run)
