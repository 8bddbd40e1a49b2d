"""Builds `.venv` from nothing: the lab and the engine that fits this machine.

Run by `make setup` with any Python >= 3.11; uses only the standard library. A second run with nothing
changed does nothing. `--lock` resolves the CPU environment anew and rewrites `cpu-linux.txt`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "cpu-linux.txt"
STAMP = ".ctxlab-setup"

UNWANTED = {
    # Their PyPI builds do not match the CPU build of torch, and transformers then cannot import its models.
    "torchvision": "does not match the CPU build of torch",
    "torchaudio": "does not match the CPU build of torch",
    "torchcodec": "does not match the CPU build of torch",
    # 1 GB of GPU compiler that the CPU engine does not use.
    "triton": "is a GPU compiler",
}

X86_ONLY = {"intel-openmp", "intel-cmplr-lib-ur"}


class SetupError(Exception):
    """A set-up step that failed, in one sentence that says what to do."""


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def choose_engine(asked: str | None) -> tuple[str, str]:
    """The engine of this machine (`cpu`, `cuda` or `metal`) and why."""
    if asked:
        if asked not in {"cpu", "cuda", "metal"}:
            raise SetupError(f"ENGINE must be cpu, cuda or metal, not {asked!r}")
        return asked, "asked for by ENGINE"
    if platform.system() == "Darwin":
        if platform.machine() == "arm64":
            return "metal", "Apple silicon"
        raise SetupError(
            "vLLM has no engine for Intel Macs: attach to a server elsewhere with `ctxlab doctor URL`, "
            "or set ENGINE=metal to install the lab without an engine"
        )
    if platform.system() == "Windows":
        raise SetupError(
            "vLLM has no engine for Windows itself: set the lab up inside WSL2, where it is Linux"
        )
    if shutil.which("nvidia-smi") and _quiet(["nvidia-smi", "-L"]):
        return "cuda", "nvidia-smi lists a GPU"
    return "cpu", "no NVIDIA GPU found"


def engine_extras(engine: str) -> tuple[str, ...]:
    """What the lab's process needs beside itself; an Intel Mac has no wheels of torch, and so no attention."""
    if engine == "cuda":
        return ("cuda",)
    return ("attention",) if platform.machine() == "arm64" else ()


