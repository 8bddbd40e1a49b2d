"""What a chat template keeps of one turn in the next, proven by rendering, without any model."""

from __future__ import annotations

from serving.chat.survey.conversations import Probe, Spelling
from serving.chat.survey.findings import Finding, Habit
from serving.chat.survey.proof import Break, Kept, Place, Proof
from serving.chat.survey.survey import (
    CONVENTIONS,
    Deviation,
    NotAsked,
    Probed,
    TemplateSurvey,
    Unit,
    survey_folder,
    survey_template,
)
from serving.chat.survey.twins import Twins, conclusion, pair_twins

__all__ = [
    "CONVENTIONS",
    "Break",
    "Deviation",
    "Finding",
    "Habit",
    "Kept",
    "NotAsked",
    "Place",
    "Probe",
    "Probed",
    "Proof",
    "Spelling",
    "TemplateSurvey",
    "Twins",
    "Unit",
    "conclusion",
    "pair_twins",
    "survey_folder",
    "survey_template",
]
