"""One recorded exchange with a model server.

with Client("http://127.0.0.1:8000") as client:
    stream = client.stream(ChatRequest(model="qwen3-0.6b", messages=({"role": "user", "content": "Hi"},)))
    for event in stream:
        ...
    stream.exchange.ttft_s
"""

from __future__ import annotations

from serving.client.async_client import AsyncClient
from serving.client.events import (
    Failure,
    Finish,
    HeldTokens,
    PromptIds,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallComplete,
    ToolCallFragment,
    UsageReport,
)
from serving.client.exchange import (
    Arrival,
    ErrorKind,
    Exchange,
    ExchangeError,
    ReceivedToolCall,
    Surface,
    Timings,
    Usage,
)
from serving.client.refuse import CpuEngineLimits, Refusal, RefusedRequestError
from serving.client.requests import ChatRequest, CompletionRequest, Request
from serving.client.stream import AsyncExchangeStream
from serving.client.sync_client import Client, ExchangeStream, InterruptedExchange

__all__ = [
    "Arrival",
    "AsyncClient",
    "AsyncExchangeStream",
    "ChatRequest",
    "Client",
    "CompletionRequest",
    "CpuEngineLimits",
    "ErrorKind",
    "Exchange",
    "ExchangeError",
    "ExchangeStream",
    "Failure",
    "Finish",
    "HeldTokens",
    "InterruptedExchange",
    "PromptIds",
    "ReasoningDelta",
    "ReceivedToolCall",
    "Refusal",
    "RefusedRequestError",
    "Request",
    "StreamEvent",
    "Surface",
    "TextDelta",
    "Timings",
    "ToolCallComplete",
    "ToolCallFragment",
    "Usage",
    "UsageReport",
]
