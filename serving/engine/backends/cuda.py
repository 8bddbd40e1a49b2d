"""vLLM on an NVIDIA device."""

from __future__ import annotations

from serving.engine.backends.base import Availability, BackendName, BackendPlan, length_flags
from serving.engine.config import Dtype, EngineConfig
from serving.engine.machine import Machine

_GIB = 1 << 30


class CudaBackend:
    """vLLM's CUDA build in the lab's own environment."""

    name = BackendName.CUDA

    def availability(self, machine: Machine) -> Availability:
        """Usable when a device answers and the CUDA build of vLLM is installed."""
        if not machine.gpus:
            return Availability(usable=False, reason="nvidia-smi reports no device here")
        gpu = machine.gpus[0]
        device = f"{gpu.name} with {gpu.memory_total / _GIB:.0f} GiB"
        build = next((engine for engine in machine.engines if not engine.is_cpu), None)
        if build is None:
            return Availability(
                usable=False,
                reason=f"{device} is here, but no CUDA build of vLLM is installed beside the lab; install it "
                "with `ENGINE=cuda make setup`",
            )
        return Availability(usable=True, reason=f"{build.distribution} {build.version} on {device}")

    def dtype(self, config: EngineConfig, machine: Machine) -> Dtype:
        """The model's own format unless another is asked for; vLLM knows each device's abilities."""
        return config.dtype or Dtype.AUTO

    def plan(self, config: EngineConfig, machine: Machine) -> BackendPlan:
        """vLLM's defaults are made for this device: only what was asked for is said."""
        flags: list[str] = ["--dtype", self.dtype(config, machine), *length_flags(config)]
        if config.kv_cache_bytes is not None:
            flags += ["--kv-cache-memory-bytes", str(config.kv_cache_bytes)]
        if config.max_num_batched_tokens is not None:
            flags += ["--max-num-batched-tokens", str(config.max_num_batched_tokens)]
        return BackendPlan(python=machine.python, flags=tuple(flags), env={}, notes=())
