"""What models, servers, tools and files say, made harmless for rich: neither controls nor markup act."""

from __future__ import annotations

from rich.markup import escape
from rich.text import Text

from serving.text import visible


def untrusted(text: str, style: str = "") -> Text:
    """The text in one style, its line breaks kept; it ends without one, as a piece of a stream does."""
    return Text(visible(text), style=style, end="")


def plain(text: str) -> str:
    """The text on one line, to be put between markup of our own."""
    return escape(visible(text, newlines=False))
