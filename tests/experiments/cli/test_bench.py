from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.errors import InequalityError
from tests.support.command import Run, one_sentence
from tests.support.stub import running_stub

QUICK = ("-c", "1,2", "--prompt", "40", "--output", "3", "-n", "2", "--repeats", "1")


def test_a_served_model_is_measured_exported_and_compared(
    ctxlab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-of-mine")
    with running_stub("completing") as stub:
        asked = (
            "bench",
            "--url",
            stub.base_url,
            *QUICK,
            "--out",
            tmp_path / "a",
            "--api-key-env",
            "MY_KEY",
            "--json",
        )
        done = ctxlab(*asked, "--csv")
        assert done.code == 0, done.err
        assert json.loads(done.out)["complete"] == 3
        assert all(log["headers"]["authorization"] == "Bearer sk-secret-of-mine" for log in stub.all_logs())
        assert len((tmp_path / "a" / "requests.csv").read_text().splitlines()) == 1 + 2 + 4 + 2
        kept = b"".join(file.read_bytes() for file in (tmp_path / "a").rglob("*") if file.is_file())
        assert b"sk-secret" not in kept + done.out.encode() + done.err.encode()
        again = ctxlab(*asked)
        assert again.code == 0 and stub.all_logs() == []  # nothing is measured twice
    compared = ctxlab("bench", "compare", tmp_path / "a", tmp_path / "a", "--json")
    assert compared.code == 0
    assert {row["cell"] for row in json.loads(compared.out)["differences"]} == {
        "c1-p40-o3-h0",
        "c2-p40-o3-h0",
        "again",
    }


def test_a_dry_run_says_how_much_it_would_be_and_leaves_nothing(
    ctxlab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ctxlab("bench", "-c", "1,8", "--hit", "0,100", "--repeats", "2", "--dry-run")
    assert done.code == 0, done.err
    assert "12 trials of 6 arms" in done.out
    assert "16 measured ones" in " ".join(done.out.split())
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_measured_is_refused_in_one_sentence(ctxlab: Run, tmp_path: Path) -> None:
    one_sentence(
        ctxlab("bench", "-c", "0"), "--concurrency takes whole numbers, as 1,4,16, all above 0, got '0'"
    )
    one_sentence(
        ctxlab("bench", "-c", "one", "--url", "http://127.0.0.1:1"), "--concurrency takes whole numbers"
    )
    one_sentence(
        ctxlab("bench", "--files", "x", "--url", "http://127.0.0.1:1"), "--files and --dtype together"
    )
    one_sentence(
        ctxlab("bench", "--url", "http://127.0.0.1:1", "--api-key-env", "NOT_SET_ANYWHERE"),
        "NOT_SET_ANYWHERE",
    )
    one_sentence(ctxlab("bench", "compare", tmp_path, tmp_path), "not a run folder")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-c", ""), "at least one load"),
        (("--prompt", ""), "at least one load"),
        (("--prompt", "1"), "got 1 as prompt tokens"),
        (("--hit", "150"), "got 150 as hit percent"),
        (("-c", "1,1"), "every load once"),
        (("-c", "", "--rate", "1e-300"), "as name"),
        (("--device", "tpu"), "--device takes cpu or cuda"),
        (
            ("--device", "cpu", "--url", "http://example.org"),
            "a --url on this machine, and none such is given",
        ),
        (("--files", "x", "--dtype", "float32"), "Give --device cpu or cuda with --files"),
        (("--dtype", "int8", "--files", "x"), "--dtype takes float32, bfloat16, float16"),
        (("--block-size", "16"), "one at a --url has its own"),
        (("--url", "http://me:secret@127.0.0.1:1"), "without a user or password"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "refused",
)
def test_a_load_that_cannot_be_is_refused_before_anything_starts(
    ctxlab: Run, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    done = ctxlab("bench", "--url", "http://127.0.0.1:1", "--out", tmp_path / "run", *words)
    one_sentence(done, sentence)
    assert done.code == 2 and not (tmp_path / "run").exists()
    assert "secret" not in done.err


@pytest.mark.parametrize("device", [None, "cpu", "cuda"])
def test_the_energy_of_a_local_server_is_only_counted_where_it_is_said_to_compute(
    ctxlab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str | None
) -> None:
    metered: list[str | None] = []

    def counters_of(asked: str | None) -> tuple[()]:
        metered.append(asked)
        return ()

    monkeypatch.setattr("experiments.latency.study.counters_of", counters_of)
    with running_stub("completing") as stub:
        words = [] if device is None else ["--device", device]
        done = ctxlab("bench", "--url", stub.base_url, *QUICK, "-c", "1", "--out", tmp_path / "run", *words)
    assert done.code == 0, done.err
    assert metered == [device, device]  # the cell, and the same again


def test_every_page_of_a_run_names_the_command_that_measures_it_again(
    ctxlab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-of-mine")
    folder = tmp_path / "all" / "a"
    with running_stub("completing") as stub:
        url = ("--url", stub.base_url)
        run = ("bench", *url, *QUICK, "--chat", "--out", folder)
        assert ctxlab(*run, "--api-key-env", "MY_KEY", "--csv", "--json").code == 0
        words = f"bench --url {stub.base_url} --concurrency 1,2 --prompt 40 --output 3 --requests 2 --repeats 1 --chat"
        command = f".venv/bin/ctxlab {words} --out runs/a"
        assert command in (folder / "report.html").read_text()
        assert ctxlab("report", folder).code == 0
        assert command in (folder / "report.html").read_text()
        assert ctxlab("index", folder.parent, "--out", tmp_path / "site").code == 0
        assert command in (tmp_path / "site" / "a" / "report.html").read_text()
        assert b"MY_KEY" not in (folder / "run.json").read_bytes()
        stub.all_logs()
        # The same question in other words goes on in the same folder, where nothing is left to do.
        assert ctxlab("bench", "--chat", *QUICK, *url, "--out", folder).code == 0
        assert stub.all_logs() == []


def test_what_is_not_equal_is_what_the_person_sees_whatever_was_finished_before(
    ctxlab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_stub("completing-liar") as liar:
        done = ctxlab("bench", "--url", liar.base_url, *QUICK, "--out", tmp_path / "none", "--csv")
    assert done.code == 1
    assert "0 % asked: expected 0 to 0" in done.err and "no finished trial" not in done.err
    assert not (tmp_path / "none" / "report.html").exists()

    def verify(*_arguments: object) -> None:
        raise InequalityError("a share", expected="at most 100 %", got="120 %")

    monkeypatch.setattr("experiments.latency.study.LatencyStudy.verify", verify)
    with running_stub("completing") as stub:
        done = ctxlab("bench", "--url", stub.base_url, *QUICK, "--out", tmp_path / "all", "--csv")
    assert done.code == 1 and "a share: expected at most 100 %, got 120 %" in done.err
    assert (tmp_path / "all" / "report.html").exists() and (tmp_path / "all" / "requests.csv").exists()
