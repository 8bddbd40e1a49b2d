"""`ctxlab bench`: loads against one or several servers, and two saved runs compared."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, cast
from urllib.parse import urlsplit

import typer

from experiments.cli.console import OUT, ConsoleProgress, print_json
from experiments.cli.options import API_KEY_VARIABLE, AsJson
from experiments.cli.run import DEFAULT_BLOCK_SIZE, DEFAULT_MODEL, reproduce, show_outcome, show_plan
from experiments.cli.signals import ending_politely
from experiments.cli.studies import serve_study
from experiments.cli.tables import show_table
from experiments.cli.untrusted import plain
from serving.errors import InequalityError, UsageError

NumberT = TypeVar("NumberT", int, float)

if TYPE_CHECKING:
    from pydantic import JsonValue, SecretStr

    from experiments.framework import Arm, Study
    from experiments.framework.study import Serve
    from experiments.latency.compare import Comparison
    from serving.progress import Progress

app = typer.Typer()

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
CSV: Final = "requests.csv"
NOT_MEASURED: Final = frozenset({"api_key_env", "out", "csv", "dry_run", "as_json"})
"""Options that change no measurement: whose key is used, and where the results go."""


@app.callback(invoke_without_command=True)
def bench(
    ctx: typer.Context,
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            help="A server that runs already; repeat it for several. Else one is started.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="Catalogue name, hub id or folder; with --url the name served there."
        ),
    ] = None,
    files: Annotated[
        str | None,
        typer.Option("--files", help="With --url: the model whose files give its sizes, for the floors."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="With --url and --files: what that server computes in.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="With a local --url: what computes there, cpu or cuda, for energy and floors."
        ),
    ] = None,
    concurrency: Annotated[
        str, typer.Option("--concurrency", "-c", help="Clients at once, as 1,4,16; none if empty.")
    ] = "1,2,4",
    rate: Annotated[
        str, typer.Option("--rate", help="Poisson arrivals a second, as 0.5,2; none if empty.")
    ] = "",
    prompt: Annotated[str, typer.Option("--prompt", help="Prompt lengths in tokens.")] = "256",
    output: Annotated[str, typer.Option("--output", help="Answer lengths in tokens.")] = "16",
    hit: Annotated[
        str, typer.Option("--hit", help="Percent of each prompt that is cached, as 0,50,100.")
    ] = "0",
    turns: Annotated[
        int, typer.Option("--turns", min=1, help="Above 1: conversations, answers fed back.")
    ] = 1,
    requests: Annotated[int, typer.Option("--requests", "-n", min=1, help="Measured in every repeat.")] = 16,
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats", min=1, help="With new prompts; from 5 on there are intervals, and 10 for `compare`."
        ),
    ] = 5,
    chat: Annotated[
        bool, typer.Option("--chat", help="Send messages, not token ids; lengths are then words.")
    ] = False,
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", help="The environment variable that holds the key.")
    ] = API_KEY_VARIABLE,
    block_size: Annotated[
        int | None,
        typer.Option(
            "--block-size",
            min=1,
            help=f"Tokens per KV-cache block of a server that is started; {DEFAULT_BLOCK_SIZE} if not given.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder; an interrupted one goes on.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help=f"Also write {CSV}, one line a request.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the loads and how many requests they are, and stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a served model under load: time to first token, time per token, throughput.

    The grid is every concurrency and rate with every length of prompt and answer and every cached share, at every
    --url. Each cell is repeated with new prompts, in random order; Ctrl-C keeps what was measured, and the same
    command goes on. Ends with exit code 1 if a result beats what the machine can do: then a ceiling was measured
    wrongly. `ctxlab bench compare` puts two runs side by side.

    Examples:

      ctxlab bench --model qwen3-nano-shape -c 1 --hit 0,100 -n 4 --repeats 2

      ctxlab bench --model qwen2.5-coder-0.5b -c 1,2,4,8 --hit 0,50,100 --dry-run

      ctxlab bench --url http://127.0.0.1:8000 --url http://127.0.0.1:8001 -c "" --rate 0.5,1

      ctxlab bench -c 1 --repeats 10 --out runs/before
    """
    if ctx.invoked_subcommand is not None:
        return
    from experiments.framework import RunOptions, Size, run_study
    from experiments.latency.study import LatencyStudy

    urls = tuple(url or ())
    _check_words(files, dtype, device, urls)
    if urls and block_size is not None:
        raise UsageError("--block-size is for a server that is started here; one at a --url has its own.")
    loads = grid(
        concurrency=_whole_numbers(concurrency, "--concurrency"),
        rates=_numbers(rate, "--rate"),
        prompts=_whole_numbers(prompt, "--prompt"),
        outputs=_whole_numbers(output, "--output"),
        hits=_whole_numbers(hit, "--hit", zero=True),
        turns=turns,
    )
    study = LatencyStudy(
        model or (DEFAULT_MODEL if not urls else "as served"),
        block_size=block_size or DEFAULT_BLOCK_SIZE,
        loads=loads,
        urls=urls,
        sizes=(Size(name="bench", tasks=1, seeds=repeats),),
        requests=requests,
        with_ceilings=not urls or (files is not None and device is not None),
    )
    if dry_run:
        show_plan(cast("Study[object]", study), study.sizes[0].name, (), as_json=as_json)
        if not as_json:
            OUT.print(
                f"Every load is one request to warm up and {requests} measured ones, or two a client if that is more."
            )
        return
    folder = out or Path("runs") / _folder_name(model or DEFAULT_MODEL, urls)
    options = RunOptions(
        arguments={"command": _command(ctx)}, resume_command=shlex.join(["ctxlab", *sys.argv[1:]])
    )
    with ending_politely(), ConsoleProgress() as progress:
        serve = (
            _at_urls(model, _key(api_key_env), files, dtype, device, chat=chat)
            if urls
            else serve_study(study.name, progress)
        )
        plain_study = cast("Study[object]", study)
        try:
            summary = run_study(
                plain_study, study.sizes[0], folder=folder, serve=serve, options=options, progress=progress
            )
        except InequalityError:
            # The page shows what the failure is about; there is none where nothing was finished before.
            with suppress(UsageError):
                _write_results(plain_study, folder, progress, csv=csv)
            raise
        page = _write_results(plain_study, folder, progress, csv=csv)
    show_outcome(plain_study, summary, page, as_json=as_json)


