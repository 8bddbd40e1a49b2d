"""`ctxlab doctor`: what this machine can run, and what a server can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from experiments.cli.console import OUT, ConsoleProgress, print_json
from experiments.cli.options import AsJson, api_key
from experiments.cli.untrusted import plain
from serving.errors import UsageError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from serving.engine import Machine
    from serving.probe.capabilities import Fact, ServerCapabilities


def doctor(
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="A served model, such as http://127.0.0.1:8000.")
    ] = None,
    as_json: AsJson = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Also try to reset the server's prefix cache.")
    ] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Hold what the server tells of its cache against the rule.")
    ] = False,
    budget: Annotated[
        float, typer.Option("--budget", min=0.0, help="With --prove: seconds that filling the pool may take.")
    ] = 60.0,
) -> None:
    """Look at this machine, or at a server: what is known, how it is known, and what is not.

    With a URL, sends a few short prompts to prove whether the server reports cached tokens; the API key is
    read from CTXLAB_API_KEY. With --prove, some 45 salted requests of many shapes are predicted and compared
    with what it reports; ends with 1 where something it tells is not so. The server should be idle.

    Examples:

      ctxlab doctor

      ctxlab doctor http://127.0.0.1:8000 --json

      ctxlab doctor http://127.0.0.1:8000 --prove --reset
    """
    if url is None and prove:
        raise UsageError("--prove needs a server: give its URL, such as http://127.0.0.1:8000.")
    if url is None:
        doctor_machine(as_json=as_json)
    elif prove:
        from experiments.cli.doctor_prove import prove_url

        prove_url(url, reset=reset, budget_s=budget, as_json=as_json)
    else:
        doctor_server(url, reset=reset, as_json=as_json)


def doctor_machine(*, as_json: bool) -> None:
    """Print this machine's facts and which backend would serve here, and why the others would not."""
    from serving.engine import inspect_machine, select_backend
    from serving.engine.backends import BACKENDS
    from serving.errors import LabError

    machine = inspect_machine()
    try:
        choice = select_backend(machine)
        backend, reason = str(choice.name), choice.reason
    except LabError as error:
        backend, reason = None, str(error)
    others = {name: engine.availability(machine) for name, engine in BACKENDS.items() if name != "attach"}
    if as_json:
        facts: dict[str, JsonValue] = {
            "machine": machine.model_dump(mode="json"),
            "backend": backend,
            "reason": reason,
            "backends": {str(name): found.model_dump(mode="json") for name, found in others.items()},
        }
        print_json(facts)
        return
    table = Table(box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in machine_rows(machine).items():
        table.add_row(label, plain(value))
    table.add_section()
    table.add_row("backend", f"[bold]{backend or 'none'}[/]")
    table.add_row("why", plain(reason))
    for name, found in others.items():
        if str(name) != backend:
            table.add_row(str(name), plain(f"{'usable' if found.usable else 'not usable'}: {found.reason}"))
    OUT.print(table)


def machine_rows(machine: Machine) -> dict[str, str]:
    """What decides how fast a model can run here, in words."""
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "asimd", "bf16")
    flags = [name for name in wanted if name in machine.cpu_flags]
    gib = 2**30
    return {
        "system": f"{machine.os} on {machine.arch}",
        "processor": f"{machine.cpu_name}, {len(machine.cores)} usable cores",
        "vector flags": ", ".join(flags) or "none that matter here",
        "memory": f"{machine.memory_available / gib:.1f} GiB free of {machine.memory_total / gib:.1f} GiB",
        "NVIDIA GPU": ", ".join(f"{gpu.name} ({gpu.memory_total / gib:.0f} GiB)" for gpu in machine.gpus)
        or "none found",
        "Metal": "yes" if machine.metal else "no",
        "engines": ", ".join(f"{engine.distribution} {engine.version}" for engine in machine.engines)
        or "none installed",
    }


def doctor_server(url: str, *, reset: bool, as_json: bool) -> None:
    """Print what the server at `url` is and tells, each fact with its evidence."""
    from serving.probe import probe_server

    with ConsoleProgress() as progress:
        progress.begin(f"ask {url} (up to six short prompts)")
        found = probe_server(url, api_key(), reset=reset)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    table = Table("", "found", "how it is known", box=None, header_style="bold")
    for label, fact in server_facts(found):
        table.add_row(label, shown(fact), f"[dim]{plain(fact.how)}[/]")
    OUT.print(table)
    if found.canary:
        calls = Table(
            "canary call", "prompt tokens", "cached tokens", "expected", box=None, header_style="bold"
        )
        for number, call in enumerate(found.canary, 1):
            numbers = (call.prompt_tokens, call.cached_tokens, call.expected_cached_tokens)
            calls.add_row(
                str(number), *("unknown" if number is None else f"{number:,}" for number in numbers)
            )
        OUT.print()
        OUT.print(calls)


def server_facts(found: ServerCapabilities) -> list[tuple[str, Fact[object]]]:
    """Every fact with its label, in reading order."""
    labels = {
        "engine": "engine",
        "version": "version",
        "models": "models",
        "block_size": "block size",
        "num_gpu_blocks": "KV blocks",
        "kv_cache_tokens": "KV cache tokens",
        "cached_tokens": "reports cached tokens",
        "cached_tokens_exact": "… exactly as predicted",
        "cache_salt": "cache salt separates",
        "token_ids": "returns token ids",
        "per_request_metrics": "per-request metrics",
        "render": "renders prompts",
        "render_offsets": "… with token offsets",
        "tokenize": "tokenizes",
        "reset_prefix_cache": "prefix-cache reset",
    }
    return [(label, getattr(found, name)) for name, label in labels.items()]


def shown(fact: Fact[object]) -> str:
    """A fact's value for the table; unknown is said, not left blank."""
    match fact.value:
        case None:
            return "[yellow]unknown[/]"
        case True:
            return "[green]yes[/]"
        case False:
            return "[red]no[/]"
        case tuple() as models:
            return ", ".join(plain(model_words(model)) for model in models) or "none"
        case value:
            return plain(f"{value:,}" if isinstance(value, int) else str(value))


def model_words(model: object) -> str:
    """`name (32,768 tokens)`."""
    name, longest = getattr(model, "id", model), getattr(model, "max_model_len", None)
    return f"{name} ({longest:,} tokens)" if longest else str(name)
