"""How long `ctxlab serve` takes to the first answered chat: on an empty model cache, and the second time.

Run with `.venv/bin/python -m benchmarks.serve_to_answer [MODEL]`; uses a model cache of its own and removes it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from serving.client import ChatRequest, Client

MODEL = "qwen2.5-coder-0.5b"


def seconds_to_answer(model: str, cache: Path) -> tuple[float, str]:
    """Seconds from the command to the end of the first answer, and what it said."""
    started = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "experiments.cli.main",
        "serve",
        "--model",
        model,
        "--port",
        "0",
        "--json",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "CTXLAB_CACHE": str(cache)}
    ) as process:
        assert process.stdout is not None
        try:
            facts = json.loads(process.stdout.readline())
            question = {"role": "user", "content": "Write a Python function that adds two numbers."}
            with Client(facts["url"]) as client:
                ask = ChatRequest(model=facts["model"], messages=(question,), max_tokens=24)
                exchange = client.chat(ask).raise_for_error()
            return time.monotonic() - started, exchange.text
        finally:
            process.send_signal(signal.SIGINT)


def main() -> None:
    """Print both times."""
    model = sys.argv[1] if len(sys.argv) > 1 else MODEL
    with tempfile.TemporaryDirectory() as folder:
        for label in ("empty model cache", "second time"):
            seconds, text = seconds_to_answer(model, Path(folder))
            print(f"{label}: {seconds:.0f} s from `ctxlab serve --model {model}` to {text!r}", flush=True)


if __name__ == "__main__":
    main()
