"""What can be refused in a millisecond instead of after forty seconds deep in a log."""

from __future__ import annotations

import socket

from pydantic import BaseModel, ConfigDict

from serving.engine.backends import BACKENDS
from serving.engine.backends.cpu import default_kv_cache_bytes
from serving.engine.config import BackendName, Dtype, EngineConfig
from serving.engine.machine import Machine
from serving.engine.shape import DTYPE_BYTES, ModelShape, read_shape
from serving.errors import LabError, UsageError
from serving.models.folder import Weights

CPU_OVERHEAD_BYTES = 2200 << 20
"""Up to three processes with torch and vLLM imported, before any weight: 0.7 GB each, measured."""

CUDA_OVERHEAD_BYTES = 1500 << 20
"""A CUDA context and the activations of one step; an estimate."""

_WEIGHT_FILES = ("*.safetensors", "*.bin", "*.gguf", "*.pt")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_GIB = 1 << 30


class MemoryNeed(BaseModel):
    """Bytes an engine will take, by part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: int
    kv_cache: int
    overhead: int

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return self.weights + self.kv_cache + self.overhead

    def in_words(self) -> str:
        """The parts in GiB."""
        return (
            f"weights {self.weights / _GIB:.1f}, KV cache {self.kv_cache / _GIB:.1f}, "
            f"engine {self.overhead / _GIB:.1f}"
        )


def preflight(config: EngineConfig, machine: Machine) -> None:
    """Refuse what cannot start: no weights, too little memory, a cache below one request, a taken port.

    LabError or UsageError with the numbers; nothing is started. What cannot be read here (a configuration in
    an unknown form) is left to the engine to judge.
    """
    check_folder(config)
    shape = read_shape(config.model.path)
    if shape is not None:
        dtype = BACKENDS[config.backend].dtype(config, machine)
        check_cache(config, shape, dtype)
        check_memory(config, machine, memory_need(config, shape, dtype))
    check_port(config.host, config.port)


def check_folder(config: EngineConfig) -> None:
    """The folder holds a configuration, a tokenizer, and weights unless dummy ones are asked for.

    Without a tokenizer vLLM 0.32 does not refuse: it serves with an empty one, and answers nonsense.
    """
    folder = config.model.path
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"A model folder holds a config.json, and {folder} has none: pull the model again, or name "
            "another folder."
        )
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise UsageError(
            f"{folder} holds no tokenizer ({', '.join(_TOKENIZER_FILES)}): pull the model again, or copy the "
            "tokenizer into it."
        )
    if config.model.weights is Weights.REAL and not any(
        next(folder.glob(pattern), None) for pattern in _WEIGHT_FILES
    ):
        raise UsageError(
            f"{folder} holds no weight files ({', '.join(_WEIGHT_FILES)}): pull the model again, or serve "
            "its shape with dummy weights."
        )


def memory_need(config: EngineConfig, shape: ModelShape, dtype: Dtype) -> MemoryNeed:
    """Bytes for weights (widened or narrowed to `dtype`), the cache asked for, and the engine itself."""
    stored_width = DTYPE_BYTES[shape.stored_dtype]
    width = stored_width if dtype is Dtype.AUTO else DTYPE_BYTES[dtype]
    real = config.model.weights is Weights.REAL
    weights = config.model.size_bytes * width // stored_width if real else shape.parameters * width
    on_cpu = config.backend is BackendName.CPU
    kv_cache = config.kv_cache_bytes or (
        default_kv_cache_bytes(config, dtype)
        if on_cpu
        else shape.kv_bytes_per_token(dtype) * config.longest_request
    )
    overhead = CUDA_OVERHEAD_BYTES if config.backend is BackendName.CUDA else CPU_OVERHEAD_BYTES
    return MemoryNeed(weights=weights, kv_cache=kv_cache, overhead=overhead)


def check_cache(config: EngineConfig, shape: ModelShape, dtype: Dtype) -> None:
    """The KV cache holds one request of the length asked for (vLLM refuses to start otherwise)."""
    asked = config.kv_cache_bytes
    if asked is None or config.max_model_len is None:
        return  # the backend then chooses room for the longest request, or the longest request that fits
    per_token = shape.kv_bytes_per_token(dtype)
    fits = asked // per_token
    if fits < config.longest_request:
        needed = config.longest_request * per_token
        raise UsageError(
            f"One request of {config.longest_request} tokens needs {needed / _GIB:.2f} GiB of KV cache "
            f"({per_token} bytes a token) and the cache is {asked / _GIB:.2f} GiB: set max_model_len to "
            f"{fits} or less, or make the cache larger."
        )


def check_memory(config: EngineConfig, machine: Machine, need: MemoryNeed) -> None:
    """Weights, cache and engine fit into what is free now."""
    on_gpu = config.backend is BackendName.CUDA
    available = machine.gpus[0].memory_free if on_gpu and machine.gpus else machine.memory_available
    if need.total > available:
        place = "on the device" if on_gpu else "of memory"
        raise LabError(
            f"{config.model.name} needs about {need.total / _GIB:.1f} GiB ({need.in_words()}) and "
            f"{available / _GIB:.1f} GiB {place} are free: take a smaller model or cache, or end "
            "other programs."
        )


def check_port(host: str, port: int) -> None:
    """Nobody listens on the port yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # a port in TIME_WAIT is free for a server
        try:
            probe.bind((host, port))
        except (OSError, ValueError) as error:  # ValueError: a name that DNS cannot spell
            why = error.strerror if isinstance(error, OSError) else error
            raise LabError(
                f"Port {port} on {host} cannot be used ({why}): end the program that listens "
                "there, or choose another port."
            ) from error
