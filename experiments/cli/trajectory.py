"""`ctxlab trajectory`: a saved run of the agent, or one trial of a study, as a page to open step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.console import OUT, print_json
from experiments.cli.model_files import files_here
from experiments.cli.options import AsJson, OpenPage
from experiments.cli.untrusted import plain
from serving.errors import UsageError

if TYPE_CHECKING:
    from experiments.agent.saving import OpenedRun, SavedStep
    from experiments.framework.trajectory import Show, TrajectoryPage, TrajectoryStep
    from experiments.framework.trials import TrialRecord
    from serving.assembler import ContextManifest

PAGE = "report.html"
TRIAL_PAGES = "trajectories"


def trajectory(
    folder: Annotated[Path, typer.Argument(help="What `ctxlab agent --save` or `ctxlab run` wrote.")],
    trial: Annotated[
        str | None, typer.Option("--trial", help="Of a study's run: the trial; without, they are listed.")
    ] = None,
    as_json: AsJson = False,
    open_page: OpenPage = False,
) -> None:
    """Write a run as a page that opens each step: its packet, manifest, token ids and times.

    The page is self-contained and holds no script. What a step repeats of the one before is said and not shown
    again. A run that was interrupted shows its complete steps.

    Examples:

      ctxlab trajectory runs/logs --open

      ctxlab trajectory runs/tool-calling --trial native/s0/r0/currency
    """
    from experiments.agent.saving import STEPS_FILE
    from experiments.framework.records import RECORDS

    if (folder / STEPS_FILE).exists():
        if trial is not None:
            raise UsageError(f"{folder} holds one run of the agent and no trials; leave --trial out.")
        page = write_run_page(folder)
    elif not (folder / RECORDS).exists():
        raise UsageError(
            f"Expected a folder of `ctxlab agent --save` or `ctxlab run`, but {folder} holds neither "
            f"{STEPS_FILE} nor {RECORDS}."
        )
    elif trial is None:
        _list_trials(folder, as_json=as_json)
        return
    else:
        page = _write_trial_page(folder, trial)
    if as_json:
        print_json({"page": str(page)})
    else:
        OUT.print(f"page: {page}", markup=False)
    if open_page:
        typer.launch(str(page))


def write_run_page(folder: Path, show: Show | None = None) -> Path:
    """Write the page of a folder of `ctxlab agent --save` into it; `show` None: looked for on this disk."""
    from experiments.agent.saving import open_run

    opened = open_run(folder)
    return _write(folder / PAGE, run_page(opened), show or _texts(opened.run.model))


def run_page(opened: OpenedRun) -> TrajectoryPage:
    """A saved run as a page's content."""
    from experiments.framework.report import Fact
    from experiments.framework.trajectory import TrajectoryPage

    run, end = opened.run, opened.end
    ending = "It was interrupted: what follows are its complete steps."
    if end is not None:
        ending = end.text if end.reason is None else f"No answer ({end.reason.value}): {end.text}"
    return TrajectoryPage(
        title=run.task,
        ending=ending,
        facts=(
            Fact(name="model", value=run.model),
            Fact(name="policy", value=run.policy.name),
            Fact(name="faults", value=", ".join(run.faults) or "none"),
            Fact(name="started", value=run.started_at.isoformat()),
            Fact(name="model calls", value=len(opened.steps)),
        ),
        steps=tuple(_saved_step(step) for step in opened.steps),
    )


def _saved_step(step: SavedStep) -> TrajectoryStep:
    from experiments.framework.analysis import Table
    from experiments.framework.report import Fact
    from experiments.framework.trajectory import TrajectoryStep
    from serving.client import Exchange

    ran = Table(
        title="Tools",
        columns=("tool", "call", "ok", "refused because", "while the model still wrote", "attempts"),
        rows=tuple(
            (
                tool.name,
                tool.call_id,
                tool.ok,
                "" if tool.refusal is None else tool.refusal.value,
                tool.early,
                tool.attempts,
            )
            for tool in step.ran
        ),
    )
    return TrajectoryStep(
        messages=tuple(message.to_api() for message in step.messages),
        tools=tuple(tool.to_api() for tool in step.tools),
        manifest=step.manifest,
        prompt_ids=step.prompt_ids,
        spans=step.spans or (),
        exchange=Exchange.model_validate(step.exchange),
        facts=(
            Fact(name="predicted cached tokens", value=step.predicted_cached_tokens),
            Fact(name="first break", value=step.first_break or "none"),
            Fact(name="call form", value=step.form.value),
            *(() if step.replayable else (Fact(name="a secret was cut from", value="text and output ids"),)),
        ),
        ran=ran if step.ran else None,
    )


