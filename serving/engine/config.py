"""What is asked of an engine, and the command that answers it: two frozen values."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from serving.engine.kv_events import KVEventsEndpoint
from serving.models.folder import ModelFolder

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
"""Hosts that only this machine reaches; any other needs an API key."""

MASK = "****"


class BackendName(StrEnum):
    """The engines the lab can drive."""

    CUDA = "cuda"
    METAL = "metal"
    CPU = "cpu"
    ATTACH = "attach"


class Dtype(StrEnum):
    """Number formats of weights and activations; `auto` follows the model's own configuration."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class EngineConfig(BaseModel):
    """One engine as a study or a user asks for it; None leaves a choice to the backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelFolder
    backend: BackendName
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)
    block_size: int | None = Field(default=None, ge=1)
    """Tokens per KV-cache block."""
    kv_cache_bytes: int | None = Field(default=None, ge=1)
    max_model_len: int | None = Field(default=None, ge=1)
    """Prompt and output tokens of one request; None: the model's limit, less in a small cache."""
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    dtype: Dtype | None = None
    api_key: SecretStr | None = None
    kv_events: KVEventsEndpoint | None = None
    """Where the engine tells what happens to its KV blocks; None: nowhere."""
    seed: int = 0
    extra_flags: tuple[str, ...] = ()
    """Further vLLM flags, appended last and therefore winning."""

    @property
    def longest_request(self) -> int:
        """Tokens of the longest request the engine will be asked to take."""
        return self.max_model_len or self.model.max_position_embeddings


class EngineCommand(BaseModel):
    """A process to start: arguments, the environment variables it adds, and why they were chosen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Additions to the environment, without secrets."""
    secret_env: Mapping[str, SecretStr] = {}
    """Additions that are never printed, logged or recorded."""
    notes: tuple[str, ...] = ()
    """One sentence for each choice that was made for the user."""
    host: str
    port: int
    served_model_name: str

    @property
    def base_url(self) -> str:
        """Where a client on this machine reaches the server (a wildcard host is reached on loopback)."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def full_env(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The environment to start the process with, secrets included: for the process only."""
        secrets = {name: value.get_secret_value() for name, value in self.secret_env.items()}
        return {**inherited, **self.env, **secrets}

    def printable(self) -> str:
        """A shell command, one option a line, with every secret masked."""
        masked = {**self.env, **dict.fromkeys(self.secret_env, MASK)}
        lines = [f"{name}={shlex.quote(value)}" for name, value in sorted(masked.items())]
        option: list[str] = []
        for word in self.argv:
            if word.startswith("--") and option:
                lines.append(shlex.join(option))
                option = []
            option.append(word)
        return " \\\n  ".join([*lines, shlex.join(option)])
