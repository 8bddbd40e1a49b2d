"""A failure that other tools are known for: limits taken from a catalogue instead of the server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from experiments.framework.served_model import _target
from serving.engine import BackendName
from serving.errors import LabError
from serving.probe import ServerFacts


def facts(max_model_len: int | None) -> ServerFacts:
    return ServerFacts(version="0.32.0", max_model_len=max_model_len, block_size=16, num_blocks=100)


def plan(max_position_embeddings: int) -> Any:
    return SimpleNamespace(
        folder=SimpleNamespace(name="m", max_position_embeddings=max_position_embeddings),
        command=SimpleNamespace(argv=("serve",)),
        backend=SimpleNamespace(name=BackendName.CPU),
    )


def test_the_window_is_what_the_server_says_and_not_what_the_model_could_do() -> None:
    served = _target(None, plan(1_000_000), facts(4096))  # type: ignore[arg-type]
    assert served.max_model_len == 4096


def test_a_server_that_does_not_tell_its_window_gets_none_guessed_for_it() -> None:
    with pytest.raises(LabError, match=r"longest request, and the server tells 16, 100 and None"):
        _target(None, plan(32_768), facts(None))  # type: ignore[arg-type]
