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

_JUDGED: Final = 1024
"""Characters of a value that are read before it is judged: names may follow names without end."""
_BOUND: Final = re.compile(
    rf"""(?i:[_-](?:old|new|prod|dev|test|staging|live|main|value|\d\d?))?\d{{0,2}}  # the rest of the name
        (?:\\?["'`])?\]?                                       # what closes the name: JSON, a subscript
        (?:\s?:\s?[A-Za-z_][\w.\[\]|]{{0,40}}(?=\s?=[^=]))?    # an annotation
        (?:\s{{0,4}}(?:=>|[:=]{{1,3}}|(?P<tag>>))\s{{0,4}}|\s(?:is|was)\s|(?P<blank>[ ]))
        (?:[bBrRuUfF]{{0,2}}\\?(?P<quote>["'`])
           (?P<quoted>(?:(?!(?P=quote))[^\s\\]|\\[^nrt\s"'`]){{8,{_JUDGED}}}+)
         | (?P<bare>[^\s"'`\\<>]{{8,{_JUDGED}}}+))
    """,
    re.VERBOSE | re.ASCII,
)
_REST: Final = re.compile(r"[^\s\"'`\\<>]*+")
_BARE_END: Final = re.compile(r"""[,;&)\]}]+(?=\s|$|["'`.\[]|[A-Za-z_][\w.-]{0,40}\s?=)|[.:]+$""", re.ASCII)
"""Where a value without quotes ends before a blank: in a call, a list, a query, a connection string."""

_TEMPLATE: Final = re.compile(r"\{[\w.!: \[\]()-]*\}|\$[({]|\$[A-Za-z_]\w*$|%\(|%[sdr]$|<\w+>|^<", re.ASCII)
_CODE: Final = re.compile(r"[(\[{]|[A-Za-z_][\w.]*[(\[]|[a-z_]+(?:\.[A-Za-z_]\w*)+$", re.ASCII)
"""A literal of a language, a call, a subscript, an attribute."""
_COMPOUND: Final = re.compile(r"[A-Za-z]+\d{0,4}(?:[_.-][A-Za-z]*\d{0,4})+$", re.ASCII)
"""A name or a phrase of several words."""
_IN_A_NAME: Final = string.ascii_letters + string.digits + "_-."


def _search(source: Source) -> Iterator[Finding]:
    text, done = source.text, 0
    for name in _NAME.finditer(source.lower):
        if name.start() < done:
            continue
        bound = _BOUND.match(text, name.end())
        if bound is None:
            continue
        before = _name_before(text, name.start())
        if bound["blank"] and not before.startswith("--"):
            continue
        if bound["tag"] and not text.startswith("<", max(0, name.start() - len(before) - 1)):
            continue
        prefix = before.lower().rstrip("_-")
        if prefix.endswith(_CURSORS) or (name[0] == "key" and not prefix.endswith(_KEYS)):
            continue
        kind = SecretKind.PASSWORD if name[0].startswith("p") else SecretKind.CREDENTIAL
        start, end = bound.span("quoted" if bound["quote"] else "bare")
        if not bound["quote"]:
            end = _bare_end(text, start, end)
        if _looks_secret(kind, text[start:end], quoted=bool(bound["quote"])):
            if end - start >= _JUDGED and (rest := _REST.match(text, end)) is not None:
                end = rest.end()
            yield Finding(kind, start, end)
            done = end


def _name_before(text: str, start: int) -> str:
    head = text[max(0, start - 32) : start]
    return head[len(head.rstrip(_IN_A_NAME)) :]


def _bare_end(text: str, start: int, end: int) -> int:
    # One character more, so that the end of the value and the end of the text are not the same.
    cut = _BARE_END.search(text[start : end + 1].rstrip())
    return end if cut is None else min(end, start + cut.start())


def _looks_secret(kind: SecretKind, value: str, *, quoted: bool) -> bool:
    if len(value) < 8 or _TEMPLATE.search(value[:256]):
        return False
    if _CODE.match(value) and not (quoted and kind is SecretKind.PASSWORD):
        return False
    classes = classes_of(value)
    if kind is SecretKind.CREDENTIAL:
        return (
            len(value) >= 12 and len(classes) >= 2 and is_random(value, share=_share(value, classes, quoted))
        )
    if _COMPOUND.match(value[:256]):
        return is_random(value)
    return len(classes) >= 2 and not classes.isdisjoint({"digit", "symbol"}) and len(set(value)) >= 5


def _share(value: str, classes: frozenset[str], quoted: bool) -> float:
    """How often a value must change class: a name in camel case does so at every fourth or fifth letter."""
    camel = {"lower", "upper"} <= classes
    return 0.35 if camel and ("digit" not in classes or not quoted) else 0.16


ASSIGNMENTS: Final = (Rule(frozenset({SecretKind.PASSWORD, SecretKind.CREDENTIAL}), _search),)
