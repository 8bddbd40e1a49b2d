"""Studies, workloads and the command line: the half of ctxlab that asks questions."""

from __future__ import annotations
