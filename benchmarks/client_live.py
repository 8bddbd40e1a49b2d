"""One live server, the same requests, two clients in turn: is our throughput vLLM's bench's throughput?

    ctxlab serve --model qwen3-nano-shape --port 8000        # in another terminal
    python -m benchmarks.client_live --url http://127.0.0.1:8000 --model qwen3-nano-shape

In each pair both send the same chat requests in the same order – texts, temperature, `ignore_eos`, token ids asked
for, number of tokens – and keep the same number of calls running (`benchmarks/client_peers.py` says how, and what
stays different: how a text is spelt in JSON, and the name of one field). Neither profits from what the other left
in the server's prefix cache: every load of every side has a cache salt of its own, which vLLM's bench takes through
`--extra-body`. No pair repeats a text. They alternate, ours first in every other pair.

Where the definitions differ (`experiments/latency/definitions.py`), both numbers are shown: of the throughput over the
whole run (vLLM's, to the end of the run; ours, to the last token), and for ours also over the time in which the load
was full, which vLLM's bench does not tell; of TTFT and TPOT each side's median over its requests. The target is 3 % on
the throughput over the whole run: reached only where the whole 95 % interval of the ratio lies within it. Every pair
is kept at once in `--out`, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue

from benchmarks.client_kept import kept_in
from benchmarks.client_peers import Reported, known_median
from benchmarks.client_process import TIMEOUT_S, Clock, told_by
from experiments.cli.signals import ending_politely
from experiments.framework.statistics import Interval, bounded
from serving.errors import LabError
from serving.text import server_root

TARGET: Final = 0.03
PAIRS: Final = "pairs.jsonl"
SEEDS_A_PAIR: Final = 4
"""A load takes three: two short ones come before it."""


class Waits(BaseModel):
    """Medians over one side's requests in seconds, by its own definitions; None where it tells none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ttft_s: float | None
    tpot_s: float | None


class Pair(BaseModel):
    """What both said of the same requests; output tokens a second."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    first: str
    ours: float
    ours_full: float | None
    vllm: float
    ours_waits: Waits
    vllm_waits: Waits
    prompt_tokens: int | None
    """Of all requests of one side, and the same of the other."""


def verdict(pairs: Sequence[Pair]) -> tuple[Interval, str, bool]:
    """The ratio ours / vLLM's over pairs, what it means, and whether the target is reached."""
    rows = np.array([(pair.ours, pair.vllm) for pair in pairs])
    ratio = bounded(rows, lambda means: means[:, 0] / means[:, 1])
    words = f"ours / vllm: {ratio.words('.4f')} over {len(pairs)} pairs"
    if ratio.low is None or ratio.high is None:
        return ratio, f"{words}; five pairs or more give an interval to judge by", False
    if ratio.low >= 1 - TARGET and ratio.high <= 1 + TARGET:
        return ratio, f"{words}, within {TARGET:.0%}", True
    if ratio.low > 1 + TARGET or ratio.high < 1 - TARGET:
        return ratio, f"{words}, more than {TARGET:.0%} apart", False
    return ratio, f"{words}: not known yet whether within {TARGET:.0%}; more pairs would tell", False


def waits_in_words(pairs: Sequence[Pair]) -> str:
    """TTFT and TPOT of both sides in milliseconds: the medians over pairs."""
    shown = []
    for measure in Waits.model_fields:
        ours = known_median([getattr(pair.ours_waits, measure) for pair in pairs])
        vllm = known_median([getattr(pair.vllm_waits, measure) for pair in pairs])
        name = measure.removesuffix("_s").upper()
        shown.append(f"{name} ours {_milliseconds(ours)}, vllm {_milliseconds(vllm)} ms")
    return "; ".join(shown)


