"""A headless Chromium that a test drives: DevTools messages over two pipes, so nothing listens on a port."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

COMMAND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""None: this machine has no Chromium."""

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)


class Tab:
    """One page: what it evaluates to, the keys and the pointer it gets, the requests it makes."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, os.fdopen(read, "rb", buffering=0)
        self._rest = b""
        self._last = 0
        self._session: str | None = None
        self._page: str | None = None
        self._frames: list[str] = []
        self.requests: list[str] = []
        """URLs of all requests since the tab was opened."""
        self.problems: list[str] = []
        """Exceptions and errors of the page's console."""

    def attach(self) -> None:
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        self._page = self._session

    def send(self, method: str, **params: object) -> dict[str, Any]:
        """One command and its result; events that come before it are noted."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(self, page: Path, fragment: str = "") -> None:
        """Go to a file and wait until the page says that it is drawn (or that it failed)."""
        self._session = self._page
        self._frames.clear()
        self.send("Page.navigate", url="about:blank")  # another fragment alone would load nothing
        self.send("Page.navigate", url=f"{page.as_uri()}#{fragment}")
        state = "document.documentElement?.dataset"
        self.wait_for(f"{state}.ready || {state}.failed")
        self.settle()

    def enter_frame(self) -> None:
        """From now on everything goes to the page's frame (which has a process of its own), until the next `open`."""
        while not self._frames:
            self.evaluate("0")
            time.sleep(0.02)
        self._session = self._frames[-1]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Until the expression is true; the test's own time limit ends the waiting."""
        while not self.evaluate(f"Boolean({expression})"):
            time.sleep(0.02)

    def settle(self) -> None:
        """Let the page draw what it has queued."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, key: str, *, shift: bool = False) -> None:
        """A key goes down and up."""
        text = key if len(key) == 1 else ""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, text=text, modifiers=8 if shift else 0)
        self.settle()

    def point(self, x: float, y: float) -> None:
        """The pointer moves to a place of the window."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, x: float, y: float) -> None:
        """A click with the left button."""
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def wheel(self, x: float, y: float, turn: float) -> None:
        """The wheel turns over a place; negative turns away from the user."""
        self.send("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=turn)
        self.settle()

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = self._read.read(1 << 16)
            assert chunk, "Chromium has ended"
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"].partition("#")[0])
            case "Target.attachedToTarget":
                self._frames.append(params["sessionId"])
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.problems.append(params["entry"]["text"])


@contextmanager
def chromium(width: int = 1300, height: int = 1000) -> Iterator[Tab]:
    """A fresh browser with an empty profile; it ends with the block."""
    assert COMMAND is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        # The launcher wants its pipes as descriptors 3 and 4; a shell's redirections put them there.
        line = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
        words = [*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
        process = subprocess.Popen(
            ["/bin/bash", "-c", line, COMMAND, *words],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        tab = Tab(to_write, from_read)
        try:
            tab.attach()
            yield tab
        finally:
            process.terminate()
            process.wait()
            os.close(to_write)
