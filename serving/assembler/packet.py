"""What one model call is made of: messages, tools, and which characters came from which item."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

PathPart = str | int
MessagePath = tuple[PathPart, ...]


class ToolCall(BaseModel):
    """A call that the assistant made; `arguments` is the JSON text exactly as the API carries it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    arguments: str

    def to_api(self) -> dict[str, JsonValue]:
        """The OpenAI body form."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


class Message(BaseModel):
    """One message of the conversation; absent fields stay absent in the body."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def to_api(self) -> dict[str, JsonValue]:
        """The OpenAI body form; `content` is always there, null included."""
        body: dict[str, JsonValue] = {"role": self.role, "content": self.content}
        if self.reasoning is not None:
            body["reasoning"] = self.reasoning
        if self.tool_calls:
            body["tool_calls"] = [call.to_api() for call in self.tool_calls]
        if self.tool_call_id is not None:
            body["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            body["name"] = self.name
        return body


class ToolSpec(BaseModel):
    """A tool as the model sees it; `parameters` is a JSON schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str
    parameters: dict[str, JsonValue]

    def to_api(self) -> dict[str, JsonValue]:
        """The OpenAI body form."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }


class PacketSpan(BaseModel):
    """Characters [start, end) of the string at `path`, or the whole subtree there, belong to an item."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: MessagePath
    start: int = 0
    end: int | None = None
    item_id: str
