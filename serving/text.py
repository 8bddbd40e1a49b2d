"""Text from outside: refused where it cannot be used, spelt out where a terminal would obey it."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from serving.errors import UsageError

_SURROGATE = re.compile("[\ud800-\udfff]")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that act instead of being seen, or have no shape that a reader could name: controls (C0, C1,
DEL), format characters (direction marks, zero-width ones, tags), lone surrogates, private and unassigned
characters (some of which every font leaves out), line and paragraph separators."""


class Surrogate(NamedTuple):
    """The first character of a text that UTF-8 cannot carry: its index, and its name (`U+D83D`)."""

    start: int
    name: str


def find_surrogate(text: str) -> Surrogate | None:
    """The first unpaired surrogate, or None when UTF-8 can carry the text.

    A Python `str` may hold unpaired surrogates (a torn JSON escape, a file name read with
    `surrogateescape`). No tokenizer, server or file accepts them: each fails in its own way, late.
    """
    if text.isascii():
        return None
    found = _SURROGATE.search(text)
    return None if found is None else Surrogate(found.start(), f"U+{ord(found[0]):04X}")


def require_unicode_text(text: str, where: str) -> str:
    """Return `text` unchanged when UTF-8 can carry it.

    `where` names the text in the error ("message 3", "--system"). Raises `UsageError` with the index of the
    character that it cannot.
    """
    found = find_surrogate(text)
    if found is None:
        return text
    raise UsageError(
        f"Expected Unicode text in {where}, but character {found.start} is the unpaired surrogate "
        f"{found.name}; remove it or decode the input again (errors='replace')."
    )


def server_root(url: str) -> str:
    """The URL of a server without a closing `/` or `/v1`; paths of its API are put behind it.

    Raises `UsageError` for what no HTTP client could use: another scheme, no host or an impossible one, a
    query. The libraries below would each raise something else, some only when the first request is sent.
    """
    try:
        sound = _names_a_server(url)
    except ValueError:  # an open bracket, a port that is no number, a host that DNS cannot spell
        sound = False
    if not sound:
        raise UsageError(
            f"Expected a server's URL such as http://127.0.0.1:8000, got {url!r}: write the scheme (http:// or "
            "https://), a host, and a port if it is not the scheme's own."
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _names_a_server(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname
    if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
        return False
    if any(char.isspace() or is_hidden(char) for char in url):  # urlsplit drops some of them silently
        return False
    if ":" in host:
        ipaddress.IPv6Address(host)
    else:
        host.encode("ascii")  # other letters are written as xn--…, which every client spells alike
        host.encode("idna")
    return parts.port != 0


def visible(text: str, *, newlines: bool = True) -> str:
    r"""Spell out every character that a terminal would obey or a reader could not see (`\u001b`).

    Tabs stay, and line breaks do unless `newlines` is False: for text that must not begin a line of its own.
    Works character by character, so an escape sequence cut into pieces of a stream is caught too. A joiner
    inside an emoji is spelt out as well: better than a hidden direction mark.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if newlines else "\t"
    return "".join(_spelt(char) if is_hidden(char) and char not in kept else char for char in text)


def is_hidden(char: str) -> bool:
    """Whether a terminal would obey the character, or a reader could not see it."""
    return unicodedata.category(char) in _HIDDEN


def _spelt(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def common_prefix(one: Sequence[object], other: Sequence[object], *, start: int = 0) -> int:
    """How many elements two sequences begin with alike, of which `start` are known to be.

    Characters of two texts, or token ids, or messages; `serving.prefix` has its own for arrays of ids.
    """
    shortest = min(len(one), len(other))
    if isinstance(one, str) and isinstance(other, str):
        return _common_characters(one, other, min(start, shortest), shortest)
    return next((index for index in range(start, shortest) if one[index] != other[index]), shortest)


def _common_characters(one: str, other: str, low: int, high: int) -> int:
    """Gallops, then halves what is left: differences lie near the beginning, and Python compares stretches fast."""
    step = 256
    while low + step <= high and one.startswith(other[low : low + step], low):
        low += step
        step *= 2
    high = min(high, low + step)
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low
