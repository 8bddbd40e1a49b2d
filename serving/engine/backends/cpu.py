"""vLLM on the processor: the backend that needs care, because its defaults suit a large server."""

from __future__ import annotations

from typing import NamedTuple

from serving.engine.backends.base import Availability, BackendName, BackendPlan, length_flags
from serving.engine.config import Dtype, EngineConfig
from serving.engine.machine import Machine, format_cores
from serving.engine.shape import read_shape
from serving.errors import UsageError

BLOCK_SIZE_STEP = 32
"""vLLM's CPU attention takes multiples of this only (`v1/attention/backends/cpu_attn.py`)."""

SMALL_CORES = 8
"""Up to here one engine process serves as fast as two; above, threads are worth binding to cores."""

_GIB = 1 << 30


def default_kv_cache_bytes(config: EngineConfig, dtype: Dtype) -> int:
    """What is asked for when nobody says otherwise: without it vLLM takes 92 % of the machine's memory.

    Room for two of the longest requests that were asked for, 1 GiB at least; 2 GiB where no length was asked for.
    """
    shape = read_shape(config.model.path)
    if shape is None or config.max_model_len is None:
        return 2 * _GIB
    return max(_GIB, 2 * config.max_model_len * shape.kv_bytes_per_token(dtype))


class CpuBackend:
    """vLLM's CPU build in the lab's own environment."""

    name = BackendName.CPU

    def availability(self, machine: Machine) -> Availability:
        """Usable when a CPU build of vLLM is installed."""
        build = next((engine for engine in machine.engines if engine.is_cpu), None)
        if build is None:
            return Availability(
                usable=False,
                reason="no CPU build of vLLM is installed beside the lab; install it with "
                "`ENGINE=cpu make setup`",
            )
        found = f"{build.distribution} {build.version} on {len(machine.cores)} cores of {machine.cpu_name}"
        return Availability(usable=True, reason=found)

    def dtype(self, config: EngineConfig, machine: Machine) -> Dtype:
        """Half width only where the processor computes with it.

        Measured without AVX-512 on a 0.5 B model and two cores: float32 prefills 110 tok/s and decodes 8,
        bfloat16 24 and 10.
        """
        if config.dtype is not None:
            return config.dtype
        return Dtype.BFLOAT16 if machine.has_wide_vectors else Dtype.FLOAT32

    def plan(self, config: EngineConfig, machine: Machine) -> BackendPlan:
        """Flags that make a small machine start fast and never meet the CPU engine's known traps."""
        if config.block_size is not None and config.block_size % BLOCK_SIZE_STEP:
            below = config.block_size // BLOCK_SIZE_STEP * BLOCK_SIZE_STEP
            nearest = sorted({max(below, BLOCK_SIZE_STEP), below + BLOCK_SIZE_STEP})
            raise UsageError(
                f"The CPU backend takes block sizes that are multiples of {BLOCK_SIZE_STEP}, and "
                f"{config.block_size} was asked for: use {' or '.join(map(str, nearest))}."
            )
        batch, batch_note = _batched_tokens(config)
        dtype = self.dtype(config, machine)
        kv_bytes = config.kv_cache_bytes or default_kv_cache_bytes(config, dtype)
        notes = [_dtype_note(config, machine, dtype), batch_note]
        if config.kv_cache_bytes is None:
            notes.append(
                f"KV cache {kv_bytes / _GIB:.3g} GiB: vLLM's own choice would be most of the memory."
            )
        processes = _one_process(machine) if len(machine.cores) <= SMALL_CORES else _bound_worker(machine)
        notes += processes.notes
        return BackendPlan(
            python=machine.python,
            flags=(
                "--dtype",
                dtype,
                *length_flags(config),
                "--enforce-eager",
                "--kv-cache-memory-bytes",
                str(kv_bytes),
                "--max-num-batched-tokens",
                str(batch),
                *processes.flags,
            ),
            env=processes.env,
            notes=tuple(notes),
        )


class _Processes(NamedTuple):
    flags: tuple[str, ...]
    env: dict[str, str]
    notes: tuple[str, ...]


def _one_process(machine: Machine) -> _Processes:
    """Scheduler and model in one process, the API server in another: two processes instead of three.

    The variable's name promises more than it does: vLLM 0.32's API server keeps its engine core in a process
    of its own either way (`AsyncMPClient`), so streaming is never held back. On CPU it only keeps vLLM from
    overruling the `uni` executor (`platforms/cpu.py`). That saves one import of torch and vLLM (33 instead of
    40 processor seconds to start, and 0.7 GB), and no scheduler spins beside a worker. The price: threads are
    not bound to cores, which matters on large machines only.
    """
    cores = len(machine.cores)
    return _Processes(
        flags=("--distributed-executor-backend", "uni"),
        env={"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(cores)},
        notes=(f"Scheduler and model share a process with {cores} threads: a faster start, less memory.",),
    )


def _bound_worker(machine: Machine) -> _Processes:
    """A worker process with its threads bound to every usable core (vLLM would keep one back)."""
    if machine.os != "linux":
        return _Processes((), {}, ())
    cores = format_cores(machine.cores)
    return _Processes((), {"VLLM_CPU_OMP_THREADS_BIND": cores}, (f"Threads bound to cores {cores}.",))


def _batched_tokens(config: EngineConfig) -> tuple[int, str]:
    """One prefill step must hold the longest prompt.

    A sampled request with a seed whose uncached prompt needs two steps kills vLLM 0.32's CPU engine ("CPU
    Generator does not use offset"); the default of 2048 would let any long prompt do it.
    """
    asked, longest = config.max_num_batched_tokens, config.longest_request
    if asked is None:
        return longest, f"One prefill step holds {longest} tokens, so a seeded, sampled request is safe."
    if asked < longest:
        return asked, (
            f"A prefill step of {asked} tokens is shorter than the longest request ({longest}): a request "
            "with a seed and temperature above 0 and a longer uncached prompt would kill this engine."
        )
    return asked, f"One prefill step of {asked} tokens, as asked."


def _dtype_note(config: EngineConfig, machine: Machine, dtype: Dtype) -> str:
    if config.dtype is not None:
        return f"{dtype}, as asked."
    wide = "has" if machine.has_wide_vectors else "has not"
    kind = "bfloat16 instructions" if machine.arch == "arm64" else "AVX-512 or AMX"
    return f"{dtype}: this processor {wide} {kind}."
