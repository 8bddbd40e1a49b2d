"""`show`: the page inside a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

from serving.attention.capture import Capture
from serving.attention.page.document import render_page


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
    names: tuple[str, str] = ("A", "B"),
    height: int = 900,
) -> InlinePage:
    """Draw a capture, or two beside each other, in a notebook: the page that `ctxlab attend` writes.

    Raises: UsageError for captures of two different models.
    """
    return InlinePage(render_page(capture, other, names=names), height)
