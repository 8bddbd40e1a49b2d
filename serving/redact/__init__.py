"""Secrets and personal data: found by published formats, and taken out before anything keeps or sends them.

    from serving.redact import SecretRedactor, find, redact

The format decides, never a word inside a value: `AKIAIOSFODNN7EXAMPLE` has the form of a key and is taken out.
What only stands where a secret would (`ghp_xxxx…`, `<token>`, `$TOKEN`, `{password}`) stays.
"""

from __future__ import annotations

from serving.redact.find import SecretRedactor, find, kinds_in, redact
from serving.redact.kinds import PERSONAL, Finding, Redaction, Redactor, SecretKind

__all__ = [
    "PERSONAL",
    "Finding",
    "Redaction",
    "Redactor",
    "SecretKind",
    "SecretRedactor",
    "find",
    "kinds_in",
    "redact",
]
