"""How many megabytes the redactor reads in a second of the processor, of what an agent sends.

    python -m benchmarks.redaction

A clean page costs one search, a page with findings two or three: a later one sees what an earlier one laid open. The
last lines are texts written to be slow; they show what the worst costs, and are shorter. Numbers, not a test.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

from serving.redact import find
from tests.support.benign import log_lines, source_lines
from tests.support.planted import planted


def texts(megabytes: float) -> Iterator[tuple[str, str]]:
    """Names and texts, each of about so many megabytes (of characters)."""
    size = int(megabytes * 1e6)
    yield "logs", _of_size("\n".join(line for line in log_lines(1, 20_000) if not find(line)), size)
    yield "source of the standard library", _of_size("\n".join(source_lines()), size)
    some = "\n".join(line for line in log_lines(2, 5_000) if not find(line))
    yield (
        "logs with a secret every 5,000 lines",
        _of_size(
            "\n".join(f"{some}\n{value.text}" for value in planted(3, 1) if "\n" not in value.text), size
        ),
    )
    yield "secrets and nothing else", _of_size("\n".join(value.text for value in planted(4, 40)), size)
    for shape in ("a", "@", "-----BEGIN ", "4111 ", "token=", "ToKen="):
        yield f"{shape!r} again and again", _of_size(shape, size // 10)


def _of_size(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'text':40}{'MB':>7}{'MB/s':>8}{'spread':>15}{'findings':>10}")
    for name, text in texts(arguments.megabytes):
        speeds, found = [], 0
        for _ in range(arguments.rounds):
            before = time.process_time()
            found = len(find(text))
            speeds.append(len(text) / 1e6 / (time.process_time() - before))
        spread = f"{min(speeds):.2f} to {max(speeds):.2f}"
        print(f"{name:40}{len(text) / 1e6:7.1f}{statistics.median(speeds):8.2f}{spread:>15}{found:10}")


if __name__ == "__main__":
    main()
