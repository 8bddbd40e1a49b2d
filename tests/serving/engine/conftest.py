"""A fake engine for every test of this folder that wants one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.engine.fake_stage import FakeStage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[FakeStage]:
    stage = FakeStage(tmp_path)
    yield stage
    for process in stage.processes():  # a failed test must not leave its engine behind
        process.kill()
