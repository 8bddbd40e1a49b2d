from __future__ import annotations

import asyncio
import socket

from serving.client.turnstile import Turnstile


def test_the_loop_looks_at_its_sockets_between_any_two_pieces_of_work():
    async def scene() -> list[str]:
        loop, turnstile, happened = asyncio.get_running_loop(), Turnstile(), []
        ours, theirs = socket.socketpair()

        def readable() -> None:
            theirs.recv(1)
            happened.append("poll")

        loop.add_reader(theirs, readable)

        async def work() -> None:
            await turnstile.turn()
            happened.append("work")
            ours.send(b"x")  # bytes that arrive during the work

        await asyncio.gather(*(work() for _ in range(20)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        loop.remove_reader(theirs)
        ours.close()
        theirs.close()
        return happened

    assert asyncio.run(scene()) == ["work", "poll"] * 20
