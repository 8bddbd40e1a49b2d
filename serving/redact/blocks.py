"""Private keys that stand between two lines of dashes (RFC 7468, OpenSSH, RFC 4880)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from serving.redact.kinds import Finding, SecretKind
from serving.redact.rule import Rule, Source

_DASHES: Final = "-----"
_BEGIN: Final = "-----BEGIN "
_LABEL: Final = re.compile(r"(?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_END: Final = re.compile(r"-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BODY: Final = re.compile(r"(?:[A-Za-z0-9+/=,:\s\\\"'>|-](?!-{4}))*+")
"""What may stand in a block that has lost its end: its lines, its headers, what quotes or escapes them."""
_LINE: Final = re.compile(r"[A-Za-z0-9+/]{32}")
_KIND_OF: Final = {"OPENSSH": SecretKind.SSH_PRIVATE_KEY, "PGP": SecretKind.PGP_PRIVATE_KEY}


def _search(source: Source) -> Iterator[Finding]:
    """Blocks with a body, from their first to their last dash.

    A block without an end is taken as far as it looks like one: half a key is still half a key. Each step
    begins where the step before ended.
    """
    text = source.text
    at = text.find(_BEGIN)
    while at != -1:
        label = _LABEL.match(text, at + len(_BEGIN))
        if label is None:
            at = text.find(_BEGIN, at + len(_BEGIN))
            continue
        dashes = text.find(_DASHES, label.end())
        dashes = len(text) if dashes == -1 else dashes
        end = _END.match(text, dashes)
        if end is None:
            body = _BODY.match(text, label.end(), dashes)
            stop = label.end() if body is None else body.end()
        else:
            stop = end.end()
        if _LINE.search(text, label.end(), dashes if end else stop):
            kind = _KIND_OF.get(label[0].split(" ", 1)[0], SecretKind.PRIVATE_KEY)
            yield Finding(kind, at, stop)
        at = text.find(_BEGIN, max(stop, label.end()))


BLOCKS: Final = (
    Rule(
        frozenset({SecretKind.SSH_PRIVATE_KEY, SecretKind.PGP_PRIVATE_KEY, SecretKind.PRIVATE_KEY}),
        _search,
    ),
)
