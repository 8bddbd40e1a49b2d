"""`ctxlab ablate`: one context without each of its layers or kinds, one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.table import Table

from experiments.cli.console import ERR, OUT, print_json
from experiments.cli.counting import ESTIMATE_NOTE, ModelFiles, note_for, renderer_for
from experiments.cli.options import AsJson, PolicyOption
from experiments.cli.untrusted import plain

if TYPE_CHECKING:
    from pydantic import JsonValue

    from serving.assembler import AblateBy, Ablation, ContextManifest


def ablate(
    request: Annotated[Path, typer.Argument(metavar="REQUEST.json", help="An assembly request.")],
    policy: PolicyOption = "default",
    by: Annotated[str, typer.Option("--by", help="What is left out as one: layer or kind.")] = "layer",
    remove_required: Annotated[
        bool, typer.Option("--remove-required", help="Leave required items out too, the history among them.")
    ] = False,
    model: ModelFiles = None,
    as_json: AsJson = False,
) -> None:
    """Show what each layer or kind of a context costs, and what takes its room when it is gone.

    No model is called: whether an answer suffers is for a study to measure. Required items stay, and are counted
    under "kept", unless they are to be removed.

    Example: ctxlab ablate examples/support_agent.json --by kind
    """
    from experiments.cli.assembly_files import read_policy, read_request
    from serving.assembler import HandOff, ablations, assemble

    wanted, chosen, unit = read_request(request), read_policy(policy), _unit(by)
    renderer = renderer_for(note_for(wanted, model), pull=True)
    whole = assemble(wanted, chosen, renderer)
    rows: list[_Row] = []
    for ablation in ablations(wanted, unit, remove_required=remove_required):
        outcome = assemble(ablation.request, chosen, renderer)
        rows.append(_row(ablation, whole.manifest, outcome.manifest, hand_off=isinstance(outcome, HandOff)))
    if as_json:
        used = whole.manifest.budget.used
        document: JsonValue = {
            "by": unit.value,
            "estimate": model is None,
            "tokens": used,
            "hand_off": isinstance(whole, HandOff),
            "ablations": [row.document() for row in rows],
        }
        print_json(document)
        return
    if model is None:
        ERR.print(ESTIMATE_NOTE)
    _show(rows, whole.manifest, unit, hand_off=isinstance(whole, HandOff))


class _Row(NamedTuple):
    name: str
    removed: tuple[str, ...]
    required_kept: tuple[str, ...]
    revived: tuple[str, ...]
    entered: tuple[str, ...]
    """What takes the room, and was not in the whole packet."""
    tokens: int
    change: int
    hand_off: bool

    def document(self) -> dict[str, JsonValue]:
        return {
            "name": self.name,
            "removed": list(self.removed),
            "required_kept": list(self.required_kept),
            "revived": list(self.revived),
            "entered": list(self.entered),
            "tokens": self.tokens,
            "change": self.change,
            "hand_off": self.hand_off,
        }


def _row(ablation: Ablation, whole: ContextManifest, rest: ContextManifest, *, hand_off: bool) -> _Row:
    before = {item.id for item in whole.selected}
    return _Row(
        name=ablation.name,
        removed=ablation.removed,
        required_kept=ablation.required_kept,
        revived=ablation.revived,
        entered=tuple(item.id for item in rest.selected if item.id not in before),
        tokens=rest.budget.used,
        change=rest.budget.used - whole.budget.used,
        hand_off=hand_off,
    )


def _show(rows: list[_Row], whole: ContextManifest, unit: AblateBy, *, hand_off: bool) -> None:
    table = Table(
        f"without {unit.value}",
        "removed",
        "kept",
        "tokens",
        "change",
        "entered",
        box=None,
        header_style="bold",
    )
    for row in rows:
        entered = ", ".join(row.entered) or "–"
        tokens = f"{row.tokens} (hand-off)" if row.hand_off else str(row.tokens)
        counts = (str(len(row.removed)), str(len(row.required_kept)), tokens, f"{row.change:+d}")
        table.add_row(*map(plain, (row.name, *counts, entered)))
    OUT.print(table)
    ending = f", {max(0, whole.budget.used - whole.budget.budget)} too many (hand-off)" if hand_off else ""
    OUT.print(plain(f"whole: {whole.budget.used} tokens of {whole.budget.budget}{ending}"))


def _unit(name: str) -> AblateBy:
    from serving.assembler import AblateBy
    from serving.errors import UsageError

    try:
        return AblateBy(name)
    except ValueError as error:
        known = " or ".join(one.value for one in AblateBy)
        raise UsageError(f"--by: expected {known}, but '{name}' came.") from error
