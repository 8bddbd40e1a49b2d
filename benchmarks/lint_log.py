"""400 conversations of 20 turns through `ctxlab lint` and through PyPI's kvlint, and where the two differ.

    .venv/bin/python -m benchmarks.lint_log --model DIR --kvlint VENV/bin/kvlint

kvlint 0.1.1 lives in an environment of its own (`python -m venv VENV && VENV/bin/pip install kvlint==0.1.1`),
because it brings transformers. Both sides are the commands that a person would type, start-up included, one
after another, in turns; a ratio is taken inside a round, so that a busy machine slows both. Wall-clock time and
processor time are shown, for on a busy machine only the second one means much. Chat of two lengths is measured: one
side encodes every prompt whole, so the ratio grows with how much a prompt repeats.

Who is right is asked of vLLM's own `KVCacheManager`, run in process on the same ids: the second table counts, for
small logs that differ in one respect each, the requests whose cached tokens are another number than the manager's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from serving.chat import ChatRenderer
from serving.explain.lint import LintedRequest, Linter, LintOptions, LogReader
from serving.prefix import PrefixRequest
from tests.support.big_log import words
from tests.support.cache_manager import oracle_maker

BLOCK_SIZE = 16
CONVERSATIONS, TURNS = 400, 20
Body = dict[str, Any]


class Words(NamedTuple):
    """Words of a turn, least and most."""

    question: tuple[int, int]
    reply: tuple[int, int]


LENGTHS = {
    "short turns": Words((10, 40), (30, 80)),
    # 124 and 264 tokens in the mean; the vLLM paper gives 161 and 338 for ShareGPT.
    "turns as long as ShareGPT's": Words((20, 220), (80, 450)),
}


def main() -> None:
    """Print the times, then who agrees with the manager."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a model folder")
    parser.add_argument("--kvlint", type=Path, required=True, help="kvlint's command")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip-times", action="store_true", help="only the table of differences")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not given.skip_times:
            print_times(given.model, given.kvlint, Path(folder), given.rounds)
        print_differences(given.model, given.kvlint, Path(folder))


# --- times ------------------------------------------------------------------------------------------------


def print_times(model: Path, kvlint: Path, folder: Path, rounds: int) -> None:
    """Seconds of each side and the ratio, round by round, for each length of turns."""
    for name, words_of in LENGTHS.items():
        log = folder / "chat.jsonl"
        write(log, plain_chat(CONVERSATIONS, TURNS, words_of))
        print_rounds(name, log, model, kvlint, rounds)


def print_rounds(name: str, log: Path, model: Path, kvlint: Path, rounds: int) -> None:
    """One log through both commands, in turns."""
    commands = {
        "ctxlab": [sys.executable, "-m", "experiments.cli.main", "lint", str(log), "--model", str(model)],
        "kvlint": [str(kvlint), "lint", str(log), "--model", str(model)],
    }
    size = ["--block-size", str(BLOCK_SIZE)]
    print(
        f"{CONVERSATIONS} conversations × {TURNS} turns, {log.stat().st_size / 1e6:.1f} MB, plain chat, {name}"
    )
    print(f"{'round':>5} {'ctxlab s':>9} {'cpu s':>7} {'kvlint s':>9} {'cpu s':>7} {'ratio':>6} {'cpu':>6}")
    ratios: list[tuple[float, float]] = []
    for turn in range(rounds):
        order = list(commands) if turn % 2 == 0 else list(reversed(commands))
        times = {name: timed([*commands[name], *size]) for name in order}
        (ours, our_cpu), (theirs, their_cpu) = times["ctxlab"], times["kvlint"]
        ratios.append((theirs / ours, their_cpu / our_cpu))
        print(
            f"{turn + 1:>5} {ours:>9.1f} {our_cpu:>7.1f} {theirs:>9.1f} {their_cpu:>7.1f} {theirs / ours:>6.1f} "
            f"{their_cpu / our_cpu:>6.1f}",
            flush=True,
        )
    for clock, values in zip(("wall clock", "processor"), zip(*ratios, strict=True), strict=True):
        print(
            f"{clock}: {statistics.median(values):.1f} times as fast ({min(values):.1f} to {max(values):.1f})"
        )


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Wall-clock and processor seconds of a command, its start-up included."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


def plain_chat(
    conversations: int, turns: int, length: Words = LENGTHS["short turns"], seed: int = 0
) -> list[Body]:
    """One request a turn; the conversations take turns, as on a server."""
    rng = random.Random(seed)  # noqa: S311 - made-up text, the same every time
    rules = {"role": "system", "content": words(rng, 120)}
    histories: list[list[Body]] = [[rules] for _ in range(conversations)]
    requests = []
    for _ in range(turns):
        for history in histories:
            history.append({"role": "user", "content": words(rng, rng.randint(*length.question))})
            requests.append({"model": "m", "messages": list(history)})
            history.append({"role": "assistant", "content": words(rng, rng.randint(*length.reply))})
    return requests


