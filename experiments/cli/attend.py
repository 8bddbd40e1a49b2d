"""`ctxlab attend`: where a model looks in one context, or in two."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from experiments.cli.console import ERR, OUT, ConsoleProgress, print_json
from experiments.cli.options import AsJson, OpenPage
from experiments.cli.signals import ending_politely
from experiments.cli.tables import show_table
from experiments.cli.untrusted import plain

if TYPE_CHECKING:
    from experiments.attention.attending import Attended, Look
    from experiments.attention.sources import Source
    from serving.models import ModelFolder


def attend(
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="Catalogue name, hub id or folder; a run's own for --exchange."),
    ] = "",
    messages: Annotated[
        Path | None,
        typer.Option("--messages", metavar="FILE", help="JSON: messages, or a chat body with tools."),
    ] = None,
    exchange: Annotated[
        str,
        typer.Option("--exchange", metavar="RUN[:RECORD[.CALL]]", help="A recorded call of a run folder."),
    ] = "",
    prompt: Annotated[str, typer.Option("--prompt", help="A text as it stands, without a template.")] = "",
    compare: Annotated[
        str,
        typer.Option("--compare", metavar="OTHER", help="A second one of the same kind, shown beside it."),
    ] = "",
    generate: Annotated[
        int,
        typer.Option(
            "--generate", min=0, max=4096, help="Let the model write so many tokens first, at most."
        ),
    ] = 0,
    layers: Annotated[str, typer.Option("--layers", help="Such as 0,3-5; all if empty.")] = "",
    heads: Annotated[str, typer.Option("--heads", help="Query heads, such as 0,3-5; all if empty.")] = "",
    rows: Annotated[
        str, typer.Option("--rows", help="pooled, every, answer, last, or positions such as 0,90-99.")
    ] = "pooled",
    shuffles: Annotated[
        int, typer.Option("--shuffles", min=0, max=64, help="Random orders behind the baseline; 0: none.")
    ] = 8,
    out: Annotated[Path, typer.Option("--out", help="Folder for page, figures, tables and data.")] = Path(
        "runs/attention"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it would take, and stop.")] = False,
    as_json: AsJson = False,
    open_page: OpenPage = False,
) -> None:
    """Capture where a model looks: a page to explore, figures, tables, and one data file.

    Runs in this process with transformers, since no server hands out its attention. What it takes is printed first;
    more memory than there is is refused, with what would fit. Nothing is written before all is captured.

    Examples:

      ctxlab attend --model smollm2-135m --prompt "The cat sat on the mat." --generate 16 --open

      ctxlab attend --model qwen2.5-coder-0.5b --messages chat.json --compare chat-without-bar.json --out runs/bar

      ctxlab attend --exchange runs/prefix-cache-qwen2.5-coder-0.5b-quick:0.5 --rows answer
    """
    from experiments.attention.attending import Look, attend, check_folder, parse_places, parse_rows
    from serving.models import ensure

    sources = _sources(messages, exchange, prompt, compare)
    look = Look(
        layers=parse_places(layers, "--layers"),
        heads=parse_places(heads, "--heads"),
        rows=parse_rows(rows),
        generate=generate,
        shuffles=shuffles,
    )
    check_folder(out)
    with ending_politely(), ConsoleProgress() as progress:
        folder = ensure(_model(model, sources), progress=progress)
        if dry_run:
            _estimate(sources, folder, look)
            return
        found = attend(sources, folder, look, out, progress)
    _write_text(found, out)
    for note in found.notes:
        ERR.print(f"[dim]{plain(note)}[/]")
    if as_json:
        print_json(
            {
                "files": [str(file) for file in found.files],
                "notes": list(found.notes),
                "tables": [table.model_dump(mode="json") for table in found.tables],
            }
        )
    else:
        for table in found.tables:
            show_table(table, OUT)
        OUT.print(f"page: {found.files[0]}", markup=False)
    if open_page:
        typer.launch(str(found.files[0]))


def _sources(messages: Path | None, exchange: str, prompt: str, compare: str) -> list[Source]:
    from experiments.attention.sources import PromptText, messages_file, recorded_call
    from serving.errors import UsageError

    given = [
        name
        for name, value in (("--messages", messages), ("--exchange", exchange), ("--prompt", prompt))
        if value
    ]
    if len(given) != 1:
        raise UsageError(
            f"Expected one of --messages, --exchange and --prompt, got {' and '.join(given) or 'none'}."
        )
    found: list[Source] = []
    if messages is not None:
        found = [messages_file(path) for path in (messages, *([Path(compare)] if compare else []))]
    elif exchange:
        found = [recorded_call(text) for text in (exchange, *([compare] if compare else []))]
    else:
        found = [PromptText(name, text) for name, text in (("A", prompt), ("B", compare)) if text]
    return found


def _model(given: str, sources: list[Source]) -> str:
    from experiments.attention.sources import model_of
    from serving.errors import UsageError

    recorded = model_of(sources[0])
    if not given and recorded is None:
        raise UsageError("Expected --model with a model's name or folder, got none (ctxlab models list).")
    return given or str(recorded)


def _estimate(sources: list[Source], folder: ModelFolder, look: Look) -> None:
    from serving.attention import AttentionModel
    from serving.chat import ChatRenderer

    renderer, model = ChatRenderer(folder.path), AttentionModel(folder)
    for source in sources:
        reading = source.read(renderer).reading
        estimate = model.estimate(reading.segments, look.options(reading))
        OUT.print(plain(f"{source.name}: {len(reading.token_ids):,} tokens, {estimate.in_words()}"))


def _write_text(found: Attended, out: Path) -> None:
    """The same tables as a text file."""
    text = io.StringIO()
    console = Console(file=text, width=120, highlight=False, emoji=False, color_system=None)
    for table in found.tables:
        show_table(table, console)
    (out / "tables.txt").write_text(text.getvalue(), encoding="utf-8", errors="backslashreplace")
