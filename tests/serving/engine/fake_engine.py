"""A stand-in for vLLM in tests: the same log lines, the same endpoints, the same process habits, at once.

Words in FAKE_ENGINE choose its behaviour: `endless` (never ready), `stubborn` (ignores SIGTERM), `worker` (a
child that the engine cannot live without), `detached` (an orphaned grandchild in a session of its own),
`fatal` (reports a fatal error and lives on), `stranger` (lists another model's name).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

WORDS = os.environ.get("FAKE_ENGINE", "").split()
SLEEPER = "import time; time.sleep(600)"
ORPHAN = (
    "import subprocess, sys; "
    f"subprocess.Popen([sys.executable, '-c', {SLEEPER!r}, sys.argv[1]], start_new_session=True)"
)


def option(name: str, count: int = 1) -> list[str]:
    if name not in sys.argv:
        return []
    rest = sys.argv[sys.argv.index(name) + 1 :]
    end = next((index for index, word in enumerate(rest) if word.startswith("--")), len(rest))
    return rest[:end]


def say(text: str) -> None:
    print(text, flush=True)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        names = ["somebody-else"] if "stranger" in WORDS else option("--served-model-name")
        key = os.environ.get("VLLM_API_KEY")
        denied = self.path.startswith("/v1") and key and self.headers.get("Authorization") != f"Bearer {key}"
        body = (
            b"" if self.path == "/health" else json.dumps({"data": [{"id": name} for name in names]}).encode()
        )
        self.send_response(401 if denied else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def watch(worker: subprocess.Popen[bytes]) -> None:
    worker.wait()
    say(
        f"(EngineCore pid={os.getpid()}) ERROR 01-01 00:00:00 [multiproc_executor.py:300] "
        "Worker proc VllmWorker-0 died unexpectedly, shutting down executor."
    )
    time.sleep(30)  # as vLLM's parent process does, it lives on for a while


def main() -> None:
    marker = os.environ["FAKE_MARKER"]
    if "stubborn" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("(APIServer pid=1) INFO 01-01 00:00:00 [api_utils.py:286] non-default args: {}")
    if "worker" in WORDS:
        worker = subprocess.Popen([sys.executable, "-c", SLEEPER, marker, "VllmWorker"])
        threading.Thread(target=watch, args=(worker,), daemon=True).start()
    if "detached" in WORDS:
        subprocess.run([sys.executable, "-c", ORPHAN, marker], check=True, start_new_session=True)
    say("(Worker pid=2) INFO 01-01 00:00:00 [cpu_model_runner.py:68] Starting to load model /models/fake...")
    if "endless" in WORDS:
        time.sleep(600)
    if "fatal" in WORDS:
        say("(EngineCore pid=3) ERROR 01-01 00:00:00 [core.py:1400] EngineCore failed to start.")
        say("(EngineCore pid=3) ERROR 01-01 00:00:00 [core.py:1400] ValueError: the dog ate the weights")
        time.sleep(600)
    say("(EngineCore pid=3) INFO 01-01 00:00:00 [kv_cache_utils.py:2327] CPU KV cache size: 1,024 tokens")
    server = HTTPServer(("127.0.0.1", int(option("--port")[0])), Handler)
    say("(APIServer pid=1) INFO 01-01 00:00:00 [entry.py:140] Starting vLLM server on http://127.0.0.1")
    server.serve_forever()


main()