# --- differences ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A small log that differs from plain chat in one respect."""

    name: str
    records: list[Body]
    num_blocks: int | None = None


def cases(model: Path) -> list[Case]:
    """Plain chat, then exact multiples of a block, replies in the log, and a pool that evicts."""
    renderer = ChatRenderer(model)
    chat = plain_chat(12, 8, seed=1)
    exact = [
        body for body in chat if len(renderer.render_body(body["messages"], []).token_ids) % BLOCK_SIZE == 0
    ]
    return [
        Case("plain chat", chat),
        Case(
            "the same prompt again, a multiple of the block long", [body for body in exact for _ in range(2)]
        ),
        Case("replies in the log", with_replies(chat)),
        Case("a pool of 120 blocks", chat, num_blocks=120),
    ]


def with_replies(requests: Sequence[Body]) -> list[Body]:
    """The reply of each request, taken from the turn after it."""
    replies = {}
    for body in requests:
        messages = body["messages"]
        for place, message in enumerate(messages):
            if message["role"] == "assistant":
                replies[json.dumps(messages[:place])] = message
    return [
        {**body, "response": {"choices": [{"message": reply, "finish_reason": "stop"}]}}
        if (reply := replies.get(json.dumps(body["messages"])))
        else body
        for body in requests
    ]


def print_differences(model: Path, kvlint: Path, folder: Path) -> None:
    """For each case how many requests each side counts otherwise than the manager."""
    head = "requests that differ from the manager"
    print(f"\n{head:54} {'of':>4} {'ctxlab':>7} {'kvlint':>7}  first: line, manager, ours, theirs")
    for number, case in enumerate(cases(model)):
        log = folder / f"case-{number}.jsonl"
        write(log, case.records)
        ours = our_cached(log, model, case.num_blocks)
        theirs = their_cached(log, model, kvlint, case.num_blocks)
        truth = manager_cached(log, model, case.num_blocks)
        wrong = [line for line, real in enumerate(truth) if real != ours[line] or real != theirs[line]]
        first = f"{wrong[0] + 1}, {truth[wrong[0]]}, {ours[wrong[0]]}, {theirs[wrong[0]]}" if wrong else ""
        counts = [sum(side[line] != real for line, real in enumerate(truth)) for side in (ours, theirs)]
        print(f"{case.name:54} {len(truth):>4} {counts[0]:>7} {counts[1]:>7}  {first}", flush=True)


def our_cached(log: Path, model: Path, num_blocks: int | None) -> list[int]:
    """Cached tokens by `ctxlab lint`."""
    with LogReader(log) as reader:
        items = list(Linter(reader, model, LintOptions(BLOCK_SIZE, num_blocks)).requests())
    assert all(isinstance(item, LintedRequest) for item in items), items
    return [item.miss.cached_tokens for item in items if isinstance(item, LintedRequest)]


def their_cached(log: Path, model: Path, kvlint: Path, num_blocks: int | None) -> list[int]:
    """Cached tokens by kvlint, which does not count the reserved block."""
    out = log.with_suffix(".kvlint.json")
    pool = [] if num_blocks is None else ["--kv-budget-blocks", str(num_blocks - 1)]
    command = [
        kvlint,
        "analyze",
        log,
        "--model",
        model,
        "--engine",
        "vllm",
        "--block-size",
        BLOCK_SIZE,
        *pool,
    ]
    subprocess.run([*map(str, command), "--json", str(out)], check=True, capture_output=True)
    (simulated,) = json.loads(out.read_text())["sims"]
    return [request["cached_tokens"] for request in simulated["per_request"]]


def manager_cached(log: Path, model: Path, num_blocks: int | None) -> list[int]:
    """Cached tokens by vLLM's `KVCacheManager`: the replies are generated where the log holds them."""
    renderer = ChatRenderer(model)
    manager = oracle_maker()(BLOCK_SIZE, 1_000_000 if num_blocks is None else num_blocks)
    cached = []
    for line in log.read_text().splitlines():
        body = json.loads(line)
        prompt = renderer.render_body(body["messages"], []).token_ids
        choices = body.get("response", {}).get("choices", [])
        output = (
            renderer.tokenizer.encode(choices[0]["message"]["content"] + "<|im_end|>").ids
            if choices
            else (0,)
        )
        cached.append(manager.run(PrefixRequest(prompt_ids=prompt, output_ids=output)))
    return cached


def write(path: Path, records: Sequence[Body]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


if __name__ == "__main__":
    main()
