"""What earlier requests left behind, searchable by the longest shared prefix."""

from __future__ import annotations

import weakref
from contextlib import suppress
from tempfile import SpooledTemporaryFile, gettempdir
from typing import IO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
_ID = 4
"""Bytes of an id."""

IN_MEMORY: Final = 16_000_000
"""Bytes of ids that are held in memory; more than that go to a file without a name, which ends with its process."""


class Match(NamedTuple):
    """The latest of the earlier requests that share the longest prefix with a prompt."""

    shared: int
    """Leading tokens in common."""
    request: int
    """Which earlier request, counted from 0."""
    stored: int
    """Tokens of that request whose KV the engine kept (see `PrefixRequest.stored_tokens`)."""


class Best(NamedTuple):
    """The best earlier request with the prompt's own salt, and the best with any salt."""

    same_salt: Match | None
    any_salt: Match | None


class _Visit(NamedTuple):
    request: int
    stored: int


class _Runs:
    """The ids of all runs as bytes, one run after another: whole runs are compared at once, as bytes."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - closed when nobody holds this any more
        self._end = 0
        weakref.finalize(self, _close, self._file)

    def put(self, data: bytes) -> int:
        """Keep a run; give where it begins. Raises: OSError with the folder that has no room."""
        begin = self._end
        try:
            self._file.seek(begin)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror} (see TMPDIR)", gettempdir()) from error
        self._end += len(data)
        return begin

    def get(self, begin: int, size: int) -> bytes:
        """So many bytes from a place on."""
        self._file.seek(begin)
        return self._file.read(size)


def _close(file: IO[bytes]) -> None:
    """What could not be written any more is not wanted any more."""
    with suppress(OSError):
        file.close()


class _Node:
    """A run of ids that every request below it shares, and who came through last."""

    __slots__ = ("begin", "by_salt", "children", "latest", "size")

    def __init__(self, begin: int, size: int) -> None:
        self.begin, self.size = begin, size
        """Where the run lies among all runs, in bytes."""
        self.children: dict[bytes, _Node] = {}
        self.by_salt: dict[str | None, _Visit] = {}
        self.latest: _Visit | None = None

    def mark(self, salt: str | None, visit: _Visit) -> None:
        self.by_salt[salt] = visit
        self.latest = visit

    def split(self, at: int, first_of_rest: bytes) -> _Node:
        """Cut the run at a byte; give the upper node, which has this one as its child and the same visits."""
        upper = _Node(self.begin, at)
        upper.by_salt = dict(self.by_salt)
        upper.latest = self.latest
        self.begin, self.size = self.begin + at, self.size - at
        upper.children[first_of_rest] = self
        return upper


class StoredIds:
    """A compressed prefix tree over the stored ids of all requests so far, of all salts.

    A stored sequence always ends at a node, so the requests through a node share the whole of its run. The
    size grows with distinct ids and distinct ends, not with the number or the length of requests; in memory it
    grows with distinct ends alone.
    """

    def __init__(self) -> None:
        self._runs = _Runs()
        self._root = _Node(0, 0)

    def held_ids(self) -> int:
        """Count the ids that the tree holds: each once, however many requests share it."""
        nodes, held = [self._root], 0
        while nodes:
            node = nodes.pop()
            held += node.size // _ID
            nodes.extend(node.children.values())
        return held

    def best(self, ids: Ids, salt: str | None) -> Best:
        """Find the longest prefix of `ids` stored under `salt`, and under any salt; among equals the latest.

        With nothing in common the match is the latest request, 0 tokens shared; None before the first one.
        """
        data, node = ids.tobytes(), self._root
        any_visit, any_at = node.latest, 0
        same_visit, same_at = node.by_salt.get(salt), 0
        same_salt_goes_on = same_visit is not None
        at, end = 0, len(data)
        while at < end:
            child = node.children.get(data[at : at + _ID])
            if child is None:
                break
            run = self._runs.get(child.begin, child.size)
            whole = data.startswith(run, at)
            at += len(run) if whole else _shared_bytes(run, data, at)
            any_visit, any_at = child.latest, at
            if same_salt_goes_on:
                visit = child.by_salt.get(salt)
                if visit is None:
                    same_salt_goes_on = False
                else:
                    same_visit, same_at = visit, at
            if not whole:
                break
            node = child
        return Best(_match(same_at // _ID, same_visit), _match(any_at // _ID, any_visit))

    def add(self, ids: Ids, salt: str | None, request: int) -> None:
        """Record that `request` left `ids` behind under `salt`."""
        visit = _Visit(request, len(ids))
        data, node = ids.tobytes(), self._root
        node.mark(salt, visit)
        at, end = 0, len(data)
        while at < end:
            first = data[at : at + _ID]
            child = node.children.get(first)
            if child is None:
                child = _Node(self._runs.put(data[at:]), end - at)
                node.children[first] = child
            else:
                run = self._runs.get(child.begin, child.size)
                if not data.startswith(run, at):
                    cut = _shared_bytes(run, data, at)
                    child = child.split(cut, run[cut : cut + _ID])
                    node.children[first] = child
            child.mark(salt, visit)
            at += child.size
            node = child


def _shared_bytes(run: bytes, data: bytes, at: int) -> int:
    """Count the leading bytes of whole ids that a run has in common with `data` from byte `at` on."""
    return _ID * common_prefix(
        np.frombuffer(run, dtype=np.int32), np.frombuffer(data, dtype=np.int32, offset=at)
    )


def common_prefix(left: Ids, right: Ids) -> int:
    """Count the leading ids that two arrays have in common."""
    length = min(len(left), len(right))
    if length == 0:
        return 0
    differs = left[:length] != right[:length]
    first = int(differs.argmax())
    return first if differs[first] else length


def _match(shared: int, visit: _Visit | None) -> Match | None:
    return None if visit is None else Match(shared, visit.request, visit.stored)