@app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A run folder of `ctxlab bench`.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    as_json: AsJson = False,
) -> None:
    """Put the cells that two runs share side by side, paired by seed: B against A.

    Example: ctxlab bench compare runs/before runs/after
    """
    from experiments.latency.compare import compare_runs

    found = compare_runs(first, second)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        show_comparison(found)


def show_comparison(found: Comparison) -> None:
    """What differs between the runs themselves, the table, and the cells that only one of them has."""
    from experiments.latency.compare import comparison_table

    for path, (one, other) in found.differing.items():
        OUT.print(plain(f"{path}: {one} → {other}"))
    table = comparison_table(found)
    show_table(table, OUT)
    OUT.print(plain(table.note))
    for side, cells in ((found.first, found.only_first), (found.second, found.only_second)):
        if cells:
            OUT.print(plain(f"only in {side}: {', '.join(cells)}"))


def grid(
    *,
    concurrency: Sequence[int],
    rates: Sequence[float],
    prompts: Sequence[int],
    outputs: Sequence[int],
    hits: Sequence[int],
    turns: int,
) -> tuple[Arm, ...]:
    """Every load with every shape, the least loaded cells first."""
    from pydantic import ValidationError

    from experiments.latency import cells
    from experiments.latency.workload import Shape

    try:
        shapes = [
            Shape(prompt_tokens=prompt, output_tokens=output, hit_percent=hit, turns=turns)
            for prompt, output, hit in product(prompts, outputs, hits)
        ]
        return (
            *(cells.closed(clients, shape) for clients, shape in product(concurrency, shapes)),
            *(cells.poisson(rate, shape) for rate, shape in product(rates, shapes)),
        )
    except ValidationError as error:
        first = error.errors()[0]
        what = ".".join(map(str, first["loc"])).replace("_", " ")
        raise UsageError(
            f"Expected lengths that a load can have, got {first['input']!r} as {what}: {first['msg']}."
        ) from error


