"""`ctxlab template`: what a chat template keeps of one turn in the next, without any model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from experiments.cli.console import ERR, OUT, ConsoleProgress, print_json
from experiments.cli.options import AsJson
from experiments.cli.untrusted import plain, untrusted
from serving.errors import UsageError

if TYPE_CHECKING:
    from serving.chat.survey import Probed, TemplateSurvey

COLOURS = {"all": "green", "prompt": "yellow", "part": "red", "refused": "magenta"}


def template(
    which: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL|FILE.jinja]", help="A model's own template, or a template file."),
    ] = None,
    trl: Annotated[
        bool, typer.Option("--trl", help="Survey TRL's collection: published templates beside their twins.")
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="With --trl: write table.md and table.json into this folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prove, without any model, how much of turn n the next turn's prompt still begins with.

    Renders scripted conversations (plain turns, tool loops, parallel tools, thinking on, off, sent back and
    left out, late instructions, a growing tool set) and compares each turn, its output included, with the
    next. With a model the proof is over its tokenizer's ids, with a bare file over text.

    Examples:

      ctxlab template qwen3-nano-shape

      ctxlab template my_template.jinja --json

      ctxlab template --trl --into results/template-survey
    """
    if trl == (which is not None) or (into is not None and not trl):
        raise UsageError("Give a model or a .jinja file, or --trl (with --into FOLDER to write its table).")
    if trl:
        _survey_collection(into, as_json=as_json)
        return
    survey = _survey_one(str(which))
    if as_json:
        print_json(survey.model_dump(mode="json"))
    else:
        show_survey(survey)


def _survey_one(which: str) -> TemplateSurvey:
    from serving.chat.survey import survey_folder, survey_template
    from serving.models import ensure
    from serving.text import require_unicode_text

    if which.endswith(".jinja"):
        path = Path(which)
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"Expected a template in UTF-8 at {path}, got none ({error}).") from error
        return survey_template(path.stem, require_unicode_text(source, str(path)))
    with ConsoleProgress() as progress:
        folder = ensure(which, progress=progress)
    return survey_folder(folder.name, folder.path)


def show_survey(survey: TemplateSurvey) -> None:
    """Every probe with what is kept and where the first difference is, then every habit in a sentence."""
    table = Table(
        "turn n → n + 1", "kept", survey.unit, "where", "was", "is now", box=None, header_style="bold"
    )
    for probe, probed in survey.probes.items():
        table.add_row(plain(probe), *_cells(probed))
    OUT.print(table)
    for finding in survey.findings:
        OUT.print(f"\n[bold]{plain(finding.habit)}[/]: {plain(finding.sentence)}", soft_wrap=True)
    for deviation in survey.deviations:
        probes = ", ".join(deviation.probes)
        words = f" {deviation.refusal}" if deviation.refusal else ""
        OUT.print(
            f"\n[bold]with {plain(deviation.spelling)}[/]: {plain(deviation.kept)} in {plain(probes)}.{plain(words)}",
            soft_wrap=True,
        )


def _cells(probed: Probed) -> list[str]:
    if probed.kept is None:
        return ["–", "", f"[dim]{plain(probed.not_asked or '')}[/]"]
    worst = next(proof for proof in probed.proofs if proof.kept is probed.kept)
    kept = f"[{COLOURS[probed.kept]}]{probed.kept}[/]"
    lengths = "" if worst.shared is None else f"{worst.shared:,} of {worst.stored:,}"
    if worst.difference is None:
        return [kept, lengths, plain(worst.refusal or "")]
    quoted = [plain(repr(text[:36])) for text in (worst.difference.was, worst.difference.now)]
    return [kept, lengths, plain(worst.difference.place), *quoted]


def _survey_collection(into: Path | None, *, as_json: bool) -> None:
    from experiments.cli.template_table import as_document, as_markdown
    from serving.chat.survey import conclusion, pair_twins, survey_template
    from serving.models.template_collection import trl_templates

    with ConsoleProgress() as progress:
        collection = trl_templates(progress=progress)
        progress.begin("render", total=len(collection.sources), unit="templates")
        surveys = []
        for name, source in collection.sources.items():
            surveys.append(survey_template(name, source))
            progress.advance(1)
    pairs = pair_twins(surveys)
    if into is not None:
        into.mkdir(parents=True, exist_ok=True)
        (into / "table.md").write_text(as_markdown(collection, pairs), encoding="utf-8")
        (into / "table.json").write_text(as_document(collection, pairs), encoding="utf-8")
        ERR.print(plain(f"written to {into}"))
    if as_json:
        print_json([survey.model_dump(mode="json") for survey in surveys])
    elif into is None:
        OUT.print(untrusted(as_markdown(collection, pairs)))
    else:
        OUT.print(plain(conclusion(pairs)), soft_wrap=True)