def _list_trials(folder: Path, *, as_json: bool) -> None:
    from experiments.framework.analysis import Table
    from experiments.framework.records import read_records

    rows = tuple(
        (_name(record), record.attempt, record.kind.value, len(record.calls), record.outcome[:60])
        for record in read_records(folder, with_exchanges=False)
    )
    if as_json:
        print_json([{"trial": row[0], "attempt": row[1], "kind": row[2], "calls": row[3]} for row in rows])
        return
    from experiments.cli.tables import show_table

    show_table(
        Table(title="Trials", columns=("trial", "attempt", "kind", "calls", "outcome"), rows=rows), OUT
    )
    OUT.print(f"[dim]one of them as a page: ctxlab trajectory {plain(str(folder))} --trial TRIAL[/]")


def _write_trial_page(folder: Path, trial: str) -> Path:
    from experiments.framework.manifests import read_manifests
    from experiments.framework.records import read_records

    found = [record for record in read_records(folder) if _name(record) == trial]
    if not found:
        raise UsageError(
            f"{folder} has no trial {trial!r} that ended; `ctxlab trajectory {folder}` lists them."
        )
    record = found[-1]  # the scored one comes last: after it nothing is attempted
    if not record.exchanges:
        raise UsageError(f"Trial {trial} of {folder} made no call that was kept.")
    wanted = {exchange.manifest_id for exchange in record.exchanges}
    manifests = {
        manifest.manifest_id: manifest
        for manifest in read_manifests(folder)
        if manifest.manifest_id in wanted
    }
    pages = folder / TRIAL_PAGES
    pages.mkdir(exist_ok=True)
    return _write(pages / f"{record.salt}.html", trial_page(record, manifests), trial_texts(folder))


def trial_texts(folder: Path) -> Show | None:
    """What spells the tokens of a run's model; None where its files are not on this disk."""
    from experiments.framework.records import read_run

    model = read_run(folder).identity.base.get("engine.model")
    return _texts(str(model) if model else "")


def trial_page(record: TrialRecord, manifests: dict[str, ContextManifest]) -> TrajectoryPage:
    """One trial of a study as a page's content; a call without a manifest is shown without."""
    from experiments.framework.report import Fact
    from experiments.framework.trajectory import TrajectoryPage

    return TrajectoryPage(
        title=f"{record.study}: {_name(record)}",
        ending=f"{record.kind.value}: {record.outcome}",
        facts=(
            Fact(name="attempt", value=record.attempt),
            Fact(name="salt", value=record.salt),
            Fact(name="cache", value=f"{record.cache.temperature} ({record.cache.proof})"),
            *(Fact(name=name, value=value) for name, value in record.measures.items()),
        ),
        steps=tuple(_trial_steps(record, manifests)),
    )


def _trial_steps(record: TrialRecord, manifests: dict[str, ContextManifest]) -> list[TrajectoryStep]:
    from experiments.framework.report import Fact
    from experiments.framework.trajectory import TrajectoryStep

    steps = []
    for number, exchange in enumerate(record.exchanges):
        call = record.calls[number] if number < len(record.calls) else None
        messages, tools = exchange.request.get("messages"), exchange.request.get("tools")
        steps.append(
            TrajectoryStep(
                messages=tuple(one for one in _list(messages) if isinstance(one, dict)),
                tools=tuple(one for one in _list(tools) if isinstance(one, dict)),
                manifest=manifests.get(exchange.manifest_id or ""),
                prompt_ids=exchange.prompt_token_ids,
                exchange=exchange,
                facts=()
                if call is None
                else (
                    Fact(name="predicted cached tokens", value=call.predicted_tokens),
                    Fact(name="first break", value=call.first_broken or "none"),
                ),
            )
        )
    return steps


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _name(record: TrialRecord) -> str:
    from experiments.framework.schedule import trial_id

    return trial_id(record.arm, record.spec)


def _texts(model: str) -> Show | None:
    """What spells the tokens of a model whose files are on this disk."""
    from serving.chat import ChatTokenizer

    found = files_here(model)
    return None if found is None else ChatTokenizer(found.path).show


def _write(path: Path, page: TrajectoryPage, show: Show | None) -> Path:
    from experiments.framework.journal import write_whole
    from experiments.framework.trajectory import render_trajectory

    write_whole(path, render_trajectory(page, show).encode("utf-8"))
    return path
