"""Options that several commands share, each spelt and explained once."""

from __future__ import annotations

import os
from typing import Annotated

import typer

API_KEY_VARIABLE = "CTXLAB_API_KEY"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="Catalogue name, hub id, folder or GGUF file. Default: CTXLAB_MODEL, else chosen.",
    ),
]
BlockSizeOption = Annotated[
    int | None, typer.Option("--block-size", min=1, help="Tokens per KV-cache block (CPU: a multiple of 32).")
]
ServerOption = Annotated[
    str | None,
    typer.Option("--url", help="Use this server; --model then names the model whose template renders."),
]
MaxTokensOption = Annotated[int, typer.Option("--max-tokens", min=1, help="Output tokens of one call.")]
ThinkingOption = Annotated[
    bool | None, typer.Option("--thinking/--no-thinking", help="For templates that have the switch.")
]
PolicyOption = Annotated[
    str, typer.Option("--policy", "-p", help="A named policy, or a TOML file (ctxlab policy list).")
]


def api_key() -> str | None:
    """The key for servers that want one; it is no option, since other users of a machine can read arguments."""
    return os.environ.get(API_KEY_VARIABLE) or None