def _quiet(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def fingerprint(engine: str) -> str:
    """Changes when a file that decides the environment changes."""
    digest = hashlib.sha256(f"{engine} {sys.version}".encode())
    for path in (LOCK, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def pip(python: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(
        command, text=True, check=False, stderr=subprocess.PIPE, env={**os.environ, **environment}
    )


def pip_or_die(python: Path, what: str, *arguments: str) -> None:
    done = pip(python, *arguments)
    if done.returncode:
        raise SetupError(
            f"installing {what} failed: {_last_error(done.stderr)}; "
            "check the network and free disk space (the environment takes about 3 GB), then run `make setup` again"
        )


def _last_error(stderr: str) -> str:
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR")]
    lines = errors or [line for line in stderr.splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ") if lines else "pip gave no reason"


def install_torch_cpu(python: Path, pin: str) -> None:
    """The CPU build of torch: from where pip looks, else from PyTorch's own CPU index, which uv knows."""
    done = pip(python, "install", "-q", "--no-deps", pin)
    if done.returncode == 0:
        return
    say("pip's index has no CPU build of torch; taking it from PyTorch's CPU index with uv")
    pip_or_die(python, "uv", "install", "-q", "uv")
    version = pin.split("+")[0]
    command = [str(python.parent / "uv"), "pip", "install", "--python", str(python)]
    command += ["--no-deps", "--torch-backend", "cpu", version]
    if subprocess.run(command, check=False).returncode:
        raise SetupError(
            f"no CPU build of {version} could be had: {_last_error(done.stderr)}; "
            "install one into .venv by hand, then run `make setup` again"
        )


def install_cpu(python: Path, scratch: Path) -> None:
    """The locked CPU environment; `--no-deps`, because the engine asks for packages that must stay out."""
    lines = [line.strip() for line in LOCK.read_text().splitlines()]
    pins = [line for line in lines if line and not line.startswith("#")]
    torch = next(pin for pin in pins if pin.startswith("torch=="))
    rest = scratch / "rest.txt"
    rest.write_text("\n".join(pin for pin in pins if pin != torch))
    say(f"installing {len(pins)} locked packages (about 2 minutes on two cores)")
    install_torch_cpu(python, torch)
    pip_or_die(python, "the locked packages", "install", "-q", "--no-deps", "-r", str(rest))
    pip_or_die(python, "ctxlab", "install", "-q", "--no-deps", "--no-build-isolation", "-e", str(ROOT))


def install_resolved(python: Path, extras: str) -> None:
    """The lab and its engine resolved by pip: on GPUs the engine's wheels differ by driver."""
    pip_or_die(python, f"ctxlab[{extras}]", "install", "-q", "-e", f"{ROOT}[{extras}]")


def check(python: Path, engine: str) -> None:
    """Refuse an environment that would fail later, with the reason now."""
    if engine != "cpu":
        return
    probe = (
        "import importlib.util as u, json, torch\n"
        "import transformers.models.qwen2.modeling_qwen2\n"
        f"found = [name for name in {sorted(UNWANTED)!r} if u.find_spec(name)]\n"
        "print(json.dumps([torch.version.cuda, found, u.find_spec('vllm') is not None]))\n"
    )
    done = subprocess.run([str(python), "-c", probe], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"the environment does not import: {_last_error(done.stderr)}")
    cuda, found, has_engine = json.loads(done.stdout.splitlines()[-1])
    if not has_engine:
        raise SetupError("vllm is missing although it was installed: rm -r .venv and run `make setup` again")
    if cuda is not None:
        raise SetupError(
            f"torch is a CUDA build ({cuda}) and the CPU engine needs the CPU build: rm -r .venv and retry"
        )
    for name in found:
        raise SetupError(f"{name} is installed and {UNWANTED[name]}: `.venv/bin/pip uninstall {name}`")


def folder_size(path: Path) -> int:
    return sum(f.lstat().st_size for f in path.rglob("*") if not f.is_dir())


def setup(venv: Path, asked: str | None) -> None:
    engine, why = choose_engine(asked)
    stamp = venv / STAMP
    if stamp.exists() and stamp.read_text() == fingerprint(engine):
        say(f"{venv.name} is ready ({engine})")
        return
    started = time.monotonic()
    say(f"building {venv.name} for the {engine} engine ({why})")
    stamp.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = venv / "bin" / "python"
    with tempfile.TemporaryDirectory() as scratch:
        if engine == "cpu" and platform.system() == "Linux":
            install_cpu(python, Path(scratch))
        else:
            install_resolved(python, ",".join([*engine_extras(engine), "notebooks", "dev"]))
    check(python, engine)
    if engine == "metal":
        say(
            "the engine itself is vllm-metal, which installs into its own environment: `ctxlab doctor` says how"
        )
    stamp.write_text(fingerprint(engine))
    size = folder_size(venv) / 1e9
    say(f"done in {time.monotonic() - started:.0f} s, {size:.1f} GB: `{venv.name}/bin/ctxlab --help`")


def lock() -> None:
    """Resolve the CPU environment with pip in a throw-away environment and write the pins."""
    with tempfile.TemporaryDirectory() as scratch:
        venv = Path(scratch) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        python = venv / "bin" / "python"
        pip_or_die(python, "everything", "install", "-q", f"{ROOT}[cpu,notebooks,dev]")
        frozen = subprocess.run(
            [str(python), "-m", "pip", "freeze", "--all"], check=True, capture_output=True, text=True
        ).stdout
    LOCK.write_text(lock_text(frozen))
    say(f"wrote {LOCK.relative_to(ROOT)}")


def lock_text(frozen: str) -> str:
    """The lock file from `pip freeze --all`: pins only, unwanted packages out, x86 ones marked."""
    pins = []
    for line in frozen.splitlines():
        found = re.match(r"^([A-Za-z0-9._-]+)==(\S+)$", line)
        if not found:
            continue
        name = re.sub(r"[-_.]+", "-", found[1]).lower()
        if name in UNWANTED or name in {"pip", "ctxlab"}:
            continue
        marker = ' ; platform_machine == "x86_64"' if name in X86_ONLY else ""
        pins.append(f"{name}=={found[2]}{marker}")
    head = "# The CPU environment on Linux, written by `make lock`; installed with --no-deps.\n"
    head += "".join(f"# {name} is left out: it {why}.\n" for name, why in UNWANTED.items())
    return head + "\n".join(sorted(pins)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument(
        "--engine", default=os.environ.get("ENGINE"), help="cpu, cuda or metal (default: by machine)"
    )
    parser.add_argument("--lock", action="store_true", help="resolve anew and rewrite the lock file")
    arguments = parser.parse_args()
    if not (3, 11) <= sys.version_info < (3, 14):
        print(
            "setup: Python 3.11, 3.12 or 3.13 is needed and this is "
            f"{platform.python_version()}: run `make setup PYTHON=python3.11`"
        )
        return 2
    try:
        lock() if arguments.lock else setup(arguments.venv.resolve(), arguments.engine)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(
            f"setup: {' '.join(map(str, error.cmd))} failed with exit code {error.returncode}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
