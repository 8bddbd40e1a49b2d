from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def disk_that_need_not_last() -> Iterator[None]:
    """No test here is about a power cut, and thousands of writes that wait for a busy disk take minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield
