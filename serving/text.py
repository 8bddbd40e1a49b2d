"""Text that UTF-8 cannot carry, refused where it enters."""

from __future__ import annotations

import re

from serving.errors import UsageError

_SURROGATE = re.compile("[\ud800-\udfff]")


def require_unicode_text(text: str, where: str) -> str:
    """Return `text` unchanged when UTF-8 can carry it.

    A Python `str` may hold unpaired surrogates (a torn JSON escape, a file name read with
    `surrogateescape`). No tokenizer, server or file accepts them: each fails in its own way, late. `where`
    names the text in the error ("message 3", "--system"). Raises `UsageError` with the character's index.
    """
    found = _SURROGATE.search(text)
    if found is None:
        return text
    raise UsageError(
        f"Expected Unicode text in {where}, but character {found.start()} is the unpaired surrogate "
        f"U+{ord(found.group()):04X}; remove it or decode the input again (errors='replace')."
    )
