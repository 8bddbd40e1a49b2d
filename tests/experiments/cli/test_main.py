from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from experiments.cli.main import app

HELP_OF_ALL = """
import contextlib, io, sys
from experiments.cli.main import main
for command in {commands!r}:
    sys.argv = ["ctxlab", *command, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        main()
    assert "Usage:" in shown.getvalue(), command
    heavy = {{"torch", "transformers", "vllm", "numpy", "matplotlib", "openai", "gguf"}} & set(sys.modules)
    assert not heavy, (command, sorted(heavy))
"""


def commands() -> dict[tuple[str, ...], str]:
    """Every command that does something by itself, with its help."""
    found: dict[tuple[str, ...], str] = {}

    def walk(command: TyperGroup | TyperCommand, path: tuple[str, ...]) -> None:
        below = command.commands if isinstance(command, TyperGroup) else {}
        if path and (not below or command.invoke_without_command):
            found[path] = command.help or ""
        for name, one in below.items():
            assert isinstance(one, TyperGroup | TyperCommand)
            walk(one, (*path, name))

    walk(get_command(app), ())
    return found


def ctxlab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "COLUMNS": "120", **environment},
    )


def test_every_command_explains_itself_with_an_example() -> None:
    known = commands()
    assert len(known) > 20
    for path, told in known.items():
        assert f"ctxlab {' '.join(path)}" in told.partition("Example")[2], path


def test_help_imports_no_heavy_library() -> None:
    program = HELP_OF_ALL.format(commands=[[], *map(list, commands())])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["models", "show", "no-such-model"], "no-such-model"),
        (["models", "rm", "no-such-model"], "no-such-model"),
        (["models", "pull", "/no/such/folder"], "/no/such/folder"),
        (["serve", "--dry-run", "--backend", "tpu"], "cuda, metal, cpu, not 'tpu'"),
        (["serve", "--dry-run", "--dtype", "int3"], "int3"),
        (["doctor", "http://127.0.0.1:9"], "127.0.0.1:9"),
        (["doctor", "ftp://127.0.0.1"], "ftp"),
        (["doctor", "http://[::1"], "http://[::1"),
        (["serve", "--dry-run", "--kv-cache-gib", "inf"], "--kv-cache-gib"),
    ],
)
def test_a_wrong_request_gets_one_sentence_and_no_traceback(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    done = ctxlab(*arguments, CTXLAB_CACHE=str(tmp_path))
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("·", "✗"))]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert words in lines[0]
    assert "Traceback" not in done.stderr


def test_an_interrupt_ends_with_the_exit_code_of_a_signal(tmp_path: Path) -> None:
    program = (
        "import experiments.cli.models as m\n"
        "import serving.models\n"
        "def stop(**_): raise KeyboardInterrupt\n"
        "serving.models.list_models = stop\n"
        "import sys; sys.argv = ['ctxlab', 'models', 'list']\n"
        "from experiments.cli.main import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_models_list_prints_json_for_scripts(tmp_path: Path) -> None:
    done = ctxlab("models", "list", "--json", CTXLAB_CACHE=str(tmp_path))
    listed = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert listed["qwen2.5-coder-0.5b"]["license"] == "Apache-2.0"
    assert listed["qwen3-nano-shape"]["weights"] == "dummy"
    assert all(entry["folder"] is None for entry in listed.values())


def test_doctor_tells_which_backend_and_why() -> None:
    found = json.loads(ctxlab("doctor", "--json").stdout)
    assert found["backend"] in ("cpu", "cuda", "metal", None)
    assert found["reason"]
    assert set(found["backends"]) == {"cpu", "cuda", "metal"}


def test_a_dry_run_of_a_model_that_is_not_here_fetches_nothing(tmp_path: Path) -> None:
    done = ctxlab("serve", "--dry-run", "--model", "smollm2-135m", CTXLAB_CACHE=str(tmp_path))
    assert done.returncode == 0
    assert "not on this disk" in done.stderr
    assert not (tmp_path / "models" / "smollm2-135m").exists()
