"""Published templates beside the twins that somebody patched for training: what the patch restores."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from serving.chat.survey.conversations import Probe
from serving.chat.survey.findings import Habit
from serving.chat.survey.proof import Kept
from serving.chat.survey.survey import TemplateSurvey

TWIN_SUFFIX = "_training"
"""How TRL names the patched twin of a template."""


class Twins(BaseModel):
    """One published template and, where there is one, its patched twin."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    published: TemplateSurvey
    patched: TemplateSurvey | None

    def restored(self) -> tuple[Probe, ...]:
        """The probes in which the twin keeps all and the published one does not."""
        return tuple(probe for probe in Probe if self._kept(probe) == (False, True))

    def lost(self) -> tuple[Probe, ...]:
        """The probes in which the published one keeps all and the twin does not."""
        return tuple(probe for probe in Probe if self._kept(probe) == (True, False))

    def _kept(self, probe: Probe) -> tuple[bool, bool] | None:
        patched = None if self.patched is None else self.patched.probes[probe].kept
        published = self.published.probes[probe].kept
        if published is None or patched is None:
            return None
        return published is Kept.ALL, patched is Kept.ALL


def pair_twins(surveys: Sequence[TemplateSurvey]) -> tuple[Twins, ...]:
    """Put each published template beside its twin, in the order given."""
    by_name = {survey.name: survey for survey in surveys}
    return tuple(
        Twins(published=survey, patched=by_name.get(survey.name + TWIN_SUFFIX))
        for survey in surveys
        if not survey.name.endswith(TWIN_SUFFIX)
    )


def conclusion(pairs: Sequence[Twins]) -> str:
    """One paragraph of counts over a collection."""
    published = [pair.published for pair in pairs]
    everyone = published + [pair.patched for pair in pairs if pair.patched is not None]
    loops = [survey for survey in everyone if survey.renders_tool_loop]
    dropping = [survey for survey in loops if _has(survey, Habit.CALL_DROPPED)]
    dated = [s for s in published if _has(s, Habit.PRINTS_TODAY) or _has(s, Habit.PRINTS_DATE_STRING)]
    twins = [pair for pair in pairs if pair.patched is not None]
    restoring = [pair for pair in twins if pair.restored()]
    return (
        f"{_keep(published, Probe.PLAIN_TURNS)} published templates keep plain turns, "
        f"{_keep(published, Probe.TOOL_LOOP)} a tool loop, "
        f"{_keep(published, Probe.ECHOED_AFTER_LOOP)} the reasoning of a tool loop once a new question comes, "
        f"and {_keep(published, Probe.TOOL_ADDED)} a tool added at the end. "
        f"{len(loops)} of {len(everyone)} files take a conversation with a tool call, and {len(dropping)} of "
        f"them leave the call out without a word; {len(dated)} published templates print a date. "
        f"{len(restoring)} of {len(twins)} training twins keep turns that their published template loses "
        f"({', '.join(pair.published.name for pair in restoring) or 'none'})."
    )


def _keep(surveys: Sequence[TemplateSurvey], probe: Probe) -> str:
    """Among those that render the conversation at all."""
    rendered = [s.probes[probe].kept for s in surveys if s.probes[probe].kept not in (None, Kept.REFUSED)]
    return f"{rendered.count(Kept.ALL)} of {len(rendered)}"


def _has(survey: TemplateSurvey, habit: Habit) -> bool:
    return any(finding.habit is habit for finding in survey.findings)
