"""What the records of the study `tool-calling` say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.framework import Analysis, Arm, TrialRecord

AUTO: Final = "auto"
NULL: Final = "null-rebuild"
REQUIRED: Final = "required"
EXCLUDED: Final = "excluded"
REFUSED: Final = "refused"
NO_ISOLATION: Final = "this machine cannot isolate a program, so the code interpreter is not offered"


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    return Analysis(conclusion=f"{len(records)}")
