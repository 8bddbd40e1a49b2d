"""Credentials behind a name: `DB_PASSWORD=…`, `"api_key": "…"`, `--token …`, `the password is …`.

Such a value has no form of its own, so two things must agree: the name in front of it, and that the value looks
drawn rather than written. A variable (`$TOKEN`), a template (`{password}`), a call and a masked value are none.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import Final

from serving.redact.checks import classes_of, is_random
from serving.redact.kinds import Finding, SecretKind
from serving.redact.rule import Rule, Source

_NAME: Final = re.compile(
    r"(?:pass(?:word|wd|phrase|(?<![a-z]pass))|pwd|secret|token|credentials?|key)(?=[\d_\-\"'`\]\\:=> ])"
)
"""Searched in small letters; what stands before and behind it in a longer name is read afterwards."""
_KEYS: Final = (
    *("api", "access", "auth", "private", "signing", "encryption", "master", "session", "shared", "account"),
    *("secret", "service", "admin"),
)
"""Before `key`: one that opens something, and not one that something is found by."""
_CURSORS: Final = ("page", "next", "continuation", "sync", "cancel", "cancellation")
"""Before `token`: a place in a list, and not a credential."""

_JUDGED: Final = 128
"""Characters of a value that are read before it is judged: names may follow names without end."""
_IN_QUOTES: Final = {quote: rf"""(?:[^\s\\{quote}]|\\[^nrt\s"'`])""" for quote in "\"'`"}
_IN_BARE: Final = r"""[^\s"'`\\<>]"""
_BOUND: Final = re.compile(
    r"""(?i:[_-](?:old|new|prod|dev|test|staging|live|main|value|\d\d?))?\d{0,2}  # the rest of the name
        (?:\\?["'`])?\]?                                   # what closes the name: JSON, a subscript
        (?:\s?:\s?[A-Za-z_][\w.\[\]|]{0,40}(?=\s=\s))?   # an annotation
        (?:\s{0,4}(?:=>|[:=]{1,3}|(?P<tag>>))\s{0,4}|\s(?:is|was)\s|(?P<blank>[ ]))
        (?:[bBrRuUfF]{0,2}\\?(?P<quote>["'`]))?
    """,
    re.VERBOSE | re.ASCII,
)
"""From the name to where the value begins."""
_VALUES: Final = {
    quote: re.compile(f"{inside}{{8,{_JUDGED}}}+")
    for quote, inside in (*_IN_QUOTES.items(), (None, _IN_BARE))
}
_RESTS: Final = {
    quote: re.compile(f"{inside}*+") for quote, inside in (*_IN_QUOTES.items(), (None, _IN_BARE))
}
_BARE_END: Final = re.compile(r"""[,;&)\]}]+(?=\s|$|["'`.\[]|[A-Za-z_][\w.-]{0,40}\s?=)|[.:]+$""", re.ASCII)
"""Where a value without quotes ends before a blank: in a call, a list, a query, a connection string."""

_TEMPLATE: Final = re.compile(r"\{[\w.!: \[\]()-]*\}|\$[({]|^\$[A-Za-z_]\w*$|%\(|<\w+>|^<", re.ASCII)
_TEMPLATE_SIGNS: Final = frozenset("{$%<")
_CODE: Final = re.compile(r"[(\[{]|[A-Za-z_][\w.]*[(\[]|[a-z_]+(?:\.[A-Za-z_]\w*)+$", re.ASCII)
"""A literal of a language, a call, a subscript, an attribute."""
_COMPOUND: Final = re.compile(r"[A-Za-z]+\d{0,4}(?:[_.-][A-Za-z]*\d{0,4})+$|[~.]?/[\w./-]*$", re.ASCII)
"""A name or a phrase of several words; a path, for `PWD` is a directory too."""
_IN_A_NAME: Final = string.ascii_letters + string.digits + "_-."


def _search(source: Source) -> Iterator[Finding]:
    text, done = source.text, 0
    for name in _NAME.finditer(source.lower):
        if name.start() < done:
            continue
        before = _name_before(text, name.start())
        kind = _kind_of(name[0], before.lower().rstrip("_-"))
        bound = None if kind is None else _BOUND.match(text, name.end())
        if kind is None or bound is None or not _binds(bound, text, name.start() - len(before), before):
            continue
        end = _end_of_secret(kind, text, bound.end(), bound["quote"])
        if end is not None:
            yield Finding(kind, bound.end(), end)
            done = end


def _kind_of(name: str, before: str) -> SecretKind | None:
    if name.startswith("p"):
        return SecretKind.PASSWORD
    if before.endswith(_CURSORS) or (name == "key" and not before.endswith(_KEYS)):
        return None
    return SecretKind.CREDENTIAL


def _binds(bound: re.Match[str], text: str, start: int, before: str) -> bool:
    """Whether a blank stands behind an option, and `>` behind a tag: elsewhere they bind nothing."""
    if bound["blank"]:
        return before.startswith("--")
    return not bound["tag"] or text[max(0, start - 1) : start] == "<"


def _end_of_secret(kind: SecretKind, text: str, start: int, quote: str | None) -> int | None:
    """Where the value at `start` ends; None where it is no secret."""
    judged = _VALUES[quote].match(text, start)
    if judged is None:
        return None
    end = judged.end() if quote else _bare_end(text, start, judged.end())
    if not _looks_secret(kind, text[start:end], quoted=bool(quote)):
        return None
    if end < judged.end() or end - start < _JUDGED:
        return end
    rest = _RESTS[quote].match(text, end)
    end = end if rest is None else rest.end()
    return end if quote else _bare_end(text, start, end)


def _name_before(text: str, start: int) -> str:
    head = text[max(0, start - 32) : start]
    return head[len(head.rstrip(_IN_A_NAME)) :]


def _bare_end(text: str, start: int, end: int) -> int:
    # One character more, so that the end of the value and the end of the text are not the same.
    cut = _BARE_END.search(text[start : end + 1].rstrip())
    return end if cut is None else min(end, start + cut.start())


def _looks_secret(kind: SecretKind, value: str, *, quoted: bool) -> bool:
    signs = set(value)
    if len(value) < 8 or len(signs) < 5 or (signs & _TEMPLATE_SIGNS and _TEMPLATE.search(value)):
        return False
    if _CODE.match(value) and not (quoted and kind is SecretKind.PASSWORD):
        return False
    classes = classes_of(value)
    if kind is SecretKind.CREDENTIAL:
        return (
            len(value) >= 12 and len(classes) >= 2 and is_random(value, share=_share(value, classes, quoted))
        )
    if _COMPOUND.match(value):
        return is_random(value)
    return len(classes) >= 2 and not classes.isdisjoint({"digit", "symbol"})


def _share(value: str, classes: frozenset[str], quoted: bool) -> float:
    """How often a value must change class: a name in camel case does so at every fourth or fifth letter."""
    camel = {"lower", "upper"} <= classes
    return 0.35 if camel and ("digit" not in classes or not quoted) else 0.16


ASSIGNMENTS: Final = (Rule(frozenset({SecretKind.PASSWORD, SecretKind.CREDENTIAL}), _search),)
