from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli.run import command, reproduce, show_outcome
from experiments.cli.studies import STUDIES, find_study
from experiments.framework import RunOptions, RunSummary
from experiments.framework.provenance import Code, Session
from experiments.framework.records import read_run
from experiments.framework.runner import identify
from tests.experiments.prefix_cache.test_analysis import record


def ctxlab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def one_error(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run folder of the study with one record, as the framework writes it."""
    study = find_study("prefix-cache", model="qwen3-nano-shape", block_size=32)
    identity, diff = identify(study, study.sizes[0], RunOptions())
    folder = tmp_path / "run"
    from experiments.framework.records import RunFolder

    with RunFolder.open(folder, identity, diff) as run:
        run.append(record("append-only", 0, cached=64))
    return folder


def damaged(folder: Path, **base: object) -> Path:
    info = json.loads((folder / "run.json").read_text())
    info["identity"]["base"].update(base)
    (folder / "run.json").write_text(json.dumps(info))
    return folder


def test_a_dry_run_prints_the_question_the_arms_and_the_treatment() -> None:
    done = ctxlab("run", "prefix-cache", "--dry-run")
    assert done.returncode == 0
    for words in (
        "27 trials of 27 arms",
        "fault.applied",
        "harness.rebuild",
        "Trials by size: quick 27, timing ",
    ):
        assert words in done.stdout


def test_a_dry_run_can_be_read_by_a_script_and_counts_arms_without_a_trial_apart() -> None:
    arguments = ("run", "prefix-cache", "--model", "qwen3-nano-shape", "--dry-run")
    told = json.loads(ctxlab(*arguments, "--json").stdout)
    idle = [arm["name"] for arm in told["arms"] if not arm["trials"]]
    assert idle
    assert told["trials"] == sum(arm["trials"] for arm in told["arms"]) == told["sizes"]["quick"]
    shown = ctxlab(*arguments).stdout
    assert f"Without a trial in this size: {', '.join(idle)}." in " ".join(shown.split())
    assert f"{told['trials']} trials of {len(told['arms']) - len(idle)} arms" in shown


def test_a_terminal_without_the_characters_still_gets_the_words() -> None:
    done = ctxlab("run", "prefix-cache", "--dry-run", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "no-such-study"], "there are: prefix-cache"),
        (["run", "prefix-cache", "--dry-run", "--size", "huge"], "no size 'huge'"),
        (["run", "prefix-cache", "--dry-run", "--arms", "null-rebuild,bogus"], "no arm 'bogus'"),
        (["run", "prefix-cache", "--dry-run", "--arms", "append-only"], "without its null arm"),
        (["run", "prefix-cache", "--arms", "bogus"], "no arm 'bogus'"),
        (["report", "/no/such/folder"], "is not a run folder"),
    ],
)
def test_a_wrong_request_is_one_sentence(arguments: list[str], words: str) -> None:
    assert words in one_error(ctxlab(*arguments))


def test_a_mistyped_model_leaves_no_folder_behind(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = ctxlab(
        "run",
        "prefix-cache",
        "--model",
        "qwen3-nano-shap",
        "--out",
        str(out),
        CTXLAB_CACHE=str(tmp_path / "cache"),
    )
    assert "qwen3-nano-shap" in one_error(done)
    assert not out.exists()


def test_a_file_in_the_place_of_the_run_folder_is_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "file"
    out.write_text("")
    sentence = one_error(ctxlab("run", "prefix-cache", "--model", "qwen3-nano-shape", "--out", str(out)))
    assert str(out) in sentence


def test_a_report_is_written_from_the_folder_alone(run_folder: Path) -> None:
    done = ctxlab("report", str(run_folder))
    assert done.returncode == 0, done.stderr
    assert "agree in 1 of 1 calls" in done.stdout
    assert (run_folder / "report.html").is_file()


@pytest.mark.parametrize("base", [{"engine.block_size": None}, {"engine.model": 3}])
def test_a_run_without_its_engine_factors_is_one_sentence(run_folder: Path, base: dict[str, object]) -> None:
    assert "engine.block_size" in one_error(ctxlab("report", str(damaged(run_folder, **base))))


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("violations.jsonl", '{"a": 1}\n', "no violation"),
        ("records.jsonl", '{"a": 1}\n', "not a trial record"),
        ("records.jsonl", "\xff\xfe\n{}\n", "not JSON"),
        ("run.json", "{", "cannot be read"),
        ("run.json", '{"schema_version": 99}', "schema 99"),
    ],
)
def test_a_damaged_run_folder_is_one_sentence(run_folder: Path, file: str, content: str, words: str) -> None:
    (run_folder / file).write_bytes(content.encode("latin-1"))
    assert words in one_error(ctxlab("report", str(run_folder)))


def test_a_record_without_calls_or_of_another_arm_is_no_crash(run_folder: Path) -> None:
    lines = (run_folder / "records.jsonl").read_text().splitlines()
    empty = {**json.loads(lines[0]), "calls": [], "measures": {}}
    (run_folder / "records.jsonl").write_text(json.dumps(empty) + "\n")
    assert ctxlab("report", str(run_folder)).returncode == 0
    (run_folder / "records.jsonl").write_text(json.dumps({**empty, "arm": "other"}) + "\n")
    assert "its arms are append-only" in one_error(ctxlab("report", str(run_folder)))


def test_the_command_to_go_on_holds_what_the_run_is_identified_by() -> None:
    study = find_study("prefix-cache", model="m", block_size=64)
    all_arms, _ = identify(study, study.sizes[0], RunOptions())
    some, _ = identify(study, study.sizes[0], RunOptions(arms=("append-only", "null-rebuild"), seed=3))
    assert "--arms" not in command(study, all_arms, Path("runs/a"))
    again = command(study, some, Path("runs/x"))
    assert "--seed 3 --arms append-only,null-rebuild --out runs/x" in again
    assert "--block-size 64" in again


@pytest.mark.parametrize("dirty", [False, True, None])
def test_a_run_is_made_again_in_another_folder_by_the_code_that_made_it(
    run_folder: Path, dirty: bool | None
) -> None:
    code = Code(revision="f" * 40, dirty=dirty, version="0")
    session = Session(started="", code=code, python="", platform="", machine={})
    made = read_run(run_folder).model_copy(update={"sessions": (session,)})
    study = find_study("prefix-cache", model="qwen3-nano-shape", block_size=32)
    *checkout, _, again = reproduce(study, made, run_folder)
    assert checkout == ([f"git checkout {'f' * 40}"] if dirty is False else [])
    assert again.endswith(f"--out runs/again/prefix-cache/{run_folder.name}")


def test_every_study_is_found_by_its_own_name() -> None:
    for name in STUDIES:
        assert find_study(name, model="m", block_size=32).name == name


def test_a_run_with_trials_left_does_not_end_well(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    study = find_study("prefix-cache", model="m", block_size=32)
    page = run_folder / "report.html"
    with pytest.raises(typer.Exit) as ended:
        show_outcome(
            study, RunSummary(run_folder, planned=7, complete=5, failed_attempts=6), page, as_json=True
        )
    assert ended.value.exit_code == 1
    assert "2 of 7 trials failed" in capsys.readouterr().err
