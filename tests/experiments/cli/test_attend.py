from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.cli.test_run import ctxlab, one_error
from tests.support.tiny_weights import write_tiny_weights

MESSAGES = [{"role": "user", "content": "What is a prefix?"}]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # two threads of a tiny model wait for each other most of the time


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_weights(tmp_path_factory.mktemp("model") / "tiny").path)


def test_a_chat_becomes_a_folder_and_one_json_document(tiny: str, tmp_path: Path) -> None:
    chat, out = tmp_path / "chat.json", tmp_path / "out"
    chat.write_text(json.dumps(MESSAGES), encoding="utf-8")
    done = ctxlab("attend", "-m", tiny, "--messages", str(chat), "--out", str(out), "--json", **ONE_THREAD)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["files"][0] == str(out / "attention.html")
    assert all(Path(file).is_file() for file in found["files"])
    assert "processor time" in done.stderr, "what it takes is said first"
    text = (out / "tables.txt").read_text(encoding="utf-8")
    assert all(table["title"] in text for table in found["tables"])


def test_a_dry_run_says_what_it_takes_and_writes_nothing(tiny: str, tmp_path: Path) -> None:
    done = ctxlab(
        "attend",
        "-m",
        tiny,
        "--prompt",
        "one two three",
        "--out",
        str(tmp_path / "out"),
        "--dry-run",
        **ONE_THREAD,
    )
    assert done.returncode == 0
    assert "TFLOP" in done.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Expected one of --messages, --exchange and --prompt, got none"),
        (("--prompt", "x", "--messages", "y"), "got --messages and --prompt"),
        (("--prompt", "x"), "Expected --model"),
        (("--prompt", "x", "--rows", "most"), "--rows"),
        (("--prompt", "x", "--layers", "5-2"), "--layers"),
        (("--messages", "nowhere.json"), "found none"),
        (("--exchange", "nowhere:1.2"), "not a run folder"),
    ],
)
def test_a_wrong_question_is_refused_in_one_sentence(arguments: tuple[str, ...], problem: str) -> None:
    assert problem in one_error(ctxlab("attend", *arguments))


def test_a_recorded_call_has_its_answer_already(tiny: str) -> None:
    run = Path(__file__).parents[3] / "results" / "prefix-cache" / "qwen2.5-coder-0.5b-times"
    done = ctxlab("attend", "-m", tiny, "--exchange", f"{run}:0.5", "--generate", "4", **ONE_THREAD)
    assert "leave out --generate" in one_error(done)


@pytest.mark.parametrize(("option", "value"), [("--layers", "7"), ("--heads", "0,4"), ("--rows", "900")])
def test_a_layer_head_or_row_that_is_not_there_is_refused(
    tiny: str, tmp_path: Path, option: str, value: str
) -> None:
    out = tmp_path / "out"
    done = ctxlab("attend", "-m", tiny, "--prompt", "one two", option, value, "--out", str(out), **ONE_THREAD)
    assert "they count from 0" in one_error(done)
    assert not out.exists()


def test_help_loads_no_torch() -> None:
    code = (
        "import sys; from experiments.cli.main import app; from typer.testing import CliRunner; "
        "assert CliRunner().invoke(app, ['attend', '--help']).exit_code == 0; "
        "print([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_ctrl_c_in_a_capture_leaves_nothing_behind(tiny: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "experiments.cli.main", "attend", "-m", tiny, "--out", str(out)]
    command += ["--prompt", "word " * 1000, "--rows", "every", "--shuffles", "64"]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "read the tokens" in line:
                running.send_signal(signal.SIGINT)
                break
        rest = running.stderr.read()
    assert running.returncode == 130, rest
    assert "Traceback" not in rest
    assert not out.exists()
