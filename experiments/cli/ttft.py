"""`ctxlab ttft`: the time to first token of a machine, fitted to a run, and how far it is off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from experiments.cli.console import OUT, ConsoleProgress, print_json
from experiments.cli.options import AsJson
from experiments.cli.untrusted import plain
from serving.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.framework.figures import ScatterFigure
    from serving.explain.ttft import HeldOut, TtftFit, TtftModel, TtftSample

MODEL_FILE = "ttft.json"
"""What `ctxlab lint --ttft` reads."""
FIGURE = "ttft-predicted"


def ttft(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as `ctxlab run` writes it.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help=f"Write {MODEL_FILE} and a figure of predicted against measured here."),
    ] = None,
    least_squares: Annotated[
        bool, typer.Option("--least-squares", help="Fit the mean request instead of the typical one.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit TTFT = a + b·u + c·u·(k + u/2) to a run: u uncached, k cached prompt tokens of each call.

    Prints the coefficients with 95 % intervals over tasks and seeds, and the error on requests that the fit had
    not seen. The model turns tokens that a cache would have kept into milliseconds (ctxlab lint --ttft).

    Example: ctxlab ttft results/prefix-cache/qwen2.5-coder-0.5b-times --out results/ttft/qwen2.5-coder-0.5b
    """
    from serving.explain.ttft import Loss, judge_ttft

    samples = samples_of(folder)
    with ConsoleProgress() as progress:
        progress.begin(f"fit {len(samples)} requests")
        fit = judge_ttft(samples, Loss.SQUARED if least_squares else Loss.ABSOLUTE)
    if out is not None:
        save(fit, out)
    if as_json:
        print_json(fit.model_dump(mode="json", exclude={"held_out"}))
        return
    show(fit)
    if out is not None:
        OUT.print(plain(f"saved in {out}"))


def samples_of(folder: Path) -> tuple[TtftSample, ...]:
    """Every call of a run whose cached tokens and time are known. Raises: UsageError where there is none."""
    from experiments.framework.records import read_records, read_run
    from serving.explain.ttft import TtftSample

    read_run(folder)
    samples = tuple(
        TtftSample(
            cached_tokens=call.cached_tokens,
            uncached_tokens=call.prompt_tokens - call.cached_tokens,
            seconds=call.ttft_s,
            cluster=record.spec.cluster,
        )
        for record in read_records(folder, with_exchanges=False)
        if record.scored
        for call in record.calls
        if call.prompt_tokens is not None and call.cached_tokens is not None and call.ttft_s is not None
    )
    if not samples:
        raise UsageError(f"Expected calls with cached tokens and a time in {folder}, found none.")
    return samples


def load_model(file: Path) -> TtftModel:
    """The model in a file that --out wrote. Raises: UsageError for any other file."""
    from pydantic import ValidationError

    from serving.explain.ttft import TtftFit

    try:
        return TtftFit.model_validate_json(file.read_bytes()).model
    except ValidationError as error:
        raise UsageError(
            f"Expected a model that `ctxlab ttft --out` wrote in {file}, got another file."
        ) from error


def save(fit: TtftFit, folder: Path) -> None:
    """Write the fit, and every held-out request predicted against measured."""
    from experiments.framework.figures import draw
    from experiments.framework.journal import write_whole

    folder.mkdir(parents=True, exist_ok=True)
    kept = fit.model_copy(update={"held_out": ()})
    write_whole(folder / MODEL_FILE, kept.model_dump_json(indent=2).encode() + b"\n")
    draw(figure(fit.held_out, fit.median_error_s), folder)


def figure(predictions: Sequence[HeldOut], median_error_s: float) -> ScatterFigure:
    """Predicted against measured, one point a held-out request."""
    from experiments.framework.figures import ScatterFigure

    return ScatterFigure(
        name=FIGURE,
        title="Time to first token, predicted and measured",
        axis="measured, seconds",
        other_axis="predicted, seconds",
        points=tuple(
            (prediction.sample.seconds, prediction.predicted_s)
            for prediction in predictions
            if prediction.sample.seconds > 0 and prediction.predicted_s > 0
        ),
        caption=f"Every request predicted by a fit that had seen nothing of its task and seed; median absolute "
        f"error {1000 * median_error_s:.0f} ms. Points right of the line: something else kept the machine busy.",
    )


def show(fit: TtftFit) -> None:
    """Coefficients, intervals and errors for a person."""
    table = Table("", "fitted", "95 % interval", box=None, header_style="bold")
    for label, name, unit, scale in (
        ("a request costs", "request_s", "ms", 1e3),
        ("a computed token costs", "token_s", "ms", 1e3),
        ("1,000 tokens attended to by one cost", "pair_s", "ms", 1e6),
    ):
        bounds = None if fit.intervals is None else fit.intervals[name]
        interval = (
            "unknown (one cluster)"
            if bounds is None
            else f"{scale * bounds.low:.3g} to {scale * bounds.high:.3g}"
        )
        table.add_row(label, f"{scale * getattr(fit.model, name):.3g} {unit}", interval)
    OUT.print(table)
    OUT.print(
        f"{fit.samples} requests, {fit.clusters} tasks and seeds. On held-out requests the median absolute error is "
        f"{1000 * fit.median_error_s:.0f} ms, {100 * fit.median_relative_error:.1f} % of the measured time; 9 of 10 "
        f"are within {1000 * fit.p90_error_s:.0f} ms."
    )
