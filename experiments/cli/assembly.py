"""`ctxlab assemble`, `diff`, `replay` and `policy`: contexts from files, without a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from experiments.cli.console import ERR, OUT, print_json
from experiments.cli.counting import ESTIMATE_NOTE, ModelFiles, note_for, renderer_for, renderer_here
from experiments.cli.options import AsJson, PolicyOption
from experiments.cli.untrusted import plain, untrusted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from experiments.cli.assembly_files import RendererNote
    from serving.assembler import (
        AssemblyRequest,
        ContextManifest,
        ContextPolicy,
        HandOff,
        Packet,
        SimilarTools,
    )

policy_app = typer.Typer(
    no_args_is_help=True,
    help="List and show policies: the good ways of building a context.",
    epilog="Examples: ctxlab policy list | ctxlab policy show before-task > mine.toml",
)

_MOST_ROWS = 200
"""Of one table; nobody reads more, and a terminal takes minutes for many thousands."""


def assemble(
    request: Annotated[Path, typer.Argument(metavar="REQUEST.json", help="An assembly request.")],
    policy: PolicyOption = "default",
    model: ModelFiles = None,
    window: Annotated[
        int | None, typer.Option("--window", "-w", help="Another window than the request's, in tokens.")
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault", metavar="NAME", help="Sabotage the finished layout; may be given repeatedly."
        ),
    ] = None,
    as_json: AsJson = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--save", help="Keep request, policy, packet and manifest, texts included, in this folder."
        ),
    ] = None,
) -> None:
    """Build one context from a request, and show its layers, its tokens, what stayed out and why.

    No model is called. Ends with 1 where the required items do not fit (a hand-off), with 2 for a bad request.

    Examples:

      ctxlab assemble examples/support_agent.json

      ctxlab assemble examples/support_agent.json --policy before-task --save runs/before-task

      ctxlab assemble examples/j42_export.json --window 1300

      ctxlab assemble examples/support_agent.json --fault clock-in-system-head
    """
    from experiments.cli.assembly_files import faults_for, read_policy, read_request, save, with_window
    from serving.assembler import HandOff
    from serving.assembler import assemble as build

    wanted, chosen = read_request(request), read_policy(policy)
    if window is not None:
        wanted = with_window(wanted, window)
    note = note_for(wanted, model)
    renderer = renderer_for(note, pull=True)
    names = fault or []
    outcome = build(wanted, chosen, renderer, faults_for(names, wanted))
    if folder is not None:
        rendered = (
            None
            if isinstance(outcome, HandOff)
            else renderer.render(outcome.messages, outcome.tools, outcome.spans)
        )
        save(folder, wanted, chosen, note, outcome, rendered, names)
    alike = _alike(wanted, outcome)
    if as_json:
        print_json(_document(outcome, note, alike))
    else:
        if model is None:
            ERR.print(ESTIMATE_NOTE)
        for pair in alike:
            parts = " and ".join(part.value for part in pair.alike)
            ERR.print(
                plain(
                    f"warning: {pair.first} and {pair.second} are nearly the same in {parts}; merge or rename one"
                ),
                soft_wrap=True,
            )
        _show(outcome)
        if folder is not None:
            OUT.print(plain(f"saved in {folder}"))
    if isinstance(outcome, HandOff):
        raise typer.Exit(1)


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A manifest file or a saved folder.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The other one.")],
    as_json: AsJson = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 where there is a difference.")
    ] = False,
) -> None:
    """Show what changed from A to B: rules, evidence, tools, memory, budget, layout, policy, faults.

    Two saved folders are also compared to the first byte and the first token that differ.

    Example: ctxlab diff runs/default runs/before-task
    """
    from experiments.cli.assembly_files import read_saved
    from serving.assembler import diff as compare

    old, new = read_saved(before), read_saved(after)
    rendered = (old.rendered, new.rendered) if old.rendered and new.rendered else None
    found = compare(old.packet or old.manifest, new.packet or new.manifest, rendered=rendered)
    if as_json:
        print_json({"equal": found.is_empty, **found.model_dump(mode="json")})
    else:
        OUT.print(untrusted(found.to_text()), soft_wrap=True)
    if exit_code and not found.is_empty:
        raise typer.Exit(1)


def replay(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that --save wrote.")],
    model: ModelFiles = None,
    as_json: AsJson = False,
) -> None:
    """Build a saved context again: is it exact, partial (what is missing), or historical (what has changed)?

    Nothing is fetched: a model that is not on this disk counts as missing. Ends with 0 for exact, else with 1.

    Example: ctxlab replay runs/default
    """
    from experiments.cli.assembly_files import RendererNote, faults_for, read_saved
    from serving.assembler import Verdict
    from serving.assembler import replay as again
    from serving.errors import UsageError

    if not folder.is_dir():
        raise UsageError(f"Expected a folder that `ctxlab assemble --save` wrote, but {folder} is none.")
    saved = read_saved(folder)
    note = RendererNote(kind="model", model=model) if model else saved.renderer
    found = again(
        saved.manifest,
        request=saved.request,
        policy=saved.policy,
        renderer=renderer_here(note),
        faults=faults_for(saved.faults, saved.request) if saved.request else (),
    )
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        OUT.print(f"[bold]{found.verdict.value}[/]")
        for reason in found.reasons:
            OUT.print(f"  {reason.value}")
        for gone in found.missing:
            OUT.print(plain(f"  missing: {gone.snapshot.value} {gone.name}"))
        for item_id in found.changed_items:
            OUT.print(plain(f"  changed: {item_id}"))
        if found.detail:
            OUT.print(plain(f"  {found.detail}"), soft_wrap=True)
        if found.diff is not None and not found.diff.is_empty:
            OUT.print(untrusted(found.diff.to_text()), soft_wrap=True)
    if found.verdict is not Verdict.EXACT:
        raise typer.Exit(1)


@policy_app.command("list")
def list_policies(as_json: AsJson = False) -> None:
    """Show the named policies, and what each changes against the default.

    Example: ctxlab policy list
    """
    from experiments.cli.assembly_files import policy_files, read_policy
    from serving.assembler import ContextPolicy

    default = ContextPolicy().model_dump(mode="json")
    table = Table("name", "changes", "sha256", box=None, header_style="bold")
    documents: list[JsonValue] = []
    for name in policy_files():
        policy = read_policy(name)
        chosen = policy.model_dump(mode="json")
        changes = {key: chosen[key] for key in chosen if chosen[key] != default[key] and key != "name"}
        documents.append({"name": name, "changes": changes, "sha256": policy.digest()})
        words = ", ".join(f"{key} = {value}" for key, value in changes.items()) or "–"
        table.add_row(*map(plain, (name, words, policy.digest()[:12])))
    if as_json:
        print_json(documents)
        return
    OUT.print(table)


@policy_app.command("show")
def show_policy(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A named policy or a TOML file.")],
    as_json: AsJson = False,
) -> None:
    """Print all choices of a policy as TOML, ready to be changed.

    Example: ctxlab policy show default > mine.toml
    """
    from experiments.cli.assembly_files import read_policy

    policy = read_policy(name)
    if as_json:
        print_json({**policy.model_dump(mode="json"), "sha256": policy.digest()})
        return
    OUT.print(untrusted(_toml(policy).rstrip()), soft_wrap=True)


def _toml(policy: ContextPolicy) -> str:
    """Texts, numbers, one list and tables of these: JSON's spelling of them is TOML's; what is off is absent."""
    choices = policy.model_dump(mode="json")
    tables = {name: value for name, value in choices.items() if isinstance(value, dict)}
    lines = [f"# {name}: off; a table [{name}] switches it on" for name in choices if choices[name] is None]
    lines += _assignments({name: value for name, value in choices.items() if name not in tables})
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_assignments(table)]
    return "\n".join(lines) + "\n"


def _alike(request: AssemblyRequest, outcome: Packet | HandOff) -> tuple[SimilarTools, ...]:
    """Look-alikes among the tools that are offered; others may not even be named."""
    from serving.assembler import ToolContract, similar_tools

    offered = {tool.id for tool in outcome.manifest.tools}
    contracts = (item.payload for item in request.tools if item.id in offered)
    return similar_tools([contract.spec for contract in contracts if isinstance(contract, ToolContract)])


def _assignments(values: Mapping[str, JsonValue]) -> list[str]:
    return [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
        if value is not None
    ]


def _document(
    outcome: Packet | HandOff, note: RendererNote, alike: Sequence[SimilarTools]
) -> dict[str, JsonValue]:
    from serving.assembler import Packet

    ending = "packet" if isinstance(outcome, Packet) else "hand_off"
    return {
        "outcome": ending,
        "estimate": note.kind == "estimate",
        "manifest_id": outcome.manifest.manifest_id,
        "similar_tools": [pair.model_dump(mode="json") for pair in alike],
        ending: outcome.model_dump(mode="json"),
    }


def _show(outcome: Packet | HandOff) -> None:
    from serving.assembler import HandOff

    manifest = outcome.manifest
    items = Table("layer", "item", "kind", "tokens", "why", box=None, header_style="bold")
    for item in manifest.selected[:_MOST_ROWS]:
        why = "required" if item.required else f"utility {item.utility:g}"
        items.add_row(*map(plain, (item.layer.value, item.id, item.kind.value, str(item.tokens), why)))
    OUT.print(items)
    _say_rest(len(manifest.selected))
    layers = ", ".join(f"{layer.value} {tokens}" for layer, tokens in manifest.tokens_by_layer.items())
    OUT.print("")
    OUT.print(plain(f"layers: {layers or 'none'}, framing {manifest.budget.framing}"), soft_wrap=True)
    OUT.print(_budget_line(manifest), soft_wrap=True)
    if manifest.dropped:
        out = Table("stayed out", "kind", "tokens", "why", box=None, header_style="bold")
        for left in manifest.dropped[:_MOST_ROWS]:
            tokens = "unknown" if left.tokens is None else f"≈ {left.tokens}"
            out.add_row(*map(plain, (left.id, left.kind.value, tokens, left.reason.value.replace("_", " "))))
        OUT.print("")
        OUT.print(out)
        _say_rest(len(manifest.dropped))
    for applied in manifest.faults:
        breaks = ", ".join(name.replace("_", " ") for name in applied.breaks) or "nothing"
        OUT.print(plain(f"fault: {applied.name}, breaks {breaks}"), soft_wrap=True)
    for line in _done_to_texts(manifest):
        OUT.print(plain(line), soft_wrap=True)
    for gap in manifest.missing:
        OUT.print(plain(f"missing: {gap.source} ({gap.layer.value}), {gap.reason}"), soft_wrap=True)
    if isinstance(outcome, HandOff):
        largest = ", ".join(f"{item.id} {item.tokens}" for item in outcome.largest)
        OUT.print(
            plain(f"hand-off: {outcome.reason.value}, {outcome.shortfall} tokens short; largest: {largest}"),
            soft_wrap=True,
        )
    OUT.print(plain(f"manifest {manifest.manifest_id}"), soft_wrap=True)


def _say_rest(rows: int) -> None:
    if rows > _MOST_ROWS:
        OUT.print(f"… and {rows - _MOST_ROWS:,} more; --json has all of them")


def _done_to_texts(manifest: ContextManifest) -> list[str]:
    """What stands in the packet in place of what came in."""
    lines: list[str] = []
    if (masking := manifest.masking) is not None:
        lines.append(
            f"masked: {len(masking.masks)} tool results, all results ≈ {masking.tokens_before} → "
            f"{masking.tokens_after} tokens"
        )
        lines += [f"  {mask.owner} ({mask.reason.replace('_', ' ')})" for mask in masking.masks]
    lines += [
        f"compacted: {len(done.covers)} items into {', '.join(done.summaries)} ({done.strategy}), "
        f"{done.tokens_before} → {done.tokens_after} tokens"
        for done in manifest.compactions
    ]
    if (verdict := manifest.compaction) is not None:
        why = (
            f"due, plan {verdict.plan_id[:12]}" if verdict.plan_id else str(verdict.reason).replace("_", " ")
        )
        lines.append(f"compaction: {why}")
    if (bar := manifest.status_bar) is not None:
        lines.append(f"status bar: {bar.item_id} ({bar.mode}) answers {', '.join(bar.answers) or 'nothing'}")
    lines += [
        f"made inert: {mark.mark} in {mark.item_id}, {mark.count} time{'s' * (mark.count != 1)}"
        for mark in manifest.inert_marks
    ]
    if manifest.redaction is not None:
        lines += [
            f"looks sensitive: {found.item_id} holds {', '.join(found.kinds)}"
            for found in manifest.redaction.sensitive
        ]
    return lines


def _budget_line(manifest: ContextManifest) -> str:
    use = manifest.budget
    return (
        f"budget: {use.window} window − {use.max_output} output − {use.overhead} overhead = {use.budget}; "
        f"{use.used} used, {use.unused} unused"
    )
