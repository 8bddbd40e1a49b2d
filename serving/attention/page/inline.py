"""`show`: the page inside a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serving.attention.capture import Capture
from serving.attention.page.document import render_page
from serving.chat import ChatTokenizer
from serving.errors import UsageError
from serving.models import on_disk


@dataclass(frozen=True)
class InlinePage:
    """A page that a notebook draws when it is a cell's last value."""

    page: str = field(repr=False)
    height: int
    """Pixels."""

    def _repr_html_(self) -> str:
        # A frame of its own origin: the page cannot touch the notebook, nor the notebook's style the page.
        return (
            f'<iframe sandbox="allow-scripts" title="attention" width="100%" height="{self.height}" '
            f'style="border:0" srcdoc="{html.escape(self.page)}"></iframe>'
        )


def show(
    capture: Capture,
    other: Capture | None = None,
    *,
    pieces: Sequence[str] | None = None,
    other_pieces: Sequence[str] | None = None,
    names: tuple[str, str] = ("A", "B"),
    height: int = 900,
) -> InlinePage:
    """Draw a capture, or two beside each other, in a notebook; the same page as `ctxlab attend` writes.

    Args: `pieces` is the text of every token; None: decoded with the model of this name on this disk.
    Raises: UsageError where there is none, and as `render_page`.
    """
    words = token_pieces(capture) if pieces is None else pieces
    if other is None:
        return InlinePage(render_page(capture, words), height)
    beside = token_pieces(other) if other_pieces is None else other_pieces
    return InlinePage(render_page(capture, words, other=(other, beside), names=names), height)


def token_pieces(capture: Capture, folder: Path | None = None) -> list[str]:
    """The text of every token, by the tokenizer in `folder`; None: of the model of this name on this disk."""
    if folder is None:
        here = on_disk(capture.model.name)
        if here is None:
            raise UsageError(
                f"Expected the tokenizer of {capture.model.name} on this disk to show its tokens, found none; pull "
                "the model, or hand in the pieces."
            )
        folder = here.path
    return [token.piece for token in ChatTokenizer(folder).show(capture.token_ids)]
