"""Serving, assembling and measuring: the library half of ctxlab."""

from __future__ import annotations
