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
WARM_BYTES = LOG_BYTES // 2
"""By then everything that is bounded has filled: the renderer's earlier texts do at 80 MB of this log."""
BOUNDED_BYTES = 160_000_000
"""The renderer's conversations (80 and 60 MB at most) and pieces (4 MB), and the ids that stay out of the file."""


@pytest.mark.full
def test_a_log_of_200_mb_is_linted_in_bounded_memory(tmp_path: Path, models: dict[str, Path]) -> None:
    path = tmp_path / "big.jsonl"
    requests = write_big_log(path, least_bytes=LOG_BYTES)
    process = psutil.Process(os.getpid())
    options = LintOptions(block_size=16)
    before = process.memory_info().rss
    warm = peak = warm_requests = 0
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
                    warm, warm_requests = peak, number + 1
        took = time.perf_counter() - began
        kept = linter.kept()
        report = builder.report(served_name="m", kept=kept)
    grown, later = peak - warm, requests - warm_requests
    print(
        f"\n{report.requests:,} requests, {path.stat().st_size / 1e6:,.0f} MB in {took:,.0f} s: "
        f"{path.stat().st_size / 1e6 / took:,.1f} MB/s, {report.requests / took:,.0f} requests/s; peak "
        f"{peak / 1e6:,.0f} MB from {before / 1e6:,.0f}, {grown / 1e6:,.0f} MB of them over the last {later:,} "
        f"requests; {kept.token_ids:,} distinct ids",
        file=sys.stderr,
    )
    assert report.requests == requests
    assert report.tokens_by_cause[MissCause.CLOCK] > 0
    assert report.cached_tokens + sum(report.tokens_by_cause.values()) == report.prompt_tokens
    # The ids alone have 4 bytes each, three times as many as this; about 1 KB a request is in memory.
    assert 4 * kept.token_ids > 3 * 1_500 * requests
    assert grown < 1_500 * later + 4e6
    assert peak - before < 1_500 * requests + BOUNDED_BYTES
