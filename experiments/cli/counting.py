"""Which renderer counts a command's tokens: the characters/4 estimate, or a model's own template and tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from experiments.cli.console import ERR, ConsoleProgress
from experiments.cli.model_files import template_folder
from experiments.cli.untrusted import plain

if TYPE_CHECKING:
    from experiments.cli.assembly_files import RendererNote
    from serving.assembler import AssemblyRequest, Renderer

ModelFiles = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="Count with this model's template and tokenizer (a name or a folder)."
    ),
]

ESTIMATE_NOTE: Final = (
    "Tokens are an estimate: what an item says of itself, else one for every four characters, and none for "
    "framing. --model counts with a real template."
)


def note_for(request: AssemblyRequest, model: str | None) -> RendererNote:
    """The note of the renderer for one request: a model's files, else the estimate by the items' own sizes."""
    from experiments.cli.assembly_files import RendererNote, given_sizes

    if model:
        return RendererNote(kind="model", model=model)
    return RendererNote(kind="estimate", sizes=given_sizes(request))


def renderer_for(note: RendererNote, *, pull: bool) -> Renderer:
    """The renderer that `note` names; `UsageError` for a model that is none."""
    from serving.assembler import FixedCounter

    if note.model is None:
        return FixedCounter(note.sizes)
    from serving.chat import ChatRenderer
    from serving.errors import UsageError
    from serving.models import on_disk

    if not pull and not Path(note.model).is_dir() and on_disk(note.model) is None:
        raise UsageError(f"{note.model} is not on this disk.")
    with ConsoleProgress() as progress:
        return ChatRenderer(template_folder(note.model, progress))


def renderer_here(note: RendererNote | None) -> Renderer | None:
    """The renderer that `note` names if its files are on this disk; what is missing is said and not fetched."""
    from serving.errors import UsageError

    if note is None:
        return None
    try:
        return renderer_for(note, pull=False)
    except UsageError as error:
        ERR.print(plain(f"The renderer cannot be had: {error}"))
        return None
