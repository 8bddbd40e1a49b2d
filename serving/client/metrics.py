"""What vLLM's `/metrics` says about its cache."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

_CACHE_CONFIG = "vllm:cache_config_info"


class CacheConfig(BaseModel):
    """The KV cache of a server; None where it does not say, or where its engines disagree."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    block_size: int | None = None
    num_gpu_blocks: int | None = None
    kv_cache_tokens: int | None = None


def read_cache_config(exposition: str) -> CacheConfig:
    """The labels of `vllm:cache_config_info` in a Prometheus text exposition; empty where it is absent.

    Text that is no exposition gives an empty one too: a stranger's `/metrics` may be anything.
    """
    from prometheus_client.parser import text_string_to_metric_families

    samples: list[dict[str, str]] = []
    try:
        for family in text_string_to_metric_families(exposition):
            samples += [sample.labels for sample in family.samples if sample.name == _CACHE_CONFIG]
    except ValueError:
        return CacheConfig()
    return CacheConfig(
        block_size=_agreed(samples, "block_size"),
        num_gpu_blocks=_agreed(samples, "num_gpu_blocks"),
        kv_cache_tokens=_agreed(samples, "kv_cache_size_tokens"),
    )


def read_counter(exposition: str, name: str) -> float | None:
    """The sum of a counter over all its labels; None where a Prometheus text exposition has none of that name."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        values = [
            sample.value
            for family in text_string_to_metric_families(exposition)
            for sample in family.samples
            if sample.name == name
        ]
    except ValueError:
        return None
    return sum(values) if values else None


def _agreed(samples: list[dict[str, str]], label: str) -> int | None:
    values = {sample.get(label, "") for sample in samples}
    only = values.pop() if len(values) == 1 else ""
    return int(only) if only.isdecimal() else None
