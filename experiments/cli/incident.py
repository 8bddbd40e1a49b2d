"""`ctxlab incident`: from a saved assembly that went wrong to a fixture that a policy must pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from experiments.cli.console import OUT, print_json
from experiments.cli.counting import ModelFiles, renderer_for
from experiments.cli.options import AsJson
from experiments.cli.untrusted import plain

if TYPE_CHECKING:
    from experiments.cli.assembly_files import RendererNote
    from serving.assembler import Expected, IncidentClass, RegressionReport, Renderer

app = typer.Typer(
    no_args_is_help=True,
    help="Turn an incident into a regression, and check policies against it.",
    epilog=(
        "Examples: ctxlab incident build runs/bad --class poisoned_document --item forum-post "
        "--policy mine.toml --out incidents/forum | ctxlab incident check incidents/forum"
    ),
)


@app.command("build")
def build(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `ctxlab assemble --save` kept of the incident.")
    ],
    kind: Annotated[str, typer.Option("--class", help="What went wrong; see above.")],
    item: Annotated[str, typer.Option("--item", help="Id of the item that the incident is about.")],
    out: Annotated[Path, typer.Option("--out", help="A new folder for the regression.")],
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", "-p", help="The policy that cures it, a name or a file; default: the saved one."
        ),
    ] = None,
    corrected: Annotated[
        Path | None,
        typer.Option(
            "--request", help="The request as the repaired intake hands it in, where the cure is a label."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Id of an item that must stay in; can be repeated.")
    ] = None,
    says: Annotated[
        list[str] | None,
        typer.Option("--says", help="Words that must be sent, by an item or a summary; can be repeated."),
    ] = None,
    model: ModelFiles = None,
    as_json: AsJson = False,
) -> None:
    """Make a regression that fails under the saved policy and passes under the new one.

    Classes: wrong_policy, missing_constraint, stale_retrieval, permission_leak, poisoned_document,
    memory_contamination, tool_output_overflow, lossy_compaction.

    Neighbouring cases are made with it: the item of another tenant, a harmless twin, a newer version, … so that
    a rule which blocks or lets in too much fails as well. Ends with 2 where the saved policy passes already or
    the new one fails.

    Example:

      ctxlab incident build runs/bad --class poisoned_document --item forum-post --policy mine.toml --out bad
    """
    from experiments.cli.assembly_files import RendererNote, read_policy, read_request, read_saved
    from experiments.cli.incident_files import save_regression
    from serving.assembler import build_regression
    from serving.errors import UsageError

    classification = _classification(kind)
    saved = read_saved(folder)
    if saved.request is None or saved.policy is None:
        gone = "request.json" if saved.request is None else "policy.json"
        raise UsageError(f"{folder} holds no {gone}, without which the incident cannot be built again.")
    note = RendererNote(kind="model", model=model) if model else saved.renderer
    regression = build_regression(
        manifest=saved.manifest,
        request=saved.request,
        old_policy=saved.policy,
        new_policy=read_policy(policy) if policy is not None else saved.policy,
        renderer=_renderer(note, folder),
        classification=classification,
        critical=item,
        corrected=read_request(corrected) if corrected is not None else None,
        keep=keep or (),
        says=says or (),
    )
    save_regression(out, regression, note or RendererNote(kind="estimate"))
    if as_json:
        print_json(
            {
                "folder": str(out),
                "classification": classification.value,
                "cases": [
                    {"name": case.name, "expectation": case.expectation.model_dump(mode="json")}
                    for case in regression.cases
                ],
            }
        )
        return
    table = Table("case", "about", "expected", box=None, header_style="bold")
    for case in regression.cases:
        words = "; ".join(_words(expected) for expected in case.expectation.items)
        table.add_row(*map(plain, (case.name, case.about, words)))
    OUT.print(table)
    OUT.print(
        plain(
            f"fails under {regression.old_policy.name}, passes under {regression.new_policy.name}; in {out}"
        )
    )


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `incident build` wrote.")],
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", "-p", help="Check this policy, a name or a file; default: the one that cured it."
        ),
    ] = None,
    model: ModelFiles = None,
    as_json: AsJson = False,
) -> None:
    """Run all cases of a regression, and show what is broken.

    Ends with 1 where a case is broken, or where the old policy no longer fails, so that nothing is proven.

    Example: ctxlab incident check incidents/forum --policy before-task
    """
    from experiments.cli.assembly_files import RendererNote, read_policy
    from experiments.cli.incident_files import read_regression
    from serving.assembler import check_regression

    regression, saved = read_regression(folder)
    note = RendererNote(kind="model", model=model) if model else saved
    chosen = read_policy(policy) if policy is not None else None
    report = check_regression(regression, _renderer(note, folder), chosen)
    if as_json:
        print_json({"passed": report.passed, **report.model_dump(mode="json")})
    else:
        _show(report)
    if not report.passed:
        raise typer.Exit(1)


def _show(report: RegressionReport) -> None:
    for case in report.cases:
        OUT.print(plain(f"{'broken' if case.violations else 'passed'}  {case.name}"))
        for violation in case.violations:
            OUT.print(plain(f"        {violation}"), soft_wrap=True)
    if not report.recognised:
        OUT.print("The old policy passes the incident's own case now: the fixture proves nothing any more.")


def _words(expected: Expected) -> str:
    reason = f" ({expected.reason.value})" if expected.reason else ""
    return f"{expected.id} {expected.standing.value}{reason}{' verbatim' if expected.verbatim else ''}"


def _classification(name: str) -> IncidentClass:
    from serving.assembler import IncidentClass
    from serving.errors import UsageError

    try:
        return IncidentClass(name)
    except ValueError as error:
        known = ", ".join(one.value for one in IncidentClass)
        raise UsageError(f"--class: expected one of {known}, but '{name}' came.") from error


def _renderer(note: RendererNote | None, folder: Path) -> Renderer:
    from serving.errors import UsageError

    if note is None:
        raise UsageError(
            f"{folder} does not say how its tokens were counted (no renderer.json); name the --model."
        )
    return renderer_for(note, pull=False)