def _command(ctx: typer.Context) -> list[JsonValue]:
    """What makes the same measurements after `ctxlab`: the options that are not at their defaults, in one order."""
    words: list[JsonValue] = ["bench"]
    for option in ctx.command.params:
        value = ctx.params.get(option.name or "")
        if option.name in NOT_MEASURED or value in (None, (), option.default):
            continue
        for one in value if isinstance(value, list) else [value]:
            words += option.opts[:1] if one is True else [option.opts[0], str(one)]
    return words


def _write_results(study: Study[object], folder: Path, progress: Progress, *, csv: bool) -> Path:
    """The page, whose place it gives, and the lines for other programs; raises as `publish` does."""
    from experiments.framework import publish
    from experiments.framework.records import read_run
    from experiments.latency.export import export_csv

    progress.begin("write the report")
    page = publish(study, folder, reproduce=reproduce(study, read_run(folder), folder))
    if csv:
        export_csv(folder, folder / CSV)
    return page


def _check_words(files: str | None, dtype: str | None, device: str | None, urls: Sequence[str]) -> None:
    """Refuse before anything starts what would fail, or be stored, after the first load."""
    from experiments.latency.floors import BYTES
    from experiments.latency.roofline import SIDE

    here = bool(urls) and all(urlsplit(one).hostname in LOCAL_HOSTS for one in urls)
    if (files is None) != (dtype is None) or (files is not None and not urls):
        raise UsageError(
            "Give --files and --dtype together, and with --url: both are what a floor is made of."
        )
    if dtype is not None and dtype not in BYTES:
        raise UsageError(f"--dtype takes {', '.join(BYTES)}, got {dtype!r}.")
    if device is not None and device not in SIDE:
        raise UsageError(f"--device takes {' or '.join(SIDE)}, got {device!r}.")
    if device is not None and not here:
        raise UsageError("--device says what computes at a --url on this machine, and none such is given.")
    if files is not None and here and device is None:
        raise UsageError(
            f"Give --device {' or '.join(SIDE)} with --files: a floor needs the ceilings of what computes."
        )
    if any("@" in urlsplit(one).netloc for one in urls):
        raise UsageError(
            "Expected a --url without a user or password, for it is stored with the results: put the key into an "
            "environment variable and name that with --api-key-env."
        )


def _at_urls(
    model: str | None,
    key: SecretStr | None,
    files: str | None,
    dtype: str | None,
    device: str | None,
    *,
    chat: bool,
) -> Serve[object]:
    from experiments.latency.target import serve_urls
    from serving.client import Surface
    from serving.models import ensure

    folder = None if files is None else ensure(files)
    surface = Surface.CHAT if chat else None
    serve = serve_urls(folder, model=model, api_key=key, dtype=dtype, device=device, surface=surface)
    return cast("Serve[object]", serve)


def _key(variable: str) -> SecretStr | None:
    """The key in an environment variable; it is never an argument, which other users of the machine can read."""
    from pydantic import SecretStr

    value = os.environ.get(variable)
    if value is None and variable != API_KEY_VARIABLE:
        raise UsageError(f"Expected an API key in the environment variable {variable}, which is not set.")
    return SecretStr(value) if value else None


def _folder_name(model: str, urls: Sequence[str]) -> str:
    named = urlsplit(urls[0]).netloc.rpartition("@")[2] if urls else model
    return f"bench-{named.replace('/', '--').replace(':', '-')}"


def _whole_numbers(text: str, option: str, *, zero: bool = False) -> tuple[int, ...]:
    return _parsed(text, option, int, "whole numbers, as 1,4,16", zero=zero)


def _numbers(text: str, option: str) -> tuple[float, ...]:
    return _parsed(text, option, float, "numbers, as 0.5,2", zero=False)


def _parsed(
    text: str, option: str, read: Callable[[str], NumberT], words: str, *, zero: bool
) -> tuple[NumberT, ...]:
    """The numbers; `zero` says whether one may be 0, which is no load and no length."""
    try:
        values = tuple(read(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise UsageError(f"{option} takes {words}, got {text!r}.") from error
    if any(not 0 <= value < float("inf") or (value == 0 and not zero) for value in values):
        bound = "none below 0" if zero else "all above 0"
        raise UsageError(f"{option} takes {words}, {bound}, got {text!r}.")
    return values
