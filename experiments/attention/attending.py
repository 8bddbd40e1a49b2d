"""`attend`: capture one context or two, and write file, page, figures and tables into a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from experiments.attention.figures import capture_figures
from experiments.attention.sources import RecordedCall, Source
from experiments.attention.tables import capture_tables, compare_table
from experiments.framework import Table
from experiments.framework.figures import draw
from experiments.framework.journal import write_whole
from serving.attention import AttentionModel, Capture, CaptureOptions, Reading, RowMode, save
from serving.attention.page import render_page, viewer_options
from serving.attention.storage import SUFFIX
from serving.chat import ChatRenderer
from serving.errors import UsageError
from serving.models import ModelFolder
from serving.progress import Progress

PAGE: Final = "attention.html"
FIGURES: Final = "figures"
TABLES: Final = "tables"
ROW_BINS: Final = 128
"""Stored rows of a pooled capture, at most: as many as the map has bins, and a few megabytes on the disk."""

TEXT_ROWS: Final = ("pooled", "every", "answer", "last")


@dataclass(frozen=True, slots=True)
class Look:
    """What to capture of every context."""

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    rows: str | tuple[int, ...] = "pooled"
    """One of `TEXT_ROWS`, or positions."""
    generate: int = 0
    """Tokens that the model writes first, at most; they are looked at too."""
    shuffles: int = 8
    """Random orders of the parts, for the baseline."""

    def options(self, reading: Reading) -> CaptureOptions:
        """The options of a capture of this reading."""
        prompt, tokens = reading.segments.prompt_tokens, reading.segments.tokens
        chosen: tuple[int, ...] = ()
        match self.rows:
            case "answer":
                chosen = tuple(range(prompt - 1, tokens))
            case "last":
                chosen = (prompt - 1,)
            case tuple(positions):
                chosen = positions
        modes = {"pooled": RowMode.POOLED, "every": RowMode.EVERY}
        mode = RowMode.CHOSEN if chosen else modes[str(self.rows)]
        options = CaptureOptions(
            layers=self.layers,
            heads=self.heads,
            rows=mode,
            chosen=chosen,
            row_bins=ROW_BINS,
            shuffles=self.shuffles,
        )
        return viewer_options(tokens, options)


@dataclass(frozen=True, slots=True)
class Attended:
    """What was captured, in words and as files."""

    captures: tuple[Capture, ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    files: tuple[Path, ...]
    """The page first."""


def read_all(
    sources: Sequence[Source], folder: ModelFolder, look: Look, progress: Progress
) -> list[tuple[Reading, str | None]]:
    """Every source as this model reads it, and why it is divided coarsely; generated answers included."""
    if look.generate and any(isinstance(source, RecordedCall) for source in sources):
        raise UsageError(
            "Expected a recorded call with its own answer, or an answer to be written; leave out --generate."
        )
    renderer = ChatRenderer(folder.path)
    read = [source.read(renderer) for source in sources]
    if look.generate:
        from experiments.framework.local_model import load_model

        model = AttentionModel(folder)
        for one in read:
            progress.note(
                f"for the prompt alone: {model.estimate(one.reading.segments, timed=False).in_words()}"
            )
        with load_model(progress)({"engine.model": str(folder.path)}) as served:
            progress.begin("write the answers", total=len(read), unit="answers")
            for place, source in enumerate(sources):
                output = served.target.read(read[place].reading.token_ids).answer(look.generate)
                read[place] = source.read(renderer, output)
                progress.advance(1)
            progress.end()
    return [(one.reading, one.note) for one in read]


def attend(
    sources: Sequence[Source], folder: ModelFolder, look: Look, out: Path, progress: Progress
) -> Attended:
    """Capture one source, or two of one model beside each other, and write everything into `out`.

    Nothing is written before all is captured. Raises: UsageError and LabError as `serving.attention.capture`, and
    for a folder that holds something else.
    """
    check_folder(out)
    read = read_all(sources, folder, look, progress)
    model = AttentionModel(folder)
    captures = tuple(
        model.capture(reading.token_ids, reading.segments, look.options(reading), progress)
        for reading, _ in read
    )
    names = named(sources)
    notes = tuple(f"{name}: {note}" for name, (_, note) in zip(names, read, strict=True) if note is not None)
    progress.begin("write page, figures and tables")
    tables = tuple(tables_of(captures, names))
    files = tuple(write_files(captures, names, tables, out))
    progress.end()
    return Attended(captures, tables, notes, files)


def named(sources: Sequence[Source]) -> tuple[str, ...]:
    """A name for every source; two of one name are told apart."""
    names = tuple(source.name for source in sources)
    return (
        names if len(set(names)) == len(names) else tuple(f"{name} {'AB'[i]}" for i, name in enumerate(names))
    )


def tables_of(captures: Sequence[Capture], names: Sequence[str]) -> Iterator[Table]:
    """The tables of every capture, and what changed from the first to the second."""
    for capture, name in zip(captures, names, strict=True):
        for table in capture_tables(capture):
            yield (
                table if len(captures) == 1 else table.model_copy(update={"title": f"{name}: {table.title}"})
            )
    if len(captures) == 2:
        yield compare_table(captures[0], captures[1], (names[0], names[1]))


def write_files(
    captures: Sequence[Capture], names: Sequence[str], tables: Sequence[Table], out: Path
) -> Iterator[Path]:
    """Page, capture files, tables and figures."""
    out.mkdir(parents=True, exist_ok=True)
    both = (names[0], names[-1])
    other = captures[1] if len(captures) == 2 else None
    page = render_page(captures[0], other, names=both)
    write_whole(out / PAGE, page.encode("utf-8"))
    yield out / PAGE
    for place, capture in enumerate(captures):
        side = "" if len(captures) == 1 else f"-{'ab'[place]}"
        save(capture, out / f"capture{side}{SUFFIX}")
        yield out / f"capture{side}{SUFFIX}"
        for figure in capture_figures(capture, name=side.removeprefix("-")):
            yield from draw(figure, out / FIGURES).files
    write_whole(
        out / f"{TABLES}.json", json.dumps([table.model_dump(mode="json") for table in tables]).encode()
    )
    yield out / f"{TABLES}.json"


def check_folder(out: Path) -> None:
    """Refuse a folder that holds anything but an earlier result of this command."""
    if not out.exists():
        return
    if not out.is_dir():
        raise UsageError(f"Expected a folder at {out}, found a file; give another name.")
    ours = {PAGE, FIGURES, f"{TABLES}.json", f"{TABLES}.txt"}
    for entry in sorted(out.iterdir()):
        if entry.name not in ours and not entry.name.endswith(SUFFIX):
            raise UsageError(
                f"Expected a new folder or one of this command at {out}, and it holds {entry.name!r}; give another "
                "name."
            )


def parse_places(text: str, option: str) -> tuple[int, ...] | None:
    """`0,3-5` as ascending numbers; None for an empty text."""
    if not text.strip():
        return None
    places: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise UsageError(f"Expected numbers and ranges such as 0,3-5 for {option}, got {text!r}.")
        first, last = int(low), int(high) if dash else int(low)
        if last < first or last > 10_000_000:
            raise UsageError(f"Expected a rising range for {option}, got {part.strip()!r}.")
        places.update(range(first, last + 1))
    return tuple(sorted(places))


def parse_rows(text: str) -> str | tuple[int, ...]:
    """One of `TEXT_ROWS`, or positions."""
    if text in TEXT_ROWS:
        return text
    places = parse_places(text, f"--rows (or one of {', '.join(TEXT_ROWS)})")
    return "pooled" if places is None else places
