"""`ctxlab models`: what can be served, what is on disk, and where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from experiments.cli.console import OUT, ConsoleProgress, print_json
from experiments.cli.options import AsJson
from experiments.cli.untrusted import plain

if TYPE_CHECKING:
    from serving.models import ModelListing

app = typer.Typer(
    no_args_is_help=True,
    help="List, fetch, inspect and remove models.",
    epilog="Examples: ctxlab models list | ctxlab models pull smollm2-135m | ctxlab models show qwen3-0.6b-shape",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A catalogue name or a hub id (owner/repository).")]


@app.command("list")
def list_models_command(as_json: AsJson = False) -> None:
    """Show every model that can be had, with size, licence, source, and what is on this disk.

    Example: ctxlab models list --json
    """
    from serving.models import list_models

    listings = list_models()
    if as_json:
        print_json([listing.model_dump(mode="json") for listing in listings])
        return
    table = Table(
        "name", "weights", "download", "on disk", "licence", "source", box=None, header_style="bold"
    )
    for listing in listings:
        here = megabytes(listing.disk_bytes) if listing.folder else "–"
        fetched = megabytes(listing.download_bytes) if listing.download_bytes else "unknown"
        licence = listing.license or "unknown"
        cells = (listing.name, listing.weights, fetched, here, licence, listing.origin)
        table.add_row(*map(plain, cells))
    OUT.print(table)


@app.command("pull")
def pull(name: Name, as_json: AsJson = False) -> None:
    """Fetch a model and make it ready to serve; goes on where an interrupted pull stopped.

    Example: ctxlab models pull qwen2.5-coder-0.5b
    """
    from serving.models import describe, ensure

    with ConsoleProgress() as progress:
        folder = ensure(name, progress=progress)
    if as_json:
        print_json(folder.model_dump(mode="json"))
        return
    OUT.print(plain(f"{folder.name} is ready in {folder.path}"))
    if folder.path.is_relative_to(cache_path()):
        show_listing(describe(folder.name))


@app.command("show")
def show(
    name: Name,
    as_json: AsJson = False,
    verify: Annotated[bool, typer.Option("--verify", help="Hash the weights again and compare.")] = False,
) -> None:
    """Show one model: where it came from, its licence, its hash, its folder.

    Example: ctxlab models show smollm2-135m --verify
    """
    from serving.errors import UsageError
    from serving.models import describe
    from serving.models import verify as verify_weights

    listing = describe(name)
    if verify:
        if listing.folder is None:
            raise UsageError(f"{name} is not on this disk, so there is nothing to verify: pull it first.")
        with ConsoleProgress() as progress:
            progress.begin(f"hash the weights of {name}")
            verify_weights(listing.folder)
    if as_json:
        print_json(listing.model_dump(mode="json"))
        return
    show_listing(listing)


@app.command("rm")
def rm(name: Name, as_json: AsJson = False) -> None:
    """Remove a pulled model, and what an unfinished pull of it left, from this disk.

    Example: ctxlab models rm smollm2-135m
    """
    from serving.models import remove

    with ConsoleProgress() as progress:
        freed = remove(name, progress=progress)
    if as_json:
        print_json({"name": name, "freed_bytes": freed})
        return
    OUT.print(plain(f"{name} removed, {megabytes(freed)} freed"))


def show_listing(listing: ModelListing) -> None:
    """One model as a two-column table; what is not known says so."""
    folder = listing.folder
    rows = {
        "name": listing.name,
        "what": listing.summary or "unknown",
        "weights": f"{listing.weights}{' (random: for cache and latency only)' if listing.weights == 'dummy' else ''}",
        "licence": listing.license or "unknown",
        "source": listing.origin,
        "download": megabytes(listing.download_bytes) if listing.download_bytes else "unknown",
        "on disk": "no" if folder is None else f"{megabytes(folder.size_bytes)} in {folder.path}",
    }
    if folder is not None:
        rows |= {
            "revision": folder.revision or "none",
            "weights SHA-256": folder.weights_sha256 or "none (no weights on disk)",
            "architecture": folder.architecture,
            "tool parser": folder.tool_parser or "none: the template has no tools",
            "reasoning parser": folder.reasoning_parser or "none: the model does not reason",
            "longest context": f"{folder.max_position_embeddings:,} tokens",
        }
    table = Table(box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in rows.items():
        table.add_row(label, plain(value))
    OUT.print(table)


def megabytes(count: int) -> str:
    """`491 MB`, with MB meaning 10^6 bytes as in the catalogue."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"


def cache_path() -> str:
    """The lab's cache folder as text."""
    from serving.models import cache_root

    return str(cache_root())
