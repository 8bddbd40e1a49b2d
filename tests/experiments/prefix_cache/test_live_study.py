from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.framework import publish
from experiments.framework.manifests import read_manifests
from experiments.framework.records import count_attempts, read_records
from experiments.framework.trials import TrialRecord
from experiments.prefix_cache import ARMS, PrefixCacheStudy
from experiments.prefix_cache.arms import FIRST, REASONING
from serving.errors import LabError
from tests.conftest import LiveServer
from tests.support.study_run import MODEL, run_against, run_quick

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def run_folder(live_server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "run"
    summary = run_quick(folder, live_server.base_url, block_size=live_server.block_size)
    assert summary.complete == summary.planned == len(FIRST)
    return folder


@pytest.fixture(scope="module")
def records(run_folder: Path) -> dict[str, TrialRecord]:
    return {record.arm: record for record in read_records(run_folder)}


def test_every_call_reuses_what_was_predicted_and_reads_the_rendered_ids(
    records: dict[str, TrialRecord],
) -> None:
    assert set(records) == set(FIRST)
    for record in records.values():
        assert len(record.calls) == 6
        for call, exchange in zip(record.calls, record.exchanges, strict=True):
            assert call.cached_tokens == call.predicted_tokens
            assert call.cached_tokens is not None
            assert exchange.prompt_token_ids is not None
            assert call.prompt_tokens == len(exchange.prompt_token_ids)
            assert sum(call.causes.values()) == call.prompt_tokens - call.cached_tokens


def test_the_null_rebuild_equals_append_only_call_by_call(records: dict[str, TrialRecord]) -> None:
    null, append = records["null-rebuild"], records["append-only"]
    assert [e.prompt_token_ids for e in null.exchanges] == [e.prompt_token_ids for e in append.exchanges]
    assert [c.cached_tokens for c in null.calls] == [c.cached_tokens for c in append.calls]


def test_append_only_reuses_every_full_block_of_the_call_before(
    records: dict[str, TrialRecord], live_server: LiveServer
) -> None:
    calls = records["append-only"].calls
    size = live_server.block_size
    for before, call in pairwise(calls):
        assert before.prompt_tokens is not None
        assert call.cached_tokens == before.prompt_tokens // size * size


def test_a_clock_at_the_head_reuses_nothing(records: dict[str, TrialRecord]) -> None:
    assert [call.cached_tokens for call in records["clock-system-head"].calls] == [0] * 6


@pytest.mark.parametrize(
    ("arm", "place"),
    [
        ("clock-system-head", "message 0 (system)"),
        ("clock-last-message", "message 1 (user)"),
        ("tools-shuffled", "the tool list"),
        ("sliding-window", "message 1"),
        ("text-transcript", "message 1 (user)"),
    ],
)
def test_the_first_broken_message_is_named(records: dict[str, TrialRecord], arm: str, place: str) -> None:
    broken = [call.first_broken for call in records[arm].calls if call.first_broken]
    assert broken
    assert broken[0].startswith(place)


@pytest.mark.parametrize("arm", ["append-only", "null-rebuild"])
def test_nothing_is_broken_where_each_call_extends_the_last(
    records: dict[str, TrialRecord], arm: str
) -> None:
    assert all(call.first_broken is None for call in records[arm].calls)


def test_the_report_draws_its_sentence_from_the_records(run_folder: Path) -> None:
    page = publish(PrefixCacheStudy(MODEL), run_folder).read_text(encoding="utf-8")
    assert "agree in 42 of 42 calls" in page
    assert "Clock in the system prompt" in page


def test_a_pool_that_cannot_hold_a_trial_is_refused(live_server: LiveServer, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="the pool has 20"):
        run_quick(tmp_path / "run", live_server.base_url, block_size=live_server.block_size, num_blocks=20)


@pytest.mark.full
def test_a_run_killed_at_ten_moments_has_every_trial_once_and_no_warm_leftovers(
    live_server: LiveServer, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "tests.support.study_run"]
    command += [str(folder), live_server.base_url, str(live_server.block_size)]
    moments = random.Random(20)
    kills = 0
    for _ in range(60):
        process = subprocess.Popen(command, cwd=Path(__file__).parents[3], env=dict(os.environ))
        deadline = time.monotonic() + 120
        begun = count_attempts(folder) if folder.exists() else 0
        while process.poll() is None and time.monotonic() < deadline:
            if folder.exists() and count_attempts(folder) > begun:
                time.sleep(moments.uniform(0.0, 1.5))
                break
            time.sleep(0.01)
        if process.poll() is None and kills < 10:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait(300)
        if kills == 10:
            break
    summary = run_quick(folder, live_server.base_url, block_size=live_server.block_size)
    assert summary.complete == summary.planned
    found = list(read_records(folder))
    assert Counter(record.arm for record in found) == Counter(FIRST)
    assert len({record.salt for record in found}) == len(found)
    for record in found:
        assert record.calls[0].cached_tokens == 0
        assert all(call.cached_tokens == call.predicted_tokens for call in record.calls)
    assert kills == 10, f"only {kills} kills hit a running study"


def test_every_call_can_be_traced_to_its_manifest(run_folder: Path, records: dict[str, TrialRecord]) -> None:
    manifests = {manifest.manifest_id: manifest for manifest in read_manifests(run_folder)}
    for record in records.values():
        for call, exchange in zip(record.calls, record.exchanges, strict=True):
            assert exchange.manifest_id is not None
            manifest = manifests[exchange.manifest_id]
            assert manifest.prompt_tokens == call.prompt_tokens
            assert [fault.name for fault in manifest.faults] == record.factors["fault.applied"]


@pytest.mark.full
def test_every_arm_is_reused_as_predicted_by_a_real_server(live_server: LiveServer, tmp_path: Path) -> None:
    study = PrefixCacheStudy(MODEL, block_size=live_server.block_size)
    summary = run_against(live_server.base_url, study, tmp_path / "run", block_size=live_server.block_size)
    found = list(read_records(tmp_path / "run", with_exchanges=False))
    assert {record.arm for record in found} == {arm.name for arm in ARMS} - REASONING
    assert summary.complete == summary.planned == len(found)
    for record in found:
        for call in record.calls:
            assert call.cached_tokens == call.predicted_tokens
            assert sum(call.named.values()) == (call.prompt_tokens or 0) - (call.cached_tokens or 0)
