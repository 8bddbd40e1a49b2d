"""Runs a served study in quick size against a server that is already there; `prefix-cache` is killed by tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue

from experiments.framework import RunOptions, RunSummary, Served, Study, run_study
from experiments.framework.served_model import ServedModel
from experiments.prefix_cache import PrefixCacheStudy
from experiments.prefix_cache.arms import FIRST
from serving.client import Client
from serving.models import ensure

MODEL = "qwen3-nano-shape"


def run_quick(folder: Path, base_url: str, *, block_size: int, num_blocks: int = 100_000) -> RunSummary:
    """Run, or go on with, the quick study `prefix-cache` in `folder`, under the arms of a first look."""
    study = PrefixCacheStudy(MODEL, block_size=block_size)
    return run_against(base_url, study, folder, block_size=block_size, num_blocks=num_blocks, arms=FIRST)


def run_against(
    base_url: str,
    study: Study[ServedModel],
    folder: Path,
    *,
    block_size: int,
    num_blocks: int = 100_000,
    arms: tuple[str, ...] = (),
) -> RunSummary:
    """Run, or go on with, the first size of a study in `folder`, on the server that is there."""

    @contextmanager
    def serve(_engine: Mapping[str, JsonValue]) -> Iterator[Served[ServedModel]]:
        with Client(base_url) as client:
            target = ServedModel(client, ensure(MODEL), block_size, num_blocks, 8192)
            yield Served(target=target, environment={"engine": "shared"})

    return run_study(study, study.sizes[0], folder=folder, serve=serve, options=RunOptions(arms=arms))


if __name__ == "__main__":
    run_quick(Path(sys.argv[1]), sys.argv[2], block_size=int(sys.argv[3]))
