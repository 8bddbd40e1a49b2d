"""From a cache miss to the message and the item that caused it."""

from __future__ import annotations

from serving.explain.first_break import FirstBreak, first_break

__all__ = ["FirstBreak", "first_break"]
