"""`ctxlab demo`: the main job on the embedded default model, in a few minutes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.console import ERR
from experiments.cli.options import AsJson, OpenPage
from experiments.cli.run import DEFAULT_MODEL, run_into, show_outcome
from experiments.cli.studies import find_study


def demo(
    model: Annotated[
        str, typer.Option("--model", "-m", help="Another model whose template has tools.")
    ] = DEFAULT_MODEL,
    out: Annotated[
        Path | None, typer.Option("--out", help="Run folder; a new one under runs/ if not given.")
    ] = None,
    as_json: AsJson = False,
    open_page: OpenPage = False,
) -> None:
    """Serve a small model, replay one agent run in seven ways, and show what each costs the prefix cache.

    Every request is rendered and predicted before it is sent; a server that reads other ids or reuses another
    number of tokens stops the demonstration with both sides shown. Everything it started is ended again.

    Example: ctxlab demo --open
    """
    ERR.print(
        "One agent run of six calls, rebuilt in seven ways, is sent to a really served model: watch how many\n"
        "prompt tokens each way lets the server reuse, beside what the lab predicted from the token ids alone.\n"
    )
    from experiments.prefix_cache.arms import FIRST

    study = find_study("prefix-cache", model=model, block_size=32)
    folder = out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    summary, page = run_into(study, size="quick", folder=folder, arms=FIRST)
    show_outcome(study, summary, page, as_json=as_json)
    if open_page:
        typer.launch(str(page))
