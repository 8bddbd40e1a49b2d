"""A subscription to an engine's KV events: batches in order, gaps filled where the engine keeps a replay."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
import zmq

from serving.engine.kv_events import KVEventsEndpoint
from serving.errors import LabError
from serving.prefix import AllBlocksCleared, BlocksRemoved, BlocksStored, KVEvent

_END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
_REPLAY_SILENCE_S = 2.0
"""vLLM looks for replay requests ten times a second, between its own batches."""
_DEVICE = "GPU"
"""How vLLM calls the pool itself, on every platform; other media are tiers that blocks were copied to."""


class EventBatch(NamedTuple):
    """The events of one engine step."""

    sequence: int
    at: float
    """The engine's clock, seconds since the epoch."""
    events: tuple[KVEvent, ...]


class KVEventSubscription:
    """The subscriber's end of an engine's event line; a context manager.

    Opening it never waits for the engine, which may be started later or again: ZMQ connects by itself.
    """

    def __init__(self, endpoint: KVEventsEndpoint) -> None:
        """Raises: LabError when the address cannot be used."""
        self.endpoint = endpoint
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.SUB)
        self._live.setsockopt(
            zmq.RCVHWM, 0
        )  # keep what we are slow to read: a dropped batch is a lost mirror
        self._live.setsockopt(zmq.SUBSCRIBE, b"")
        try:
            if endpoint.subscriber_binds:
                self._live.bind(endpoint.live)
            else:
                self._live.connect(endpoint.live)
        except zmq.ZMQError as error:
            self.close()
            raise LabError(
                f"Expected to listen for KV events at {endpoint.live}, but {error.strerror}: check the address."
            ) from error

    def receive(self, timeout_s: float) -> list[EventBatch]:
        """Wait up to `timeout_s` for a batch and give all that are there, in the order in which they came.

        Raises: LabError for a batch in a form that vLLM 0.32 does not send.
        """
        batches = []
        wait_ms = round(timeout_s * 1000)
        while self._live.poll(wait_ms):
            frames = self._live.recv_multipart()
            batches.append(_decode(frames[-2], frames[-1]))
            wait_ms = 0
        return batches

    def replay(self, first: int) -> Iterator[EventBatch]:
        """Ask for every batch from `first` on that the engine still has; nothing without a replay address.

        Ends where the engine says so, or when it is silent for two seconds.
        """
        if self.endpoint.replay is None:
            return
        asker = self._context.socket(zmq.DEALER)
        asker.setsockopt(zmq.RCVHWM, 0)
        asker.setsockopt(zmq.LINGER, 0)
        try:
            asker.connect(self.endpoint.replay)
            asker.send_multipart([b"", first.to_bytes(8, "big")])
            while asker.poll(round(_REPLAY_SILENCE_S * 1000)):
                frames = asker.recv_multipart()
                if frames[-2] == _END_OF_REPLAY:
                    return
                yield _decode(frames[-2], frames[-1])
        finally:
            asker.close()

    def close(self) -> None:
        """Close the line; safe to call twice."""
        self._live.close(linger=0)
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Stored(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None = None
    token_ids: list[int] = msgspec.field(default_factory=list)
    medium: str | None = None


class _Removed(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[int | bytes]
    medium: str | None = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[_Stored | _Removed | _Cleared]


def _decode(sequence: bytes, payload: bytes) -> EventBatch:
    try:
        batch = msgspec.msgpack.decode(payload, type=_Batch)
    except msgspec.MsgspecError as error:
        raise LabError(
            f"Expected KV events as vLLM 0.32 sends them, but a batch has another form ({error}): watch a server "
            "of that version."
        ) from error
    events = [event for raw in batch.events if (event := _event(raw)) is not None]
    return EventBatch(int.from_bytes(sequence, "big"), batch.ts, tuple(events))


def _event(raw: _Stored | _Removed | _Cleared) -> KVEvent | None:
    match raw:
        case _Cleared():
            return AllBlocksCleared()
        case _ if raw.medium not in (None, _DEVICE):
            return None
        case _Stored():
            return BlocksStored(
                keys=tuple(raw.block_hashes), parent=raw.parent_block_hash, token_ids=tuple(raw.token_ids)
            )
        case _Removed():
            return BlocksRemoved(keys=tuple(raw.block_hashes))
