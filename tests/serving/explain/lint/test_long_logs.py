"""A log of 200 MB: memory grows by a little a request, and with nothing else."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from serving.explain import MissCause
from serving.explain.lint import Linter, LintOptions, LogReader, ReportBuilder
from tests.support.big_log import write_big_log

LOG_BYTES = 200_000_000
WARM_BYTES = 20_000_000
"""By then the renderer's caches of earlier texts, which are bounded, have filled."""


@pytest.mark.full
def test_a_log_of_200_mb_is_linted_in_bounded_memory(tmp_path: Path, models: dict[str, Path]) -> None:
    path = tmp_path / "big.jsonl"
    requests = write_big_log(path, least_bytes=LOG_BYTES)
    process = psutil.Process(os.getpid())
    options = LintOptions(block_size=16)
    warm = peak = 0
    with LogReader(path) as reader:
        linter = Linter(reader, models["qwen2_5"], options)
        builder = ReportBuilder(path.name, options)
        began = time.perf_counter()
        for number, item in enumerate(linter.requests()):
            builder.add(item)
            if number % 50 == 0:
                rss = process.memory_info().rss
                peak = max(peak, rss)
                if linter.bytes_read < WARM_BYTES:
                    warm = peak
        took = time.perf_counter() - began
        kept = linter.kept()
        report = builder.report(served_name="m", kept=kept)
    grown = peak - warm
    print(
        f"\n{report.requests:,} requests, {path.stat().st_size / 1e6:,.0f} MB in {took:,.0f} s: "
        f"{path.stat().st_size / 1e6 / took:,.1f} MB/s, {report.requests / took:,.0f} requests/s; peak "
        f"{peak / 1e6:,.0f} MB, of which {grown / 1e6:,.0f} MB after the first {WARM_BYTES / 1e6:,.0f} MB of log; "
        f"{kept.token_ids:,} distinct ids",
        file=sys.stderr,
    )
    assert report.requests == requests
    assert report.tokens_by_cause[MissCause.CLOCK] > 0
    assert report.cached_tokens + sum(report.tokens_by_cause.values()) == report.prompt_tokens
    # The ids alone have 4 bytes each, three times as many as this; about 1 KB a request is in memory.
    assert 4 * kept.token_ids > 3 * 1_500 * requests
    assert grown < 1_500 * requests + 16e6
