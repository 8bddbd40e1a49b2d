"""`ctxlab run` and `ctxlab report`: a study into a folder, and the folder into a page."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from experiments.cli.console import ERR, OUT, ConsoleProgress, print_json
from experiments.cli.options import AsJson, OpenPage
from experiments.cli.signals import ending_politely
from experiments.cli.studies import STUDIES, find_study, serve_study
from experiments.cli.tables import show_table
from experiments.cli.untrusted import plain
from serving.errors import UsageError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from experiments.framework import RunSummary, Study
    from experiments.framework.records import RunIdentity, RunInfo

DEFAULT_MODEL = "qwen2.5-coder-0.5b"
"""Studies name their model: the same on every machine."""

DEFAULT_BLOCK_SIZE = 32
"""Tokens; what a processor's engine takes."""

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help=f"One of: {', '.join(STUDIES)}.")]


def run(
    study_name: StudyName,
    size: Annotated[str, typer.Option("--size", help="quick, or a larger one; see --dry-run.")] = "quick",
    model: Annotated[
        str, typer.Option("--model", "-m", help="Catalogue name, hub id or folder.")
    ] = DEFAULT_MODEL,
    block_size: Annotated[
        int, typer.Option("--block-size", min=1, help="Tokens per KV-cache block, where an engine serves.")
    ] = DEFAULT_BLOCK_SIZE,
    arms: Annotated[str, typer.Option("--arms", help="Names joined by commas; all if empty.")] = "",
    seed: Annotated[int, typer.Option("--seed", help="Of the order in which trials run.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder; an interrupted one goes on.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the treatment and the plan, and stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a study into a folder, and write its report.

    Prints the diff between the arms first: it is the treatment. An interrupted run goes on with the same
    command; no trial is lost or done twice.

    Examples:

      ctxlab run prefix-cache

      ctxlab run prefix-cache --size full --model qwen3-nano-shape --out runs/nano

      ctxlab run prefix-cache --dry-run

      ctxlab run attention --model smollm2-135m
    """
    study = find_study(study_name, model=model, block_size=block_size)
    chosen = tuple(name.strip() for name in arms.split(",") if name.strip())
    if dry_run:
        show_plan(study, size, chosen, as_json=as_json)
        return
    folder = out or Path("runs") / f"{study_name}-{model.replace('/', '--')}-{size}"
    summary, page = run_into(study, size=size, folder=folder, arms=chosen, seed=seed)
    show_outcome(study, summary, page, as_json=as_json)


def report(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    as_json: AsJson = False,
    open_page: OpenPage = False,
) -> None:
    """Analyse a run folder again and write its figures and `report.html`.

    Example: ctxlab report runs/prefix-cache-qwen2.5-coder-0.5b-quick --open
    """
    from experiments.framework import publish

    study, info = opened(folder)
    page = publish(study, folder, reproduce=reproduce(study, info, folder))
    if as_json:
        print_json({"report": str(page)})
    else:
        show_result(study, folder, page)
    if open_page:
        typer.launch(str(page))


def opened(folder: Path) -> tuple[Study[object], RunInfo]:
    """The study of a run folder, as it ran, and what the folder says of the run."""
    from experiments.framework.records import read_run

    info = read_run(folder)
    base = info.identity.base
    # A model in this process has no blocks; its studies take no block size.
    model, block_size = base.get("engine.model"), base.get("engine.block_size", DEFAULT_BLOCK_SIZE)
    if not isinstance(model, str) or not isinstance(block_size, int):
        raise UsageError(
            f"A run's base names engine.model and engine.block_size, and {folder} has {model!r} and {block_size!r}."
        )
    return find_study(info.identity.study, model=model, block_size=block_size), info


def run_into(
    study: Study[object], *, size: str, folder: Path, arms: tuple[str, ...] = (), seed: int = 0
) -> tuple[RunSummary, Path]:
    """Run what the folder does not have yet, showing the treatment and where the work is, then publish."""
    from experiments.framework import RunOptions, publish, run_study
    from experiments.framework.records import read_run
    from experiments.framework.runner import identify
    from experiments.framework.study import size_named

    options = RunOptions(arms=arms, seed=seed)
    identity, diff = identify(study, size_named(study.sizes, size), options)
    ERR.print("[bold]the treatment[/] – all that differs between the arms:")
    ERR.print(escape(diff.to_text()))
    with ending_politely(), ConsoleProgress() as progress:
        summary = run_study(
            study,
            identity.size,
            folder=folder,
            serve=serve_study(study.name, progress),
            options=replace(options, resume_command=command(study, identity, folder)),
            progress=progress,
        )
        progress.begin("write the report")
        page = publish(study, folder, reproduce=reproduce(study, read_run(folder), folder))
    return summary, page


def reproduce(study: Study[object], info: RunInfo, folder: Path) -> tuple[str, ...]:
    """The commands that make a run once more beside the first, by the code that made it if that was committed."""
    code = info.sessions[-1].code if info.sessions else None
    checkout = (f"git checkout {code.revision}",) if code and code.revision and code.dirty is False else ()
    again = Path("runs") / "again" / study.name / folder.name
    return (*checkout, "make setup", command(study, info.identity, again))


def command(study: Study[object], identity: RunIdentity, folder: Path) -> str:
    """The command that makes the run in `folder`, or goes on with it there."""
    words = shlex.join(["ctxlab", *_asked(study, identity), "--out", str(folder)])
    return f".venv/bin/{words}"


def _asked(study: Study[object], identity: RunIdentity) -> list[str]:
    """What the person asked for: as a command that is no `ctxlab run` has kept it, else from the run's identity."""
    if isinstance(kept := identity.arguments.get("command"), list):
        return [str(word) for word in kept]
    base = identity.base
    words = [
        "run",
        identity.study,
        "--size",
        identity.size.name,
        "--model",
        str(base["engine.model"]),
    ]
    if "engine.block_size" in base:
        words += ["--block-size", str(base["engine.block_size"])]
    if identity.seed:
        words += ["--seed", str(identity.seed)]
    if len(identity.arms) < len(study.arms):
        words += ["--arms", ",".join(arm.name for arm in identity.arms)]
    return words


def show_plan(study: Study[object], size: str, arms: tuple[str, ...], *, as_json: bool) -> None:
    """The question, the treatment, and how many trials it would be, in this size and in the others."""
    from experiments.framework import RunOptions
    from experiments.framework.runner import identify
    from experiments.framework.study import size_named

    options = RunOptions(arms=arms)
    identity, diff = identify(study, size_named(study.sizes, size), options)
    plan = study.plan(identity.size)
    trials = {arm.name: sum(study.applies(arm, spec) for spec in plan) for arm in identity.arms}
    sizes = {known.name: identify(study, known, options)[0].trials for known in study.sizes}
    if as_json:
        print_json(
            {
                "study": study.name,
                "question": study.question,
                "size": identity.size.name,
                "trials": identity.trials,
                "base": identity.base,
                "arms": [
                    {**arm.model_dump(mode="json"), "trials": trials[arm.name]} for arm in identity.arms
                ],
                "sizes": dict(sizes),
            }
        )
        return
    tried = [arm for arm in identity.arms if trials[arm.name]]
    OUT.print(plain(study.question))
    OUT.print(f"{identity.trials} trials of {len(tried)} arms, in seeded random order:")
    for arm in tried:
        OUT.print(f"  [bold]{arm.name}[/]: {plain(arm.why)}")
    if others := [name for name, count in trials.items() if not count]:
        OUT.print(f"Without a trial in this size: {', '.join(others)}.")
    OUT.print(escape(diff.to_text()))
    if len(sizes) > 1:
        OUT.print(f"Trials by size: {', '.join(f'{name} {count}' for name, count in sizes.items())}.")


def show_outcome(study: Study[object], summary: RunSummary, page: Path, *, as_json: bool) -> None:
    """The results; a run with trials left ends with a sentence and exit code 1."""
    if as_json:
        print_json(facts(summary, page))
    else:
        show_result(study, summary.folder, page)
    if summary.unfinished:
        ERR.print(
            f"[bold red]error:[/] {summary.unfinished} of {summary.planned} trials failed for the machinery's sake in "
            "every attempt and are in no number; run the same command again to try them."
        )
        raise typer.Exit(1)


def show_result(study: Study[object], folder: Path, page: Path) -> None:
    """The conclusion and the first table, and where the page is."""
    from experiments.framework.records import read_records

    records = [record for record in read_records(folder, with_exchanges=False) if record.scored]
    analysis = study.analyse(records)
    for table in analysis.tables[:2]:
        show_table(table, OUT)
    OUT.print(f"[bold]{plain(analysis.conclusion)}[/]")
    OUT.print(f"report: {page}", markup=False)


def facts(summary: RunSummary, page: Path) -> dict[str, JsonValue]:
    """What a script wants to know of a run."""
    return {
        "folder": str(summary.folder),
        "planned": summary.planned,
        "complete": summary.complete,
        "failed_attempts": summary.failed_attempts,
        "report": str(page),
    }
