"""The shortest request for a script of the stub."""

from __future__ import annotations

from serving.client import ChatRequest


def ask(script: str, **more: object) -> ChatRequest:
    return ChatRequest(model=script, messages=({"role": "user", "content": "hi"},), **more)
