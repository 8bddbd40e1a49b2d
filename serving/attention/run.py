"""Stub."""

from __future__ import annotations

from serving.attention.capture import Capture


def capture() -> Capture:
    raise NotImplementedError
