"""`ctxlab index`: every run below a folder as one site to look through, from arm to trial to token."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.console import OUT, ConsoleProgress, print_json
from experiments.cli.options import AsJson, OpenPage
from serving.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.framework.index import Place, RunCard
    from serving.progress import Progress

PAGE = "index.html"
TRIALS, FIGURES = "trials", "figures"
LOOSE = frozenset({".html", ".md", ".png", ".json", ".jsonl", ".txt"})
"""What is linked of results that are no run: something that a browser shows."""


def index(
    folder: Annotated[Path, typer.Argument(help="Where run folders lie, at any depth.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="The folder of pages to write; replaced as a whole.")] = Path(
        "site"
    ),
    trials: Annotated[
        int, typer.Option(min=0, help="Trials of every arm that can be opened step by step.")
    ] = 1,
    as_json: AsJson = False,
    open_page: OpenPage = False,
) -> None:
    """Write one page over all runs below a folder, with a report for each, and trials step by step.

    Everything is computed anew from the records. The pages ask for nothing outside their folder: it can be copied,
    printed and put on any web server.

    Examples:

      ctxlab index --open

      ctxlab index runs --out runs-site --trials 5
    """
    if not folder.is_dir():
        raise UsageError(f"Expected a folder with runs, but there is no folder {folder}.")
    _refuse_foreign(out)
    with ConsoleProgress() as progress:
        cards = write_site(folder, out, trials=trials, progress=progress)
    page = out / PAGE
    if as_json:
        print_json({"page": str(page), "runs": [card.place.text for card in cards]})
    else:
        OUT.print(f"page: {page}", markup=False)
    if open_page:
        typer.launch(str(page))


def write_site(folder: Path, out: Path, *, trials: int, progress: Progress) -> list[RunCard]:
    """Write all pages beside `out` and put them in its place at once; gives the runs in their order."""
    from experiments.framework.index import render_index
    from experiments.framework.journal import write_whole
    from experiments.framework.records import RUN

    runs = sorted(path.parent for path in folder.rglob(RUN))
    out.parent.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        cards = []
        for run in runs:
            progress.begin(f"{run.relative_to(folder)}")
            cards.append(_write_run(run, run.relative_to(folder), made, trials))
            progress.end()
        loose = _copy_loose(folder, runs, made)
        write_whole(made / PAGE, render_index(cards, loose).encode("utf-8"))
        made.chmod(0o755)
        if out.exists():
            shutil.rmtree(out)
        made.rename(out)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return cards


def _refuse_foreign(out: Path) -> None:
    """A folder that this command did not write is not replaced."""
    if out.is_symlink() or (
        out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / PAGE).exists()))
    ):
        raise UsageError(
            f"{out} was not written by `ctxlab index`, so it is not replaced; give another --out."
        )


def _write_run(run: Path, place: Path, site: Path, trials: int) -> RunCard:
    from experiments.cli.run import opened, reproduce
    from experiments.framework.index import run_card
    from experiments.framework.journal import write_whole
    from experiments.framework.records import read_records
    from experiments.framework.report import REPORT, render_report, report_of

    study, info = opened(run)
    own = site / place
    own.mkdir(parents=True)
    records = tuple(read_records(run, with_exchanges=False))
    pages = _write_trials(run, own, trials, {record.arm for record in records if record.scored})
    report = report_of(
        study,
        run,
        records,
        figures=own / FIGURES,
        reproduce=reproduce(study, info, run),
        up=Path(os.path.relpath(site / PAGE, own)).as_posix(),
        pages=pages,
    )
    write_whole(own / REPORT, render_report(report).encode("utf-8"))
    return run_card(place.as_posix(), (place / REPORT).as_posix(), info, records, report)


def _write_trials(run: Path, own: Path, trials: int, arms: set[str]) -> Mapping[str, str]:
    """The pages of the first trials of every arm, by trial id; no record behind the last of them is unpacked."""
    from experiments.cli.trajectory import trial_page, trial_texts
    from experiments.framework.journal import write_whole
    from experiments.framework.manifests import read_manifests
    from experiments.framework.records import read_records
    from experiments.framework.schedule import trial_id
    from experiments.framework.trajectory import render_trajectory

    waiting = {arm: trials for arm in arms if trials}
    if not waiting:
        return {}
    manifests = {manifest.manifest_id: manifest for manifest in read_manifests(run)}
    show = trial_texts(run)
    pages: dict[str, str] = {}
    for record in read_records(run):
        if not record.scored or not record.exchanges or record.arm not in waiting:
            continue
        waiting[record.arm] -= 1
        name = f"{TRIALS}/{len(pages) + 1:03d}.html"
        (own / TRIALS).mkdir(exist_ok=True)
        page = trial_page(record, manifests).model_copy(update={"up": "../report.html"})
        write_whole(own / name, render_trajectory(page, show).encode("utf-8"))
        pages[trial_id(record.arm, record.spec)] = name
        if not waiting[record.arm]:
            del waiting[record.arm]
        if not waiting:
            break
    return pages


def _copy_loose(folder: Path, runs: list[Path], site: Path) -> list[Place]:
    """Copy results that are no run, so that the site is whole, and give their places."""
    from experiments.framework.index import Place

    places = []
    for file in sorted(folder.rglob("*")):
        inside_run = any(run in file.parents for run in runs)
        if inside_run or file.is_symlink() or not file.is_file() or file.suffix not in LOOSE:
            continue
        place = file.relative_to(folder)
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, site / place)
        places.append(Place(text=place.as_posix(), href=place.as_posix()))
    return places
