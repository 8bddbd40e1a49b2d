"""`ctxlab`: the entry point, its groups, and what happens to errors."""

from __future__ import annotations

import errno
import io
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from experiments.cli import (
    ablate,
    agent,
    assembly,
    attend,
    bench,
    chat,
    demo,
    doctor,
    incident,
    index,
    lint,
    models,
    run,
    serve,
    template,
    trajectory,
    ttft,
    watch,
)
from experiments.cli.console import ERR
from experiments.cli.untrusted import plain
from serving.errors import LabError

app = typer.Typer(
    name="ctxlab",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its traces print local variables, and a local may be an API key
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A local-model serving lab: what a language model really reads, and what that costs.",
    epilog="Start with [bold]ctxlab doctor[/] (this machine) or [bold]ctxlab serve[/] (a served model).",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ctxlab {version('ctxlab')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """A local-model serving lab: what a language model really reads, and what that costs."""


app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("report")(run.report)
app.command("index")(index.index)
app.command("chat")(chat.chat)
app.command("agent")(agent.agent)
app.command("trajectory")(trajectory.trajectory)
app.command("attend")(attend.attend)
app.command("lint")(lint.lint)
app.add_typer(bench.app, name="bench")
app.command("ttft")(ttft.ttft)
app.command("assemble")(assembly.assemble)
app.command("diff")(assembly.diff)
app.command("replay")(assembly.replay)
app.command("ablate")(ablate.ablate)
app.add_typer(incident.app, name="incident")
app.command("template")(template.template)
app.command("watch")(watch.watch)
app.add_typer(assembly.policy_app, name="policy")
app.add_typer(models.app, name="models")


def main() -> None:
    """Run the command: a `LabError` becomes one sentence and its exit code, a refusal of the system likewise.

    Ctrl-C becomes 130.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without × must not end the work
    try:
        app(standalone_mode=True)
    except LabError as error:
        ERR.print(f"[bold red]error:[/] {plain(str(error))}")
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno == errno.EPIPE:
            sys.exit(1)  # the reader of our output is gone, and with it whoever would read a sentence
        place = f" {error.filename}" if error.filename else ""
        ERR.print(
            f"[bold red]error:[/] The system refused{plain(place)}: {plain(error.strerror or str(error))}."
        )
        sys.exit(1)
    except KeyboardInterrupt:
        ERR.print("interrupted")
        sys.exit(130)


if __name__ == "__main__":
    main()
