"""`ctxlab serve`: a served model on this machine, whatever the machine."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.console import ERR, OUT, ConsoleProgress, print_json
from experiments.cli.options import API_KEY_VARIABLE, BlockSizeOption, ModelOption, api_key
from experiments.cli.signals import ending_politely
from experiments.cli.untrusted import plain, untrusted

if TYPE_CHECKING:
    from serving.launch import LaunchOptions, LaunchPlan


def serve(
    model: ModelOption = None,
    backend: Annotated[
        str | None, typer.Option("--backend", help="cuda, metal or cpu. Default: the best one here.")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help=f"Another host than loopback needs a key in {API_KEY_VARIABLE}.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free port.")] = 8000,
    block_size: BlockSizeOption = None,
    kv_cache_gib: Annotated[
        float | None, typer.Option("--kv-cache-gib", min=0.01, help="Memory of the KV cache.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", min=1, help="Tokens of one request, prompt and output.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="auto, float32, bfloat16 or float16. Default: what suits this machine."),
    ] = None,
    kv_events: Annotated[
        bool,
        typer.Option(
            "--kv-events", help="Tell what happens to KV blocks, for `ctxlab watch` on this machine."
        ),
    ] = False,
    engine_flag: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-flag", help="A further vLLM flag, as `--engine-flag=--name=value`; repeatable."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the engine's command and stop.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line when ready (or the dry run as JSON).")
    ] = False,
) -> None:
    """Serve a model on this machine until Ctrl-C.

    Chooses the backend, fetches the model when it is not here, starts the engine on 127.0.0.1 and prints its
    URL. Everything it started ends with it: on Ctrl-C, on a crash, and when this process is killed.

    Examples:

      ctxlab serve

      ctxlab serve --model qwen3-nano-shape --block-size 32 --port 8001

      ctxlab serve --dry-run
    """
    from serving.launch import launch, plan_launch

    options = launch_options(
        model=model,
        backend=backend,
        host=host,
        port=port,
        block_size=block_size,
        kv_cache_gib=kv_cache_gib,
        max_model_len=max_model_len,
        dtype=dtype,
        kv_events=kv_events,
        engine_flags=tuple(engine_flag or ()),
    )
    with ending_politely(), ConsoleProgress() as progress:
        if dry_run and not on_this_disk(model):
            return
        plan = plan_launch(options, progress=progress)
        describe_plan(plan, progress)
        if dry_run:
            print_plan(plan, as_json=as_json)
            return
        engine = launch(plan, progress=progress)
        with engine:
            progress.end()
            if as_json:
                print_json(
                    {
                        "url": engine.base_url,
                        "model": plan.folder.name,
                        "pid": engine.pid,
                        "log": str(engine.log_path),
                        "kv_events": None if plan.config.kv_events is None else plan.config.kv_events.live,
                    },
                    indent=False,  # this command goes on: its reader takes a line, not the end of the pipe
                )
            else:
                OUT.print(
                    f"[bold green]{plain(plan.folder.name)}[/] is served at [bold]{engine.base_url}/v1[/] – "
                    "Ctrl-C ends it"
                )
                if plan.config.kv_events is not None:
                    ERR.print(f"  [dim]its KV blocks: ctxlab watch {engine.base_url}[/]")
                ERR.print(
                    f"  [dim]try: ctxlab doctor {engine.base_url}   log: {plain(str(engine.log_path))}[/]"
                )
            while True:
                engine.check()
                time.sleep(0.5)


def launch_options(
    *,
    model: str | None,
    backend: str | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    block_size: int | None = None,
    kv_cache_gib: float | None = None,
    max_model_len: int | None = None,
    dtype: str | None = None,
    kv_events: bool = False,
    engine_flags: tuple[str, ...] = (),
) -> LaunchOptions:
    """Command-line words as a checked value; `UsageError` names the word that is none of the choices."""
    from pydantic import SecretStr

    from serving.engine import BackendName, Dtype
    from serving.errors import UsageError
    from serving.launch import LaunchOptions

    backends = [name.value for name in BackendName if name is not BackendName.ATTACH]
    if backend is not None and backend not in backends:
        raise UsageError(f"--backend takes {', '.join(backends)}, not {backend!r}.")
    if dtype is not None and dtype not in set(Dtype):
        raise UsageError(f"--dtype takes {', '.join(Dtype)}, not {dtype!r}.")
    if kv_cache_gib is not None and not math.isfinite(kv_cache_gib):
        raise UsageError(f"--kv-cache-gib takes a number of GiB, such as 2, not {kv_cache_gib}.")
    key = api_key()
    return LaunchOptions(
        model=model,
        backend=BackendName(backend) if backend else None,
        host=host,
        port=port,
        block_size=block_size,
        kv_cache_bytes=int(kv_cache_gib * 2**30) if kv_cache_gib else None,
        max_model_len=max_model_len,
        dtype=Dtype(dtype) if dtype else None,
        api_key=SecretStr(key) if key else None,
        kv_events=kv_events,
        extra_flags=engine_flags,
    )


def on_this_disk(model: str | None) -> bool:
    """Whether the model needs no download; says what serving would fetch otherwise."""
    from serving.models import choose, describe, load_catalogue, on_disk

    choice = choose(model)
    if choice.name not in load_catalogue() or on_disk(choice.name) is not None:
        return True
    listing = describe(choice.name)
    size = (listing.download_bytes or 0) / 1e6
    ERR.print(plain(choice.reason))
    ERR.print(
        f"{plain(choice.name)} is not on this disk: `ctxlab serve` would first fetch {size:,.0f} MB "
        f"from {plain(listing.origin)}. The engine's command depends on the files; "
        f"run `ctxlab models pull {plain(choice.name)}` to see it."
    )
    return False


def describe_plan(plan: LaunchPlan, progress: ConsoleProgress) -> None:
    """Say what will be served, where it came from, and every choice made for the user."""
    folder = plan.folder
    progress.note(f"Model: {folder.name}, {folder.license or 'licence unknown'}, from {folder.origin}.")
    progress.note(f"Engine: {plan.backend.reason}")
    for note in plan.command.notes:
        progress.note(note)


def print_plan(plan: LaunchPlan, *, as_json: bool) -> None:
    """The engine's command, secrets masked: as a shell command or as JSON."""
    if as_json:
        print_json(
            {
                "argv": list(plan.command.argv),
                "env": dict(plan.command.env),
                "notes": list(plan.command.notes),
            }
        )
    else:
        OUT.print(untrusted(plan.command.printable()))
