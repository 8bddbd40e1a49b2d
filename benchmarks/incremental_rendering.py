"""What a call costs after each turn of a long run: rendering from what is known, and rendering anew.

    python -m benchmarks.incremental_rendering

Both sides assemble the same requests in the same process with the true Qwen3 tokenizer and template; they are
one renderer, made `incremental` and not, and every pair of packets is compared. At each checkpoint a few turns
in a row are measured, one side after the other, the first one in turns; a ratio is taken inside a turn, so
that a busy machine slows both of its sides. Times are CPU time of this process, which has one thread.

Three runs, for what is saved is the tokenizer's work: tool results that fill the window of Qwen3 (40,960 tokens)
in two hundred turns, which the targets are for; some forty lines a tool result, as agents read files; and the tiny
files of the file tour.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks.long_run import long_run
from serving.assembler import AssemblyRequest, ContextPolicy, Packet, RequestContext, Trajectory, assemble
from serving.chat import ChatRenderer
from serving.models import ensure

MODEL = "qwen3-nano-shape"
"""The true tokenizer and template of Qwen3, 4 MB to fetch."""

CHECKPOINTS = (50, 100, 150, 200)
RUNS = {
    "tool results that fill the window": 412,
    "forty lines a tool result": 1_500,
    "the tiny files of the tour": 0,
}
"""Characters of a tool result; 0: what the tools of the file tour gave."""

PARTS = ("text", "origins", "tokens", "spans", "rest")
"""The template; the template with origins; encoding; items of tokens; everything else that `assemble` does."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass
class Clock:
    """CPU milliseconds by part, of one assembly at a time."""

    spent: dict[str, float] = field(default_factory=dict)

    def timed(self, part: str, work: Callable[Given, Result]) -> Callable[Given, Result]:
        """`work`, its time added to `part`."""

        def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            started = time.process_time()
            try:
                return work(*args, **kwargs)
            finally:
                self.spent[part] = self.spent.get(part, 0.0) + (time.process_time() - started) * 1e3

        return run


class Side:
    """A renderer that is watched from outside: its own steps are wrapped, none is changed."""

    def __init__(self, folder: Path, *, incremental: bool) -> None:
        self.clock = Clock()
        self.renderer = ChatRenderer(folder, incremental=incremental)
        steps = {"_text": "text", "_traced_text": "origins", "_encode": "tokens", "render": "render"}
        for name, part in steps.items():
            setattr(self.renderer, name, self.clock.timed(part, getattr(self.renderer, name)))

    def assembled(self, request: AssemblyRequest) -> tuple[Packet, dict[str, float]]:
        """The packet, and milliseconds by part; `all` is their sum."""
        self.clock.spent.clear()
        # Collected between assemblies, not in one: which of the two it would hit is chance.
        gc.collect()
        gc.disable()
        packet = self.clock.timed("all", assemble)(request, ContextPolicy(), self.renderer)
        gc.enable()
        if not isinstance(packet, Packet):
            raise SystemExit(f"the run does not fit: {packet.reason}")
        spent = self.clock.spent
        spans = spent["render"] - spent["text"] - spent["origins"] - spent["tokens"]
        return packet, {**spent, "spans": spans, "rest": spent["all"] - spent["render"]}


@dataclass(eq=False)
class Checkpoint:
    """Milliseconds by part, one entry a measured turn."""

    turns: int
    tokens: int = 0
    known: list[dict[str, float]] = field(default_factory=list)
    anew: list[dict[str, float]] = field(default_factory=list)

    def ratios(self, part: str) -> list[float]:
        """Rendering anew over rendering from what is known, turn by turn."""
        return [anew[part] / known[part] for anew, known in zip(self.anew, self.known, strict=True)]


def measure(folder: Path, run: Trajectory, checkpoints: Sequence[int], samples: int) -> list[Checkpoint]:
    """Replay `run` call by call; the last `samples` calls up to each checkpoint are measured on both sides."""
    incremental, full = Side(folder, incremental=True), Side(folder, incremental=False)
    context = RequestContext(tenant="bench", actor="bench", now="2026-10-02T09:00:00Z")
    turns = [len(run.history(call)) for call in range(run.calls)]
    points: dict[int, Checkpoint] = {}
    for checkpoint in checkpoints:
        upto = [call for call, length in enumerate(turns) if length <= checkpoint][-samples:]
        points |= dict.fromkeys(upto, Checkpoint(checkpoint))
    for call in range(run.calls):
        request = run.request(call, context=context, window=400_000, max_output=256)
        if (point := points.get(call)) is None:
            incremental.assembled(request)
            continue
        sides = [(incremental, point.known), (full, point.anew)]
        packets = []
        for side, times in sides if call % 2 else reversed(sides):
            packet, spent = side.assembled(request)
            packets.append(packet)
            times.append(spent)
        if packets[0] != packets[1]:
            raise SystemExit(f"call {call}: the two sides give other packets, which is a defect")
        point.tokens = packets[0].manifest.prompt_tokens
    return list(dict.fromkeys(points.values()))


def main() -> None:
    """Print the times of every part, then the three ratios that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=9, help="measured calls before each checkpoint")
    samples = parser.parse_args().samples
    folder = ensure(MODEL).path
    load = os.getloadavg()[0]
    print(f"{MODEL}, {os.cpu_count()} processors, load {load:.1f}; CPU ms, median (fastest to slowest)")
    for title, observation in RUNS.items():
        print(f"\n{title}")
        report(measure(folder, long_run(CHECKPOINTS[-1], observation), CHECKPOINTS, samples))


def report(points: Sequence[Checkpoint]) -> None:
    """One table, and the ratios."""
    print(f"{'turns':>5} {'tokens':>7} {'side':>12} " + " ".join(f"{part:>22}" for part in (*PARTS, "all")))
    for point in points:
        for name, times in (("incremental", point.known), ("anew", point.anew)):
            cells = (_spread([spent[part] for spent in times]) for part in (*PARTS, "all"))
            print(
                f"{point.turns:>5} {point.tokens:>7,} {name:>12} " + " ".join(f"{cell:>22}" for cell in cells)
            )
    last, first = points[-1], points[0]
    growth = _median(last.known, "tokens") / _median(first.known, "tokens")
    longer = last.tokens / first.tokens
    print(
        f"encoding, anew / incremental, at {last.turns} turns: {_spread(last.ratios('tokens'))} (target: 10)"
    )
    print(
        f"encoding, incremental, {last.turns} turns / {first.turns}: {growth:.2f}, of {longer:.1f} times the tokens"
    )
    print(f"assemble, anew / incremental, at {last.turns} turns: {_spread(last.ratios('all'))} (target: 4)")


def _median(times: Sequence[dict[str, float]], part: str) -> float:
    return statistics.median(spent[part] for spent in times)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
