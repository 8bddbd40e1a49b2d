"""The agent: a ReAct loop over the one measured call, and the tools that it runs."""

from __future__ import annotations
