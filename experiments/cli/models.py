"""`ctxlab models`: what can be served, what is on disk, and where it came from."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from experiments.cli.console import OUT, ConsoleProgress, print_json

app = typer.Typer(
    no_args_is_help=True,
    help="List, fetch, inspect and remove models.",
    epilog="Examples:  ctxlab models list  ·  ctxlab models pull smollm2-135m  ·  ctxlab models show qwen3-0.6b-shape",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A catalogue name, a hub id, or a folder.")]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """Show every model of the catalogue and everything pulled, with size, licence and source.

    Example: ctxlab models list --json
    """
    from serving.models import describe_all

    models = describe_all()
    if as_json:
        print_json([model.model_dump(mode="json") for model in models])
        return
    table = Table("name", "weights", "size", "licence", "on disk", "source", box=None, header_style="bold")
    for model in models:
        size = f"{model.size_bytes / 1e6:,.0f} MB" if model.size_bytes else "unknown"
        disk = "yes" if model.folder else "–"
        table.add_row(model.name, model.weights, size, model.license or "unknown", disk, model.origin)
    OUT.print(table)
