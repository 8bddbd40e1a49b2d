"""Text of outside origin on one line, in quotes that it cannot leave, and readable back."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Final

_TAG_NAME: Final = re.compile(r"(?<=agent)_(?=status)", re.IGNORECASE)
_SEPARATORS: Final = frozenset({"Zl", "Zp"})


def quoted(text: str) -> str:
    r"""`text` as a JSON string whose only live characters are harmless ones; `json.loads` gives it back.

    Line breaks, control and direction characters, lone surrogates, `<`, `>`, `&` and the `_` of the bar's own
    tag become `\uXXXX`: nothing inside can end the line, close a delimiter, or equal an added token such as
    `<|im_end|>`. Letters of any script stay readable.
    """
    written = "".join(_inert(character) for character in json.dumps(text, ensure_ascii=False))
    return _TAG_NAME.sub(r"\\u005f", written)


def quoted_short(text: str, characters: int) -> str:
    """`quoted`, cut to the first `characters` of the text; outside the quotes it says how many are missing."""
    missing = len(text) - characters
    if missing <= 0:
        return quoted(text)
    return f"{quoted(text[:characters])} (and {missing} more characters)"


def _inert(character: str) -> str:
    category = unicodedata.category(character)
    if character in "<>&" or category[0] == "C" or category in _SEPARATORS:
        return "".join(f"\\u{unit:04x}" for unit in _utf16(character))
    return character


def _utf16(character: str) -> tuple[int, ...]:
    code = ord(character)
    if code < 0x10000:
        return (code,)
    return (0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF))
