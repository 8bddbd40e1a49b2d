"""One live server, one workload, two clients in turn: is our throughput vLLM's bench's throughput?

    ctxlab serve --model qwen3-nano-shape --port 8000        # in another terminal
    python -m benchmarks.client_live --url http://127.0.0.1:8000 --model qwen3-nano-shape

Both send chat requests of as many prompt tokens (ours of words that are one token each, vLLM's of random ones),
ask for the same number of output tokens (`ignore_eos`), and keep the same number of calls running; every load has
texts of its own, so that no side meets the other's blocks in the cache. They alternate, ours first in every other
pair. Both numbers are shown under each definition: over the whole run (vLLM's, to the end of the run; ours, to the
last token), and for ours also over the time in which the load was full, which vLLM's bench does not tell. The
target is 3 % on the first.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.client_peers import told_by
from experiments.framework.statistics import bootstrap
from serving.models import ensure


def main() -> None:
    """Print each pair and the ratio with its interval; exit code 1 where it is more than 3 % off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True, help="catalogue name; the server knows it by the same")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write live.json here")
    options = parser.parse_args()
    job = {
        "base_url": options.url,
        "case": options.model,
        "streams": options.streams,
        "requests": options.requests,
        "output_tokens": options.output,
        "prompt_tokens": options.prompt,
        "tokenizer": str(ensure(options.model).path),
        "extra": {"ignore_eos": True},
    }
    rows = []
    for pair in range(options.pairs):
        order = ("ours", "vllm") if pair % 2 == 0 else ("vllm", "ours")
        told = {
            client: _reported(client, {**job, "seed": 8 * pair + 4 * turn})
            for turn, client in enumerate(order)
        }
        mine, theirs = (told[client]["output_tokens_per_s"] for client in ("ours", "vllm"))
        rows.append([mine, theirs])
        full = told["ours"]["full_output_tokens_per_s"]
        print(
            f"pair {pair}: ours {mine:.2f} (full load {full:.2f}), vllm {theirs:.2f} output tokens/s",
            flush=True,
        )
    rng = np.random.default_rng(0)
    ratio = bootstrap(np.array(rows), lambda means: means[:, 0] / means[:, 1], rng)
    print(f"ours / vllm: {ratio.words('.4f')}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        kept = {
            "job": {**job, "tokenizer": options.model},
            "pairs": rows,
            "ratio": ratio.model_dump(mode="json"),
        }
        (options.out / "live.json").write_text(json.dumps(kept, indent=1) + "\n")
    sys.exit(0 if abs(ratio.estimate - 1) <= 0.03 else 1)


def _reported(client: str, job: dict[str, object]) -> dict[str, float]:
    reported: dict[str, float] = told_by(client, job)["reported"]
    return reported


if __name__ == "__main__":
    main()
