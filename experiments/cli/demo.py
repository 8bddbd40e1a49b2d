"""`ctxlab demo`: the main job on the embedded default model, in a few minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from experiments.cli.console import OUT, ConsoleProgress, print_json
from experiments.cli.serve import describe_plan, ending_politely, launch_options

if TYPE_CHECKING:
    from pydantic import JsonValue

    from experiments.demo import DemoCall

BLOCK_SIZE = 32
DEMO_MODEL = "qwen2.5-coder-0.5b"
"""The demonstration names its model: it must be the same on every machine."""


def demo(
    model: Annotated[
        str, typer.Option("--model", "-m", help="Another model whose template has tools.")
    ] = DEMO_MODEL,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calls as JSON.")] = False,
) -> None:
    """Serve a small model and show what the prefix cache reuses, call by call.

    One tool-calling conversation of three turns over this project's README, then the same conversation
    again, then with a clock at its head. Everything is ended again.

    Example: ctxlab demo
    """
    from experiments.demo import Demo
    from serving.client import Client
    from serving.launch import launch, plan_launch

    with ending_politely(), ConsoleProgress() as progress:
        options = launch_options(model=model, block_size=BLOCK_SIZE, max_model_len=4096, kv_cache_gib=1)
        plan = plan_launch(options, progress=progress)
        describe_plan(plan, progress)
        with launch(plan, progress=progress) as engine, Client(engine.base_url) as client:
            progress.begin("hold the conversation, three times")
            show = (lambda _call: None) if as_json else show_tokens
            calls = Demo(client, plan.folder, BLOCK_SIZE, show).run()
            progress.begin("end the engine")
    if as_json:
        print_json([call_facts(call) for call in calls])
        return
    OUT.print(calls_table(calls))
    OUT.print(verdict(calls))


def show_tokens(call: DemoCall) -> None:
    """The real prompt of the first conversation: ids with their text, head and tail, and the output's ids."""
    if call.group != "append-only":
        return
    head, tail = call.pieces[:14], call.pieces[-10:]
    words = [f"[cyan]{token_id}[/][dim]{escape(repr(piece))}[/]" for token_id, piece in (*head, *tail)]
    words.insert(len(head), f"[dim]… {len(call.pieces) - 24} more …[/]")
    OUT.print(f"[bold]{call.label}[/]: {' '.join(words)}")
    output = call.exchange.output_token_ids or ()
    said = call.exchange.text or " ".join(f"{c.name}({c.arguments})" for c in call.exchange.tool_calls)
    ids = " ".join(map(str, output[:24])) + (" …" if len(output) > 24 else "")
    OUT.print(f"  → {escape(said.strip())}")
    OUT.print(f"  [dim]output ids {ids}[/]")


def call_facts(call: DemoCall) -> dict[str, JsonValue]:
    """The row of one call."""
    usage = call.exchange.usage
    ttft = call.exchange.ttft_s
    return {
        "group": call.group,
        "call": call.label,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "cached_tokens": usage.cached_tokens if usage else None,
        "predicted_cached_tokens": call.prediction.cached_tokens,
        "ttft_ms": None if ttft is None else round(ttft * 1e3),
    }


def calls_table(calls: list[DemoCall]) -> Table:
    """Prompt tokens, cached tokens and TTFT of every call, the prediction beside the server's word."""
    table = Table(box=None, header_style="bold", title=f"blocks of {BLOCK_SIZE} tokens", title_justify="left")
    table.add_column("conversation")
    table.add_column("call")
    for name in ("prompt tokens", "cached (server)", "predicted", "TTFT ms"):
        table.add_column(name, justify="right")
    before = None
    for call in calls:
        group, label, *numbers = call_facts(call).values()
        if group != before:
            table.add_section()
        cells = ["unknown" if number is None else str(number) for number in numbers]
        table.add_row(str(group) if group != before else "", str(label), *cells)
        before = group
    return table


def verdict(calls: list[DemoCall]) -> str:
    """What the numbers above say, computed from them."""
    sums: dict[str, list[int]] = {}
    for call in calls:
        usage = call.exchange.usage
        if usage is None or usage.prompt_tokens is None or usage.cached_tokens is None:
            return "The server did not report every count, so nothing is concluded."
        prompt, cached = sums.setdefault(call.group, [0, 0])
        sums[call.group] = [prompt + usage.prompt_tokens, cached + usage.cached_tokens]
    parts = [
        f"{group}: {cached:,} of {prompt:,} prompt tokens reused ({cached / prompt:.0%})"
        for group, (prompt, cached) in sums.items()
    ]
    return f"All {len(calls)} calls reused exactly what was predicted. " + "; ".join(parts) + "."
