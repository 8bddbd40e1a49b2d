"""One self-contained page for any study: what was asked, what differed, what came out, call by call.

The page holds no script and asks for nothing outside itself. Every value passes through `pages.shown` and Jinja's
autoescape; the only markup made from data is a data URI, whose base64 alphabet cannot end an attribute.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue

from experiments.framework.analysis import Analysis, Cell, Exclusion, Table
from experiments.framework.arms import ArmDiff, canonical
from experiments.framework.figures import DrawnFigure, draw, table_of
from experiments.framework.journal import write_whole
from experiments.framework.pages import page_environment
from experiments.framework.records import (
    RunInfo,
    Violation,
    count_attempts,
    read_records,
    read_run,
    read_violations,
)
from experiments.framework.schedule import trial_id
from experiments.framework.study import Study, TargetT
from experiments.framework.trials import CacheTemperature, CallRecord, OutcomeKind, TrialRecord, total
from serving.errors import UsageError

FIGURES, REPORT = "figures", "report.html"
TRIALS_SHOWN = 20
"""Trials of one arm that the page lists; all of them are in records.jsonl."""


class Fact(BaseModel):
    """A name and its value; `None` is shown as unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    value: Cell


class ReportFigure(BaseModel):
    """A picture with the numbers behind it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    caption: str
    svg: bytes
    table: Table


class TrialView(BaseModel):
    """One attempt in the drill-down."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    kind: OutcomeKind
    outcome: str
    facts: tuple[Fact, ...]
    calls: tuple[CallRecord, ...]
    page: str | None = None
    """Where the trial can be opened step by step, from this page; None: it was not written."""


class ArmView(BaseModel):
    """One arm in the drill-down."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    why: str
    changes: tuple[str, ...]
    trials: tuple[TrialView, ...]
    trials_hidden: int = 0


class ReportModel(BaseModel):
    """Everything the page shows; a study that is not run by the framework can fill it too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    up: str | None = None
    """The page that lists this one, from here."""
    question: str
    conclusion: str
    diff: ArmDiff
    tables: tuple[Table, ...]
    figures: tuple[ReportFigure, ...]
    arms: tuple[ArmView, ...]
    exclusions: tuple[Exclusion, ...]
    environment: tuple[Fact, ...]
    reproduce: tuple[str, ...]


def publish(study: Study[TargetT], folder: Path, *, reproduce: Sequence[str] = ()) -> Path:
    """Analyse a run folder, draw its figures and write `report.html`; gives the page's path.

    `reproduce` are the commands that make the run again. The run may be unfinished: the page says how much is
    missing. Raises `UsageError` for a folder of another study and for one without a scored record.
    """
    records = read_records(folder, with_exchanges=False)
    model = report_of(study, folder, records, figures=folder / FIGURES, reproduce=reproduce)
    write_whole(folder / REPORT, render_report(model).encode("utf-8"))
    return folder / REPORT


def report_of(
    study: Study[TargetT],
    folder: Path,
    records: Iterable[TrialRecord],
    *,
    figures: Path,
    reproduce: Sequence[str] = (),
    up: str | None = None,
    pages: Mapping[str, str] | None = None,
) -> ReportModel:
    """Analyse the records of a run folder and draw its figures into the folder `figures`; raises as `publish` does.

    `pages` are the places of trials that were written step by step, by trial id.
    """
    run = read_run(folder)
    if run.identity.study != study.name:
        raise UsageError(f"{folder} holds study {run.identity.study!r}, not {study.name!r}.")
    records = tuple(records)
    scored = tuple(record for record in records if record.scored)
    if not scored:
        raise UsageError(f"{folder} has no finished trial yet; run the study first.")
    analysis = study.analyse(scored)
    return build_report(
        study.title,
        study.question,
        run=run,
        records=records,
        analysis=analysis,
        figures=tuple(draw(figure, figures) for figure in analysis.figures),
        violations=read_violations(folder),
        attempts=count_attempts(folder),
        reproduce=reproduce,
        pages=pages,
    ).model_copy(update={"up": up})


def render_report(report: ReportModel) -> str:
    """Render the page; the same model gives the same text."""
    environment = page_environment()
    environment.filters["data_uri"] = data_uri
    environment.filters["json"] = canonical
    return environment.get_template("report.html.jinja").render(report=report)


def build_report(
    title: str,
    question: str,
    *,
    run: RunInfo,
    records: Sequence[TrialRecord],
    analysis: Analysis,
    figures: Sequence[DrawnFigure],
    violations: Sequence[Violation] = (),
    attempts: int = 0,
    reproduce: Sequence[str] = (),
    pages: Mapping[str, str] | None = None,
) -> ReportModel:
    """Join a run with its analysis: pure, so that a test can look at the page's content as data."""
    return ReportModel(
        title=title,
        question=question,
        conclusion=analysis.conclusion,
        diff=run.diff,
        tables=(arm_table(run, records), *analysis.tables),
        figures=tuple(_figure(drawn) for drawn in figures),
        arms=tuple(_arm(run, index, records, pages or {}) for index in range(len(run.identity.arms))),
        exclusions=(*_exclusions(run, records, violations, attempts), *analysis.exclusions),
        environment=tuple(_environment(run)),
        reproduce=tuple(reproduce),
    )


