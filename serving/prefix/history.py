"""What earlier requests left behind, searchable by the longest shared prefix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


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


class _Node:
    """A run of ids that every request below it shares, and who came through last."""

    __slots__ = ("by_salt", "children", "ids", "latest")

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self.children: dict[int, _Node] = {}
        self.by_salt: dict[str | None, _Visit] = {}
        self.latest: _Visit | None = None

    def mark(self, salt: str | None, visit: _Visit) -> None:
        self.by_salt[salt] = visit
        self.latest = visit

    def split(self, at: int) -> _Node:
        """Cut the run in two; give the upper node, which has this one as its child and the same visits."""
        upper = _Node(self.ids[:at])
        upper.by_salt = dict(self.by_salt)
        upper.latest = self.latest
        self.ids = self.ids[at:]
        upper.children[int(self.ids[0])] = self
        return upper


class StoredIds:
    """A compressed prefix tree over the stored ids of all requests so far, of all salts.

    A stored sequence always ends at a node, so the requests through a node share the whole of its run. The
    size grows with distinct ids and distinct ends, not with the number or the length of requests.
    """

    def __init__(self) -> None:
        self._root = _Node(np.empty(0, dtype=np.int32))

    def held_ids(self) -> int:
        """Count the ids that the tree holds: each once, however many requests share it."""
        nodes, held = [self._root], 0
        while nodes:
            node = nodes.pop()
            held += len(node.ids)
            nodes.extend(node.children.values())
        return held

    def best(self, ids: Ids, salt: str | None) -> Best:
        """Find the longest prefix of `ids` stored under `salt`, and under any salt; among equals the latest.

        With nothing in common the match is the latest request, 0 tokens shared; None before the first one.
        """
        node, depth = self._root, 0
        any_salt = _match(0, node.latest)
        same_salt = _match(0, node.by_salt.get(salt))
        same_salt_goes_on = same_salt is not None
        while depth < len(ids):
            child = node.children.get(int(ids[depth]))
            if child is None:
                break
            shared = common_prefix(child.ids, ids[depth:])
            depth += shared
            any_salt = _match(depth, child.latest)
            same_salt_goes_on = same_salt_goes_on and salt in child.by_salt
            if same_salt_goes_on:
                same_salt = _match(depth, child.by_salt[salt])
            if shared < len(child.ids):
                break
            node = child
        return Best(same_salt, any_salt)

    def add(self, ids: Ids, salt: str | None, request: int) -> None:
        """Record that `request` left `ids` behind under `salt`."""
        visit = _Visit(request, len(ids))
        node, depth = self._root, 0
        node.mark(salt, visit)
        while depth < len(ids):
            first = int(ids[depth])
            child = node.children.get(first)
            if child is None:
                # A copy: a view would keep the whole request alive for the sake of its tail.
                child = _Node(ids[depth:].copy())
                node.children[first] = child
            shared = common_prefix(child.ids, ids[depth:])
            if shared < len(child.ids):
                child = child.split(shared)
                node.children[first] = child
            child.mark(salt, visit)
            depth += shared
            node = child


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
