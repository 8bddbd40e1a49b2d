"""The server that a load goes to: one that the study started, or any at a URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import JsonValue, SecretStr

from experiments.framework.served_model import ServedModel
from experiments.framework.study import Serve, Served
from experiments.latency.floors import ModelFigures, declared_dtype, read_figures
from experiments.latency.workload import FIRST_ID, WORDS
from serving.client import Client, Surface
from serving.engine import attach
from serving.engine.machine import inspect_machine
from serving.errors import LabError, UsageError
from serving.models import ModelFolder
from serving.probe import read_server_facts
from serving.text import require_unicode_text

SPECIAL_IDS = 1000
"""Ids at the vocabulary's end that may be special or unused."""


@dataclass(frozen=True)
class Target:
    """A server that answers, and what of it is known; None is unknown."""

    client: Client
    model: str
    surface: Surface
    vocabulary: int
    """How many ids, or words, prompts are drawn from."""
    is_vllm: bool
    block_size: int | None
    num_blocks: int | None
    figures: ModelFigures | None
    dtype: str | None
    """Of the engine's weights; None: no floor can be told."""
    device: str | None
    """Where the engine computes; None: not on this machine, or unknown."""


def from_served(served: ServedModel) -> Target:
    """A model that the lab has started here: all is known but, with `auto`, the type of a model stored in float32."""
    dtype = served.dtype if served.dtype not in (None, "auto") else declared_dtype(served.folder.path)
    figures = None if dtype is None else read_figures(served.folder.path, dtype)
    return Target(
        client=served.client,
        model=served.folder.name,
        surface=Surface.TOKEN_IN,
        vocabulary=_drawable(figures),
        is_vllm=True,
        block_size=served.block_size,
        num_blocks=served.num_blocks,
        figures=figures,
        dtype=dtype,
        device=served.device,
    )


def serve_urls(
    folder: ModelFolder | None,
    *,
    model: str | None,
    api_key: SecretStr | None,
    dtype: str | None,
    device: str | None,
    surface: Surface | None = None,
) -> Serve[ServedModel | Target]:
    """Give the function that attaches to the factor `engine.url`.

    `folder` has the model's sizes, without which there are no floors; `device` only where the engine computes on
    this machine. The key goes into requests and nowhere else.
    """

    @contextmanager
    def serve(engine: Mapping[str, JsonValue]) -> Iterator[Served[ServedModel | Target]]:
        url = engine["engine.url"]
        if not isinstance(url, str):
            raise UsageError(f"Expected a URL in engine.url, got {url!r}.")
        attached = attach(url, api_key=api_key)
        if not attached.model_names:
            raise UsageError(f"Expected a served model at {url}, and it lists none: load one there.")
        name = require_unicode_text(model or attached.model_names[0], f"the model's name that {url} lists")
        if name not in attached.model_names:
            raise UsageError(f"{url} serves {', '.join(attached.model_names)}, not {name}.")
        key = None if api_key is None else api_key.get_secret_value()
        facts = read_server_facts(attached.base_url, name, key)
        is_vllm = facts.version is not None and facts.block_size is not None
        way = surface or (Surface.TOKEN_IN if is_vllm else Surface.CHAT)
        figures = None if folder is None or dtype is None else read_figures(folder.path, dtype)
        with Client(attached.base_url, key) as client:
            target = Target(
                client=client,
                model=name,
                surface=way,
                vocabulary=_drawable(figures) if way is Surface.TOKEN_IN else len(WORDS),
                is_vllm=is_vllm,
                block_size=facts.block_size,
                num_blocks=facts.num_blocks,
                figures=figures,
                dtype=dtype,
                device=device,
            )
            yield Served(target, _environment(target, url, facts.version), _death(attached.check))

    return serve


def _environment(target: Target, url: str, version: str | None) -> dict[str, JsonValue]:
    machine = inspect_machine()
    return {
        "asked_from": f"{machine.cpu_name}, {len(machine.cores)} cores",
        "engine": "unknown" if version is None else f"vllm {version}",
        "url": url,
        "model": target.model,
        "surface": target.surface.value,
        "block_size": target.block_size,
        "num_blocks": target.num_blocks,
        "dtype": target.dtype,
    }


def _death(check: Callable[[], None]) -> Callable[[], str | None]:
    def death() -> str | None:
        try:
            check()
        except LabError as cause:
            return str(cause)
        return None

    return death


def _drawable(figures: ModelFigures | None) -> int:
    size = 32_000 if figures is None else figures.vocabulary  # the smallest vocabulary of a served family
    return size - FIRST_ID - SPECIAL_IDS
