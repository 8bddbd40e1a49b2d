"""`ctxlab lint`: what breaks the prefix cache in a log of chat requests, and what to change."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from experiments.cli.console import ERR, OUT, ConsoleProgress, print_json
from experiments.cli.model_files import template_folder
from experiments.cli.options import AsJson
from experiments.cli.untrusted import plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from serving.explain.lint import (
        Group,
        LintedRequest,
        Linter,
        LintOptions,
        LintReport,
        LogReader,
        SkippedLine,
    )
    from serving.explain.lint.builder import Seconds

_PROGRESS_BYTES = 1 << 20
_QUOTED = 60


def lint(
    log: Annotated[Path, typer.Argument(metavar="LOG.jsonl", help="One chat request a line, in order.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help="Whose template and tokenizer: a name or a folder.")
    ],
    block_size: Annotated[
        int,
        typer.Option(
            "--block-size",
            min=1,
            help="Tokens per block of the server: 128 for `ctxlab serve` on a processor.",
        ),
    ] = 16,
    num_blocks: Annotated[
        int | None, typer.Option("--num-blocks", min=2, help="Blocks of the KV cache; endless if not given.")
    ] = None,
    served_name: Annotated[
        str | None,
        typer.Option(
            "--served-name", help="Which `model` of the log is meant; that of its first request if not given."
        ),
    ] = None,
    server_usage: Annotated[
        bool, typer.Option("--server-usage", help="Hold the reported usage against the prediction.")
    ] = False,
    price: Annotated[
        float | None, typer.Option("--price", min=0, help="Price of a million uncached prompt tokens.")
    ] = None,
    cached_price: Annotated[
        float, typer.Option("--cached-price", min=0, help="Price of a million cached prompt tokens.")
    ] = 0.0,
    ttft: Annotated[
        Path | None,
        typer.Option("--ttft", help="A fitted machine (ctxlab ttft RUN --out DIR): DIR/ttft.json."),
    ] = None,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a page.")] = None,
    requests: Annotated[
        Path | None,
        typer.Option("--requests", help="Also write one JSON line a request: tokens by cause, break."),
    ] = None,
    fail_under: Annotated[
        float | None,
        typer.Option("--fail-under", min=0, max=1, help="End with 1 where the cached share is below this."),
    ] = None,
) -> None:
    """Predict, request by request, what a prefix cache reuses of a log, and name what breaks it.

    A line is the body of a chat request, or {"request": …, "response": …} or {"request": …, "usage": …}; what
    `ctxlab chat --save` writes will do. The block size has to be the server's: `ctxlab doctor URL` tells it.
    Requests are taken to run one after another on a server that starts cold. Replies whose ids the log holds
    (vLLM's return_token_ids) count as stored; for others the share is a lower bound, and the report says so.
    Lines that are no requests are reported and left out.

    Examples:

      ctxlab lint examples/support_log.jsonl --model qwen3-nano-shape

      ctxlab lint requests.jsonl --model qwen3-0.6b --block-size 128

      ctxlab lint requests.jsonl -m qwen3-0.6b --server-usage --html lint.html

      ctxlab lint requests.jsonl -m qwen3-0.6b --price 0.15 --fail-under 0.8
    """
    from serving.explain.lint import LintOptions, LogReader

    options = LintOptions(block_size, num_blocks, served_name, server_usage)
    token_price = None if price is None else (price - cached_price) / 1e6
    with LogReader(log) as reader:
        report = run(reader, model, options, token_price=token_price, ttft=ttft, requests=requests)
    if html is not None:
        write_page(report, html)
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        show(report)
        if html is not None:
            OUT.print(plain(f"saved in {html}"))
    share = report.cached_share
    if fail_under is not None and (share is None or share < fail_under):
        ERR.print(f"[bold red]cached share {_percent(share)}, below {fail_under:.1%}[/]")
        raise typer.Exit(1)


def write_page(report: LintReport, path: Path) -> None:
    """Write the page of --html."""
    from experiments.cli.lint_page import render_page
    from experiments.framework.journal import write_whole

    write_whole(path, render_page(report).encode("utf-8"))


def run(
    reader: LogReader,
    model: str,
    options: LintOptions,
    *,
    token_price: float | None,
    ttft: Path | None,
    requests: Path | None,
) -> LintReport:
    """Lint a log, showing how far it is. Raises: UsageError for a log without a single request."""
    from experiments.cli.ttft import load_model
    from serving.errors import UsageError
    from serving.explain.lint import Linter, ReportBuilder

    seconds: Seconds | None = None if ttft is None else load_model(ttft).seconds
    with ConsoleProgress() as progress:
        linter = Linter(reader, template_folder(model, progress), options)
        builder = ReportBuilder(
            str(reader.path),
            options,
            price=token_price,
            seconds=seconds,
            template_clock=linter.reads_clock,
        )
        progress.begin(f"lint {reader.path.name}", total=reader.size, unit="bytes")
        began = time.monotonic()
        for item in _written(_shown(linter, progress), requests):
            builder.add(item)
        took = max(time.monotonic() - began, 1e-9)
        report = builder.report(served_name=linter.served_name, kept=linter.kept())
        progress.note(
            f"{report.requests:,} requests, {reader.size / 1e6:,.1f} MB: {report.requests / took:,.0f} requests and "
            f"{reader.size / 1e6 / took:,.1f} MB a second; {report.kept_token_ids:,} distinct "
            f"token ids ({4 * report.kept_token_ids / 1e6:,.1f} MB)"
        )
    if not report.requests:
        first = (
            f"line {report.skipped[0].line}: {report.skipped[0].reason}" if report.skipped else "it is empty."
        )
        raise UsageError(
            f"Expected chat requests in {reader.path}, found none ({first}) Give one JSON object a line."
        )
    return report


def _shown(linter: Linter, progress: ConsoleProgress) -> Iterator[LintedRequest | SkippedLine]:
    told = 0
    for item in linter.requests():
        if linter.bytes_read - told >= _PROGRESS_BYTES:
            progress.advance(linter.bytes_read - told)
            told = linter.bytes_read
        yield item


def _written(
    items: Iterator[LintedRequest | SkippedLine], path: Path | None
) -> Iterator[LintedRequest | SkippedLine]:
    if path is None:
        yield from items
        return
    with path.open("w", encoding="utf-8") as file:
        for item in items:
            _write(item, file)
            yield item


def _write(item: LintedRequest | SkippedLine, file: TextIO) -> None:
    from serving.explain.lint import request_line

    file.write(request_line(item) + "\n")


def show(report: LintReport) -> None:
    """The report for a person: the verdict, what broke, what the server says, what could not be read."""
    OUT.print(plain(headline(report)), soft_wrap=True)
    if report.groups:
        OUT.print()
        OUT.print(_groups(report))
        for group in report.groups:
            _example(group)
    OUT.print()
    OUT.print(_causes(report))
    if report.usage:
        OUT.print()
        table = Table("reported usage", "requests", "first lines", "", box=None, header_style="bold")
        for usage in report.usage:
            table.add_row(
                usage.problem.value, f"{usage.requests:,}", _lines(usage.lines), plain(usage.sentence)
            )
        OUT.print(table)
    for note in report.notes:
        OUT.print(f"\n[yellow]{note.notice.value}[/]: {plain(note.sentence)}", soft_wrap=True)
    if report.skipped_lines:
        OUT.print(f"\n[yellow]left out[/], no chat requests: {report.skipped_lines:,} of the log's lines")
        for line in report.skipped:
            OUT.print(plain(f"  line {line.line}: {line.reason}"), soft_wrap=True)


def headline(report: LintReport) -> str:
    """The verdict in two or three sentences."""
    name = f" to {report.served_name!r}" if report.served_name else ""
    pool = "an endless cache" if report.num_blocks is None else f"{report.num_blocks:,} blocks"
    parts = [
        f"{report.requests:,} requests{name}, {report.prompt_tokens:,} prompt tokens, in blocks of "
        f"{report.block_size} ({pool}): {_percent(report.cached_share)} cached"
        + (
            f", up to {report.possible_tokens / report.prompt_tokens:.1%}."
            if report.possible_tokens > report.cached_tokens
            else "."
        )
    ]
    if report.reported_tokens is not None:
        parts.append(f"The server reports {report.reported_tokens / report.prompt_tokens:.1%}.")
    if report.first_break is None:
        parts.append("No avoidable cause took any.")
    else:
        first = report.first_break
        parts.append(
            f"{report.lost_tokens:,} tokens ({report.lost_tokens / report.prompt_tokens:.1%}) were lost to avoidable "
            f"causes{_price(report.lost_money, report.lost_seconds)}, first in line {first.lines[0]}: "
            f"{first.cause.value}."
        )
    return " ".join(parts)


def _groups(report: LintReport) -> Table:
    money = any(group.lost_money is not None for group in report.groups)
    timed = any(group.lost_seconds is not None for group in report.groups)
    table = Table(box=None, header_style="bold")
    for name in ("cause", "where"):
        table.add_column(name)
    for name in ("requests", "tokens lost", *(("price",) if money else ()), *(("seconds",) if timed else ())):
        table.add_column(name, justify="right")
    table.add_column("first lines")
    table.add_column("what would keep the prefix")
    for group in report.groups:
        numbers = [f"{group.requests:,}", f"{group.tokens:,}"]
        numbers += [f"{group.lost_money:,.4f}"] if money and group.lost_money is not None else []
        numbers += [f"{group.lost_seconds:,.1f}"] if timed and group.lost_seconds is not None else []
        table.add_row(
            f"[bold]{group.cause.value}[/]",
            plain(group.place),
            *numbers,
            _lines(group.lines),
            plain(group.advice),
        )
    return table


def _example(group: Group) -> None:
    example = group.example
    if example.stored is None or example.sent is None:
        return
    OUT.print()
    OUT.print(
        f"[bold]{group.cause.value}[/], line {example.sent.line} against line {example.stored.line}, token "
        f"{example.position}, {plain(example.sent.place)}",
        soft_wrap=True,
    )
    OUT.print(f"  {plain(example.detail)}", soft_wrap=True)
    for label, side in (("stored", example.stored), ("sent", example.sent)):
        OUT.print(
            f"  [dim]{label:>6}[/] {plain(example.lead[-_QUOTED // 2 :])}[bold red]{plain(side.text[:_QUOTED])}[/]",
            soft_wrap=True,
        )


def _causes(report: LintReport) -> Table:
    table = Table("where the prompt tokens went", "tokens", "share", box=None, header_style="bold")
    rows = {"cached": report.cached_tokens, **{cause.value: n for cause, n in report.tokens_by_cause.items()}}
    for name, tokens in rows.items():
        table.add_row(name, f"{tokens:,}", f"{tokens / max(report.prompt_tokens, 1):.1%}")
    return table


def _price(money: float | None, seconds: float | None) -> str:
    parts = [] if money is None else [f"{money:,.4f} at the given price"]
    parts += [] if seconds is None else [f"{seconds:,.1f} s of waiting"]
    return f" ({', '.join(parts)})" if parts else ""


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"


def _lines(lines: tuple[int, ...]) -> str:
    return ", ".join(map(str, lines))