def arm_table(run: RunInfo, records: Sequence[TrialRecord]) -> Table:
    """Count the trials of every arm by outcome, and its tokens; a sum with an unknown part is unknown."""
    rows = []
    for arm in run.identity.arms:
        own = [record for record in records if record.arm == arm.name]
        kinds = Counter(record.kind for record in own)
        scored = [record for record in own if record.scored]
        calls = [call for record in scored for call in record.calls]
        prompt = total(call.prompt_tokens for call in calls)
        cached = total(call.cached_tokens for call in calls)
        rows.append(
            (
                arm.name,
                kinds[OutcomeKind.OK],
                kinds[OutcomeKind.TASK_FAILED],
                kinds[OutcomeKind.INFRASTRUCTURE_ERROR],
                len(calls),
                prompt,
                cached,
                cached / prompt if cached is not None and prompt else None,
                sum(record.cache.temperature is not CacheTemperature.UNPROVEN for record in scored),
            )
        )
    return Table(
        title="Arms",
        columns=(
            "arm",
            "ok",
            "task failed",
            "infrastructure errors",
            "calls",
            "prompt tokens",
            "cached tokens",
            "cached share",
            "trials with predicted == reported",
        ),
        rows=tuple(rows),
        note="Infrastructure errors are attempts and are in no other number.",
    )


def _figure(drawn: DrawnFigure) -> ReportFigure:
    columns, rows = table_of(drawn.data)
    table = Table(title=drawn.data.axis, columns=columns, rows=rows)
    return ReportFigure(title=drawn.data.title, caption=drawn.data.caption, svg=drawn.svg, table=table)


def _arm(run: RunInfo, index: int, records: Sequence[TrialRecord], pages: Mapping[str, str]) -> ArmView:
    arm = run.identity.arms[index]
    own = sorted(
        (record for record in records if record.arm == arm.name),
        key=lambda record: (trial_id(arm.name, record.spec) not in pages, record.order_index),
    )
    changes = [
        f"{path}: {canonical(base)} → {canonical(value)}"
        for name, path, base, value in run.diff.changes()
        if name == arm.name
    ]
    return ArmView(
        name=arm.name,
        title=arm.title,
        why=arm.why,
        changes=tuple(changes),
        trials=tuple(
            _trial(record, pages.get(trial_id(arm.name, record.spec))) for record in own[:TRIALS_SHOWN]
        ),
        trials_hidden=max(0, len(own) - TRIALS_SHOWN),
    )


def _trial(record: TrialRecord, page: str | None) -> TrialView:
    return TrialView(
        title=f"{record.task}, seed {record.seed}, repeat {record.repeat}",
        kind=record.kind,
        outcome=record.outcome,
        facts=(
            Fact(name="cache", value=f"{record.cache.temperature} ({record.cache.proof})"),
            Fact(name="order", value=record.order_index),
            Fact(name="attempt", value=record.attempt),
            Fact(name="seconds", value=record.seconds),
            Fact(name="salt", value=record.salt),
            *(Fact(name=name, value=value) for name, value in record.measures.items()),
        ),
        calls=record.calls,
        page=page,
    )


def _exclusions(
    run: RunInfo, records: Sequence[TrialRecord], violations: Sequence[Violation], attempts: int
) -> Iterable[Exclusion]:
    scored = sum(record.scored for record in records)
    missing = run.identity.trials - scored
    if missing:
        yield Exclusion(reason="planned, without a scored record: the run is not finished", trials=missing)
    failed = len(records) - scored
    if failed:
        yield Exclusion(reason="attempts that the machinery failed (repeated, never scored)", trials=failed)
    for violation in violations:
        yield Exclusion(
            reason=f"measurement violated in {violation.trial}, attempt {violation.attempt}: "
            f"{violation.what}: expected {violation.expected}, got {violation.got}",
            trials=1,
        )
    killed = attempts - len(records) - len(violations)
    if killed > 0:
        yield Exclusion(
            reason="attempts cut off by an interruption (repeated with a new salt)", trials=killed
        )


def _environment(run: RunInfo) -> Iterable[Fact]:
    identity = run.identity
    yield Fact(name="run", value=run.run_id)
    yield Fact(name="created", value=run.created)
    yield Fact(name="size", value=f"{identity.size.name}, {identity.trials} trials")
    yield Fact(name="order seed", value=identity.seed)
    yield from _facts("argument", identity.arguments)
    yield from _facts("model", identity.model)
    for number, session in enumerate(run.sessions, start=1):
        state = {True: "with uncommitted changes", False: "clean", None: "state unknown"}[session.code.dirty]
        code = f"{session.code.revision or 'unknown'} ({state}), ctxlab {session.code.version or 'unknown'}"
        yield Fact(name=f"session {number}", value=f"{session.started}, code {code}")
        yield Fact(name=f"session {number} system", value=f"Python {session.python}, {session.platform}")
        yield from _facts(f"session {number} machine", session.machine)
    for name, environment in run.environments.items():
        yield from _facts(f"engine {name} factor", environment.engine)
        yield from _facts(f"engine {name}", environment.facts)


def _facts(prefix: str, values: dict[str, JsonValue]) -> Iterable[Fact]:
    for name, value in values.items():
        plain = value if value is None or isinstance(value, bool | int | float | str) else canonical(value)
        yield Fact(name=f"{prefix} {name}", value=plain)


def data_uri(svg: bytes) -> object:
    """A picture as an attribute's value; base64 holds nothing that could end it."""
    from markupsafe import Markup

    return Markup("data:image/svg+xml;base64,{}").format(base64.b64encode(svg).decode("ascii"))
