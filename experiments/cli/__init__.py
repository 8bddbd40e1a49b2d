"""The `ctxlab` command: one module a command group, heavy libraries imported only by the command that needs them."""

from __future__ import annotations
