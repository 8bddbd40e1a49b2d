"""A long log made line by line: many conversations in turns, none of it kept in memory."""

from __future__ import annotations

import json
import random
from pathlib import Path

_WORDS = (
    *("the", "a", "north", "south", "and", "of", "is", "in", "with", "for", "open", "late", "deep", "free"),
    *(
        "berth",
        "crane",
        "ship",
        "tide",
        "harbour",
        "light",
        "wind",
        "fog",
        "tower",
        "depth",
        "cargo",
        "order",
    ),
    *("price", "list", "file", "answer", "question", "token", "block", "cache", "server", "request", "tool"),
)


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(count)).capitalize() + "."


def write_big_log(
    path: Path, *, least_bytes: int, conversations: int = 40, turns: int = 20, seed: int = 0
) -> int:
    """Write at least so many bytes; give the number of requests.

    Batches of `conversations` take turns until each has had `turns`, then the next batch begins. Every fifth
    conversation has a clock at its head, so that there is something to find.
    """
    rng = random.Random(seed)
    rules = words(rng, 120)
    requests = written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < least_bytes:
            batch: list[list[dict[str, str]]] = [[] for _ in range(conversations)]
            for turn in range(turns):
                for number, messages in enumerate(batch):
                    messages.append({"role": "user", "content": words(rng, rng.randint(20, 120))})
                    now = f"Now: 2026-03-02T{turn:02}:{number:02}:07Z. " if number % 5 == 0 else ""
                    head = {"role": "system", "content": now + rules}
                    written += file.write(json.dumps({"model": "m", "messages": [head, *messages]}) + "\n")
                    requests += 1
                    messages.append({"role": "assistant", "content": words(rng, rng.randint(40, 240))})
    return requests
