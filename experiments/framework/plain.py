"""Text of models, tools and people made safe to look at: nothing invisible, nothing endless."""

from __future__ import annotations

import unicodedata

_KEPT = frozenset("\n\t")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories a reader cannot see or that move other text: controls, bidi marks, lone surrogates."""


def visible(text: str, *, limit: int | None = None) -> str:
    """Spell out characters that cannot be seen (`\\u202e`) and cut after `limit`, saying how many there were.

    Newlines and tabs stay. A joiner inside an emoji is spelt out too: better than a hidden direction mark.
    """
    cut = text if limit is None or len(text) <= limit else text[:limit]
    shown = "".join(_spell(char) if _is_hidden(char) else char for char in cut)
    return shown if len(cut) == len(text) else f"{shown}… ({len(text):,} characters)"


def _is_hidden(char: str) -> bool:
    return char not in _KEPT and unicodedata.category(char) in _HIDDEN


def _spell(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
