"""The command as a program: with a pipe, with a terminal, and against a served model."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from experiments.cli.chat_session import SavedCall
from tests.support.stub import running_stub

ROOT = Path(__file__).parents[3]


def chat(
    *arguments: str, said: str, folder: Path, cache: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.cli.main", "chat", "--root", str(folder), *arguments],
        input=said,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "120"} | ({} if cache is None else {"CTXLAB_CACHE": str(cache)}),
    )


@pytest.mark.parametrize("persona", ["vllm", "bare"])
def test_a_server_without_files_here_is_talked_to_without_prediction(persona: str, tmp_path: Path) -> None:
    with running_stub(persona) as stub:
        done = chat("--url", stub.base_url, said="Hello\nAgain\n", folder=tmp_path, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Prediction is off: the files of" in done.stderr
    assert done.stdout.count("ok\n— TTFT") == 2
    assert done.stdout.count("predicted off") == 2
    assert "» Again" in done.stdout


def test_a_server_that_names_its_model_by_a_path_is_talked_to_without_prediction(tmp_path: Path) -> None:
    with running_stub("path-named") as stub:
        done = chat("--url", stub.base_url, said="Hello\n", folder=tmp_path, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Prediction is off: the files of ./models/foo are not on this disk" in done.stderr
    assert "predicted off" in done.stdout


def test_a_model_whose_name_is_no_text_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with running_stub("torn-name") as stub:
        done = chat("--url", stub.base_url, said="Hello\n", folder=tmp_path, cache=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: Expected Unicode text in the model's name")
    assert "Traceback" not in done.stderr


def test_a_failed_answer_of_a_pipe_fails_the_command(tmp_path: Path) -> None:
    with running_stub("garbler") as stub:
        done = chat("--url", stub.base_url, said="Hello\n", folder=tmp_path, cache=tmp_path)
    assert done.returncode == 1
    assert "does not list models" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--root", "/no/such/folder"), "existing folder"),
        (("--url", "ftp://x"), "http://"),
        (("--url", "http://[::1"), "http://[::1"),
        (("--url", "http://127.0.0.1:9"), "127.0.0.1:9"),
        (("--save", "/no/such/folder/x.jsonl"), "--save"),
    ],
)
def test_a_wrong_request_gets_one_sentence(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = chat(*arguments, said="", folder=tmp_path, cache=tmp_path)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ")
    assert words in done.stderr


def test_a_switch_that_the_template_may_not_have_is_refused(tmp_path: Path) -> None:
    with running_stub("vllm") as stub:
        done = chat("--url", stub.base_url, "--no-thinking", said="", folder=tmp_path, cache=tmp_path)
    assert done.returncode == 2
    assert "enable_thinking" in done.stderr


class Terminal:
    """The other end of a pseudo-terminal at which the command runs."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._unread = b""

    def wait_for(self, words: str) -> None:
        """Read up to and with `words`; what follows stays for the next time."""
        awaited = words.encode()
        while awaited not in self._unread:
            ready, _, _ = select.select([self._master], [], [], 60)
            assert ready, f"waited for {words!r}, got {self._unread!r}"
            self._unread += os.read(self._master, 4096)
        self._unread = self._unread.partition(awaited)[2]

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())


@contextmanager
def at_a_terminal(url: str, folder: Path) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "experiments.cli.main", "chat", "--url", url, "--root", str(folder)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        cwd=ROOT,
        env=os.environ | {"CTXLAB_CACHE": str(folder), "TERM": "dumb"},
    ) as process:
        os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            process.kill()
            os.close(master)


def test_ctrl_c_stops_the_answer_and_not_the_conversation(tmp_path: Path) -> None:
    with running_stub("endless") as stub, at_a_terminal(stub.base_url, tmp_path) as terminal:
        for _ in range(2):
            terminal.wait_for("» ")
            terminal.type("Hello\n")
            terminal.wait_for("ok")
            terminal.process.send_signal(signal.SIGINT)
            terminal.wait_for("! stopped")
        terminal.wait_for("» ")
        terminal.type("\x04")
        assert terminal.process.wait(30) == 0


def test_sigterm_ends_the_conversation_within_an_answer(tmp_path: Path) -> None:
    with running_stub("endless") as stub, at_a_terminal(stub.base_url, tmp_path) as terminal:
        terminal.wait_for("» ")
        terminal.type("Hello\n")
        terminal.wait_for("ok")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(30) == 128 + signal.SIGTERM


@pytest.mark.live
def test_both_sides_agree_in_a_conversation_with_a_served_model(live_server, tmp_path: Path) -> None:
    saving = tmp_path / "exchanges.jsonl"
    done = chat(
        *("--url", live_server.base_url, "--model", live_server.model, "--max-tokens", "8"),
        *("--show-tokens", "--save", str(saving)),
        said="What is here?\nAnd what else?\n/reset\nWhat is here?\n",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "! " not in done.stdout
    numbers = re.findall(r"prompt (\d+) · cached (\d+) \(server\) · predicted (\d+) · new (\d+)", done.stdout)
    assert len(numbers) == 3
    for prompt, cached, predicted, new in (map(int, row) for row in numbers):
        assert cached == predicted
        assert cached + new == prompt
    assert [int(row[1]) > 0 for row in numbers] == [False, True, False]
    assert "151644'<|im_start|>'" in done.stdout
    saved = [SavedCall.model_validate_json(line) for line in saving.read_text().splitlines()]
    assert [call.predicted_cached_tokens for call in saved] == [int(row[2]) for row in numbers]
