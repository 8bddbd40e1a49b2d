"""The names that the study, its records and its tables share."""

from __future__ import annotations

from typing import Final

AUTO: Final = "auto"
REQUIRED: Final = "required"

NATIVE_ONLY: Final = "native_"
"""Before the name of a measure: the same turn with a harness that reads the template's own form alone."""

EXCLUDED: Final = "excluded"
"""A measure that says why a prompt was not asked."""
NO_ISOLATION: Final = (
    "no isolation here: the code interpreter is not offered, and prompts that need it are not asked"
)

REFUSED: Final = "refused"
"""A measure of a trial that the template or the server refused: their words."""
