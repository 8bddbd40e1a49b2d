"""vLLM on Apple silicon through vllm-metal, a plugin that lives in an environment of its own."""

from __future__ import annotations

from serving.engine.backends.base import Availability, BackendName, BackendPlan
from serving.engine.config import Dtype, EngineConfig
from serving.engine.machine import METAL_DEFAULT_ENV, METAL_ENV_VARIABLE, Machine
from serving.errors import UsageError

INSTALL_LINE = "curl -fsSL https://raw.githubusercontent.com/vllm-project/vllm-metal/main/install.sh | bash"
"""The project's own way to install it (its PyPI release is stale)."""


class MetalBackend:
    """vllm-metal, driven by the Python of its own environment."""

    name = BackendName.METAL

    def availability(self, machine: Machine) -> Availability:
        """Usable on Apple silicon with vllm-metal's environment where its installer puts it."""
        if not machine.metal:
            return Availability(usable=False, reason=f"{machine.os}/{machine.arch} is not Apple silicon")
        if machine.metal_python is None:
            return Availability(
                usable=False,
                reason=f"vllm-metal is not in ~/{METAL_DEFAULT_ENV} (nor where {METAL_ENV_VARIABLE} points); "
                f"get it with `{INSTALL_LINE}`",
            )
        return Availability(usable=True, reason=f"vllm-metal at {machine.metal_python} on {machine.cpu_name}")

    def dtype(self, config: EngineConfig, machine: Machine) -> Dtype:
        """The model's own format unless another is asked for."""
        return config.dtype or Dtype.AUTO

    def plan(self, config: EngineConfig, machine: Machine) -> BackendPlan:
        """The common flags, with the paged cache that prefix caching needs.

        vllm-metal sizes its cache by `VLLM_METAL_MEMORY_FRACTION` or `--gpu-memory-utilization`; its
        configuration page names no size in bytes, so the wish becomes a fraction of the unified memory.
        """
        if machine.metal_python is None:
            raise UsageError(f"The Metal backend cannot start: {self.availability(machine).reason}.")
        flags: list[str] = ["--dtype", self.dtype(config, machine)]
        if config.max_model_len is not None:
            flags += ["--max-model-len", str(config.max_model_len)]
        if config.max_num_batched_tokens is not None:
            flags += ["--max-num-batched-tokens", str(config.max_num_batched_tokens)]
        env = {"VLLM_METAL_USE_PAGED_ATTENTION": "1"}
        notes: tuple[str, ...] = ()
        if config.kv_cache_bytes is not None:
            budget = config.kv_cache_bytes + config.model.size_bytes
            fraction = min(0.9, max(0.05, budget / machine.memory_total))
            env["VLLM_METAL_MEMORY_FRACTION"] = f"{fraction:.3f}"
            notes = (
                f"vllm-metal takes a share of the memory, not bytes: {fraction:.3f} for weights and cache.",
            )
        return BackendPlan(python=machine.metal_python, flags=tuple(flags), env=env, notes=notes)
