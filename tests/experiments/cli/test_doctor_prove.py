from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import LiveServer
from tests.support.stub import running_stub


def prove(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.cli.main", "doctor", *arguments, "--prove"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=dict(os.environ),
    )


def test_an_honest_server_gets_one_page_and_exit_code_0() -> None:
    with running_stub("proven-honest") as stub:
        done = prove(stub.base_url, "--reset")
    assert done.returncode == 0, done.stderr
    assert "400 blocks of 16 tokens" in done.stdout
    assert "Exact here" in done.stdout
    assert len(done.stdout.splitlines()) <= 40
    for claim in ("pool size and eviction", "salts separate", "reset empties the cache"):
        row = next(line for line in done.stdout.splitlines() if line.strip().startswith(claim))
        assert " proven " in row and "not proven" not in row


def test_a_liar_is_called_by_its_lie_and_ends_with_1() -> None:
    with running_stub("proven-doubled") as stub:
        page = prove(stub.base_url)
        found = json.loads(prove(stub.base_url, "--json").stdout)
    assert page.returncode == 1
    assert "cannot be trusted" in page.stdout and "twice the truth" in page.stdout
    assert found["refuted"] is True
    assert [lie["lie"] for lie in found["lies"]] == ["twice the truth"]


def test_proving_needs_a_server() -> None:
    done = prove()
    assert done.returncode == 2
    assert "needs a server" in done.stderr


@pytest.mark.live
def test_a_really_served_model_is_proven_exact(live_server: LiveServer) -> None:
    done = prove(live_server.base_url, "--budget", "0", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    verdicts = {finding["claim"]: finding["verdict"] for finding in found["findings"]}
    left = {claim for claim, verdict in verdicts.items() if verdict != "proven"}
    assert left == {"pool size and eviction", "reset empties the cache"}, found["findings"]
    assert found["lies"] == []
    assert all(call["reported"] == call["predicted"] for call in found["compared"])
