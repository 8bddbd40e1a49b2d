"""One line a request, for a spreadsheet or another program."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from experiments.framework.journal import write_whole
from experiments.framework.records import read_records
from experiments.framework.trials import TrialRecord
from experiments.latency.definitions import NS

COLUMNS: Final = (
    "cell",
    "seed",
    "call",
    "sent_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "ttft_s",
    "tpot_s",
    "latency_s",
    "finish_reason",
)


def export_csv(folder: Path, file: Path) -> int:
    """Write every call of a run's scored trials; gives the number of lines. Seconds; an unknown cell is empty."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(COLUMNS)
    lines = [line for record in read_records(folder) if record.scored for line in _lines(record)]
    writer.writerows(lines)
    write_whole(file, target.getvalue().encode("utf-8", "backslashreplace"))
    return len(lines)


def _lines(record: TrialRecord) -> Iterable[tuple[object, ...]]:
    if not record.exchanges:
        return
    begin = min(exchange.timings.sent_ns for exchange in record.exchanges)
    for number, exchange in enumerate(record.exchanges):
        usage = exchange.usage
        yield (
            record.arm,
            record.seed,
            number,
            (exchange.timings.sent_ns - begin) * NS,
            None if usage is None else usage.prompt_tokens,
            None if usage is None else usage.cached_tokens,
            exchange.output_tokens,
            exchange.ttft_s,
            exchange.tpot_s,
            exchange.latency_s,
            exchange.finish_reason,
        )
