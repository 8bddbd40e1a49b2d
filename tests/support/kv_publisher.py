"""A publisher of KV events that can lose batches: the engine's end of the line, without an engine."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq

from serving.engine.kv_events import KVEventsEndpoint


def stored(*keys: int, parent: int | None = None, token_ids: tuple[int, ...] = ()) -> dict[str, Any]:
    """A block-stored event in the form that vLLM 0.32 sends, further fields included."""
    return {
        "type": "BlockStored",
        "block_hashes": list(keys),
        "parent_block_hash": parent,
        "token_ids": list(token_ids),
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "group_idx": 0,
    }


def removed(*keys: int, medium: str = "GPU") -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(keys), "medium": medium}


CLEARED = {"type": "AllBlocksCleared"}


class Publisher:
    """Publishes batches on one thread, as vLLM does, and answers replay requests between them."""

    def __init__(self, endpoint: KVEventsEndpoint, *, kept: int = 10_000, first: int = 0) -> None:
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.PUB)
        if endpoint.subscriber_binds:
            self._live.connect(endpoint.live)
        else:
            self._live.bind(endpoint.live)
        self._replay = None
        if endpoint.replay is not None:
            self._replay = self._context.socket(zmq.ROUTER)
            self._replay.bind(endpoint.replay)
        self._buffer: list[tuple[bytes, bytes]] = []
        self._kept = kept
        self._next = first
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def publish(self, *events: dict[str, Any], lose: bool = False, at: float | None = None) -> None:
        """Send one batch; with `lose` only the replay buffer gets it."""
        with self._lock:
            sequence = self._next.to_bytes(8, "big")
            payload = msgspec.msgpack.encode([time.time() if at is None else at, list(events), 0])
            self._next += 1
            self._buffer = [*self._buffer, (sequence, payload)][-self._kept :]
            if not lose:
                self._live.send_multipart((b"", sequence, payload))

    def _answer(self) -> None:
        while not self._ended.wait(0.01):
            if self._replay is None or not self._replay.poll(0):
                continue
            client, _, start = self._replay.recv_multipart()
            with self._lock:
                for sequence, payload in self._buffer:
                    if sequence >= start:
                        self._replay.send_multipart((client, b"", b"", sequence, payload))
                self._replay.send_multipart((client, b"", b"", b"\xff" * 8, b""))

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._live.close(linger=0)
        if self._replay is not None:
            self._replay.close(linger=0)
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
