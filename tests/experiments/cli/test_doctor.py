from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from experiments.cli.doctor import doctor_machine
from tests.conftest import LiveServer
from tests.serving.engine.machines import PLAIN_CPU
from tests.support.stub import running_stub


def doctor(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.cli.main", "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def row(table: str, label: str) -> str:
    return next(line for line in table.splitlines() if line.strip().startswith(label))


def test_a_server_that_tells_everything_is_shown_with_its_evidence() -> None:
    with running_stub("vllm") as stub:
        table = doctor(stub.base_url)
    assert "16" in row(table, "block size")
    assert "yes" in row(table, "… exactly as predicted")
    assert "/metrics" in row(table, "KV blocks")


def test_a_server_that_lacks_everything_gives_unknowns_and_reasons_not_zeros() -> None:
    with running_stub("bare") as stub:
        table = doctor(stub.base_url)
    for label in ("engine", "version", "block size", "KV blocks"):
        assert "unknown" in row(table, label)
    assert "HTTP 404" in row(table, "block size")
    assert " no " in row(table, "returns token ids")


def test_a_lie_about_the_block_size_is_shown_by_both_numbers() -> None:
    with running_stub("wrong-block") as stub:
        found = json.loads(doctor(stub.base_url, "--json"))
    assert found["cached_tokens_exact"]["value"] is False
    assert "112 of 113 tokens cached, 96 expected" in found["cached_tokens_exact"]["how"]


def test_this_machine_is_described_with_a_reason_for_every_backend() -> None:
    table = doctor()
    for label in ("processor", "memory", "backend", "why"):
        assert row(table, label).strip() != label


def test_nothing_that_a_server_says_reaches_the_terminal_as_a_command() -> None:
    with running_stub("escaper") as stub:
        table = doctor(stub.base_url)
        found = doctor(stub.base_url, "--json")
    for text in (table, found):
        assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert "\\u001b]0;owned\\u0007" in row(table, "engine")
    assert "\\u009b2J[red]" in row(table, "version")
    assert json.loads(found)["version"]["value"] == "0\x9b2J[red]"


def test_a_remedy_is_shown_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    machine = PLAIN_CPU.model_copy(update={"engines": (), "cpu_name": "[cpu] \x1b[2J"})
    monkeypatch.setattr("serving.engine.inspect_machine", lambda: machine)
    doctor_machine(as_json=False)
    table = capsys.readouterr().out
    assert "ENGINE=cpu make setup" in table
    assert "[cpu] \\u001b[2J" in row(table, "processor")


def test_a_model_whose_name_is_no_text_is_shown_and_asked_nothing() -> None:
    with running_stub("torn-name") as stub:
        table = doctor(stub.base_url)
        found = json.loads(doctor(stub.base_url, "--json"))
    assert "torn\\ud800" in row(table, "models")
    assert found["cached_tokens"]["value"] is None
    assert "UTF-8" in found["cached_tokens"]["how"]


@pytest.mark.live
def test_a_really_served_model_is_known_in_every_fact(live_server: LiveServer) -> None:
    found = json.loads(doctor(live_server.base_url, "--json"))
    assert found["engine"]["value"] == "vllm"
    assert found["block_size"]["value"] == live_server.block_size
    for fact in (
        "cached_tokens",
        "cached_tokens_exact",
        "cache_salt",
        "token_ids",
        "render",
        "render_offsets",
    ):
        assert found[fact]["value"] is True, found[fact]["how"]
    facts = [fact for fact in found.values() if isinstance(fact, dict)]
    assert all(fact["value"] is not None for fact in facts)