def main() -> None:
    """Print each pair and the ratio with its interval; exit code 1 where the target is not reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True, help="the name that the server lists")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds that one side may take")
    parser.add_argument("--out", type=Path, help="keep the pairs here, and write live.json")
    options = parser.parse_args()
    try:
        job: dict[str, JsonValue] = {
            "base_url": server_root(options.url),
            "case": options.model,
            "streams": options.streams,
            "requests": options.requests,
            "output_tokens": options.output,
            "prompt_tokens": options.prompt,
            "tokenizer": "",
        }
        with ending_politely():
            pairs = alternate(job, options.pairs, options.out, options.timeout)
    except LabError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(f"Stopped{f'; finished pairs are in {options.out}' if options.out else ''}.")
    ratio, words, reached = verdict(pairs)
    waits = f"medians over {len(pairs)} pairs, each by its own definition: {waits_in_words(pairs)}"
    print(f"{words}\n{waits}")
    if options.out:
        kept = {
            "job": job,
            "pairs": [pair.model_dump() for pair in pairs],
            "ratio": ratio.model_dump(mode="json"),
            "verdict": words,
            "waits": waits,
        }
        (options.out / "live.json").write_text(json.dumps(kept, indent=1) + "\n")
    sys.exit(0 if reached else 1)


def alternate(job: dict[str, JsonValue], count: int, folder: Path | None, timeout_s: float) -> list[Pair]:
    """`count` pairs, those of `folder` among them.

    Raises: LabError where the two sides were not asked or answered the same number of tokens.
    """
    with kept_in(None if folder is None else folder / PAIRS, job) as kept, Clock() as clock:
        pairs = [Pair.model_validate(line) for line in kept.lines]
        for pair in pairs:
            _show(pair)
        for number in range(len(pairs), count):
            pairs.append(_pair(job, number, count, clock, timeout_s))
            kept.add(pairs[-1].model_dump(mode="json"))
            clock.stop()
            _show(pairs[-1])
    return pairs


def _pair(job: dict[str, JsonValue], number: int, count: int, clock: Clock, timeout_s: float) -> Pair:
    order = ("ours", "vllm") if number % 2 == 0 else ("vllm", "ours")
    told: dict[str, Reported] = {}
    for turn, client in enumerate(order, start=1):
        asked = {**job, "seed": SEEDS_A_PAIR * number, "salt": f"{client}-{number}-{secrets.token_hex(8)}"}
        watch = clock.watch(f"pair {number + 1} of {count}, side {turn} of 2: {client}")
        told[client] = told_by(client, asked, watch=watch, timeout_s=timeout_s).reported
    mine, theirs = told["ours"], told["vllm"]
    for counted in ("prompt_tokens", "output_tokens"):
        one, other = getattr(mine, counted), getattr(theirs, counted)
        if one != other:
            raise LabError(
                f"Expected the same {counted} on both sides of pair {number + 1}, got {one} (ours) and {other} (vllm): "
                "the server reads or answers their requests differently."
            )
    return Pair(
        number=number,
        first=order[0],
        ours=mine.output_tokens_per_s,
        ours_full=mine.full_output_tokens_per_s,
        vllm=theirs.output_tokens_per_s,
        ours_waits=_waits(mine),
        vllm_waits=_waits(theirs),
        prompt_tokens=mine.prompt_tokens,
    )


def _waits(reported: Reported) -> Waits:
    calls = reported.calls
    return Waits(
        ttft_s=known_median([call.ttft_s for call in calls]),
        tpot_s=known_median([call.tpot_s for call in calls]),
    )


def _milliseconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{1e3 * seconds:.2f}"


def _show(pair: Pair) -> None:
    full = "unknown" if pair.ours_full is None else f"{pair.ours_full:.2f}"
    print(
        f"pair {pair.number + 1}: ours {pair.ours:.2f} (full load {full}), vllm {pair.vllm:.2f} output tokens/s; "
        f"{waits_in_words([pair])}; {pair.first} first",
        flush=True,
    )


if __name__ == "__main__":
    main()
