"""`ctxlab doctor URL --prove`: one page that says whether the lab's numbers can be trusted on an engine."""

from __future__ import annotations

import typer
from rich.table import Table

from experiments.cli.console import OUT, ConsoleProgress, print_json
from experiments.cli.options import api_key
from experiments.cli.untrusted import plain
from serving.probe.prove import ServerProof, Verdict, prove_server

_MARKS = {
    Verdict.PROVEN: "[green]proven[/]",
    Verdict.REFUTED: "[bold red]refuted[/]",
    Verdict.UNPROVEN: "[yellow]not proven[/]",
}


def prove_url(url: str, *, reset: bool, budget_s: float, as_json: bool) -> None:
    """Prove the server at `url` and print the page; ends with 1 where something it tells is not so."""
    with ConsoleProgress() as progress:
        proof = prove_server(url, api_key(), reset=reset, budget_s=budget_s, progress=progress)
    if as_json:
        print_json({**proof.model_dump(mode="json"), "refuted": proof.refuted})
    else:
        show_proof(proof)
    if proof.refuted:
        raise typer.Exit(1)


def show_proof(proof: ServerProof) -> None:
    """Who it is, every claim with its verdict and evidence, and the sentence that sums it up."""
    OUT.print(
        f"[bold]{plain(proof.model or 'no model')}[/] at {plain(proof.base_url)}: "
        f"{plain(proof.engine or 'unknown engine')} {plain(proof.version or '')}, "
        f"{_known(proof.num_blocks)} blocks of {_known(proof.block_size)} tokens"
    )
    table = Table("", "", "evidence, or why not", box=None, header_style="bold")
    table.columns[0].no_wrap = True
    table.columns[1].no_wrap = True
    for finding in proof.findings:
        table.add_row(plain(finding.claim), _MARKS[finding.verdict], plain(finding.sentence))
    OUT.print(table)
    OUT.print(f"\n{summary(proof)}")


def summary(proof: ServerProof) -> str:
    """What this means for a user of the lab, in one sentence."""
    compared = [call for call in proof.compared if call.reported is not None]
    agreeing = sum(call.reported == call.predicted for call in compared)
    if proof.refuted:
        lies = "; ".join(plain(lie.lie) for lie in proof.lies)
        named = f" It reports: {lies}." if lies else ""
        return (
            f"[bold red]Its numbers cannot be trusted:[/] {agreeing} of {len(compared)} as predicted.{named}"
        )
    if not compared:
        return "[yellow]Nothing could be compared:[/] see the reasons above."
    open_claims = sum(finding.verdict is Verdict.UNPROVEN for finding in proof.findings)
    rest = f"; {open_claims} claims stay open, for the reasons above" if open_claims else ""
    return f"[green]Exact here:[/] {agreeing} of {len(compared)} requests reused what was predicted{rest}."


def _known(number: int | None) -> str:
    return "an unknown number of" if number is None else f"{number:,}"
