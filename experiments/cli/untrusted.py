"""What models, tools and files say, made harmless for a terminal."""

from __future__ import annotations

from typing import Final

from rich.text import Text

_KEPT: Final = frozenset("\n\t")
_PICTURES: Final = 0x2400
"""U+2400 … show the control characters U+0000 … as one printable character each."""
_DIRECTION: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They reorder what stands on the screen, so that a line reads as what it is not."""


def visible(text: str) -> str:
    """Replace what a terminal would obey by what a reader can see; line breaks and tabs stay.

    Works character by character, so an escape sequence cut into several pieces of a stream is caught too.
    """
    return "".join(char if char in _KEPT else _shown(char) for char in text)


def untrusted(text: str, style: str = "") -> Text:
    """The text in one style: neither control characters nor rich's markup in it mean anything."""
    return Text(visible(text), style=style, end="")


def _shown(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(_PICTURES + code)
    if code == 0x7F:
        return "\u2421"
    if 0x80 <= code < 0xA0 or 0xD800 <= code < 0xE000 or char in _DIRECTION:
        return f"<U+{code:04X}>"
    return char
