"""The index over run folders: every run and every arm in two tables that sort, each leading to its report.

A browser asks for nothing outside the folder. The page's one script sorts tables; without it they are read as they are.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from experiments.framework.analysis import Cell
from experiments.framework.pages import page_environment
from experiments.framework.records import RunInfo
from experiments.framework.report import ReportFigure, ReportModel, data_uri
from experiments.framework.trials import OutcomeKind, TrialRecord, total


class Place(BaseModel):
    """A link inside the folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    href: str


class Sorted(BaseModel):
    """A table that sorts by each of its columns; a row begins with the link to what it is about."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Place, tuple[Cell, ...]], ...]
    note: str = ""


class RunCard(BaseModel):
    """One run as the index shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: Place
    question: str
    conclusion: str
    figure: ReportFigure | None
    row: tuple[Cell, ...]
    arms: tuple[tuple[Place, tuple[Cell, ...]], ...]


RUN_COLUMNS = (
    "run",
    "model",
    "size",
    "trials scored",
    "of planned",
    "calls",
    "reuse as predicted",
    "engine",
    "processor",
    "begun",
)
ARM_COLUMNS = (
    "arm",
    "run",
    "trials",
    "succeeded",
    "calls",
    "prompt tokens a call",
    "computed tokens a call",
    "cached share",
)


def run_card(
    name: str, page: str, run: RunInfo, records: Sequence[TrialRecord], report: ReportModel
) -> RunCard:
    """What the index says of one run; `name` is its folder's, `page` where its report lies."""
    scored = [record for record in records if record.scored]
    calls = [call for record in scored for call in record.calls]
    known = [call for call in calls if call.predicted_tokens is not None and call.cached_tokens is not None]
    agreed = sum(call.predicted_tokens == call.cached_tokens for call in known)
    facts = next((environment.facts for environment in run.environments.values()), {})
    return RunCard(
        place=Place(text=name, href=page),
        question=report.question,
        conclusion=report.conclusion,
        figure=report.figures[0] if report.figures else None,
        row=(
            str(run.identity.base.get("engine.model", "")) or None,
            run.identity.size.name,
            len(scored),
            run.identity.trials,
            len(calls),
            f"{agreed} of {len(known)}" if known else "not predicted",
            _text(facts.get("engine")),
            _text(facts.get("processor")),
            run.created[:10],
        ),
        arms=tuple(
            (
                Place(text=arm.title, href=f"{page}#arm-{number}"),
                (name, *_arm_cells([record for record in scored if record.arm == arm.name])),
            )
            for number, arm in enumerate(run.identity.arms, start=1)
        ),
    )


def render_index(cards: Sequence[RunCard], others: Sequence[Place] = ()) -> str:
    """Render the page; `others` are results that no run folder holds."""
    environment = page_environment()
    script = environment.get_template("sort.js").render()
    environment.filters["data_uri"] = data_uri
    return environment.get_template("index.html.jinja").render(
        cards=cards,
        runs=Sorted(
            title="Runs",
            columns=RUN_COLUMNS,
            rows=tuple((card.place, card.row) for card in cards),
            note="Reuse as predicted: calls whose cached tokens the lab had computed before the server reported "
            "them, of those that it predicted.",
        ),
        arms=Sorted(
            title="Arms of all runs",
            columns=ARM_COLUMNS,
            rows=tuple(row for card in cards for row in card.arms),
            note="Runs of different studies, models and sizes stand side by side here and are not compared: their "
            "work is not the same. An arm that fails its task is not cheap.",
        ),
        others=others,
        script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _arm_cells(own: Sequence[TrialRecord]) -> tuple[Cell, ...]:
    calls = [call for record in own for call in record.calls]
    prompt, cached = total(call.prompt_tokens for call in calls), total(call.cached_tokens for call in calls)
    judged = [record for record in own if record.kind in (OutcomeKind.OK, OutcomeKind.TASK_FAILED)]
    return (
        len(own),
        sum(record.kind is OutcomeKind.OK for record in judged),
        len(calls),
        None if prompt is None or not calls else round(prompt / len(calls)),
        None if prompt is None or cached is None or not calls else round((prompt - cached) / len(calls)),
        cached / prompt if cached is not None and prompt else None,
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
