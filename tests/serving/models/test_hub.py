"""Pulls from a hub of our own, in a child: huggingface_hub reads the address while it is imported."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from serving.models.hub import hub_answers, hub_offline, is_hub_id

COMMIT = "1234567890abcdef1234567890abcdef12345678"
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "max_position_embeddings": 64}
TEMPLATE = "{% if tools %}<tool_call>{% endif %}<think>"

PULL = """
import sys
from pathlib import Path
from serving.errors import LabError
from serving.models import ensure
try:
    print(ensure(sys.argv[1], cache=Path(sys.argv[2])).model_dump_json())
except LabError as error:
    sys.exit(str(error))
"""


class FakeHub(ThreadingHTTPServer):
    """The two routes that a pull needs: what a repository holds, and its files."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.served = dict(files)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def info(self) -> dict[str, Any]:
        siblings = []
        for name, content in self.files.items():
            sibling: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": "0" * 40}
            if name.endswith(".safetensors"):
                digest = hashlib.sha256(content).hexdigest()
                sibling["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
            siblings.append(sibling)
        return {"id": "a/m", "sha": COMMIT, "siblings": siblings, "cardData": {"license": "mit"}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeHub

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *args: object) -> None:
        return

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.split("?")[0]
        self.server.asked.append(path)
        body, status = b"", 404
        if path.startswith("/api/models/a/m"):
            body, status = json.dumps(self.server.info()).encode(), 200
        elif path.startswith("/a/m/resolve/") and (name := path.split("/", 5)[5]) in self.server.served:
            body, status = self.server.served[name], 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer_config.json": json.dumps({"chat_template": TEMPLATE}).encode(),
        "model.safetensors": b"weights" * 1000,
        "modeling.py": b"print('not this')",
        "pytorch_model.bin": b"nor this",
    }
    server = FakeHub(files)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def pull(hub: FakeHub, name: str, cache: Path) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environ = {**clean, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(cache / "hf")}
    environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    return subprocess.run(
        [sys.executable, "-c", PULL, name, str(cache)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_pull_by_id_records_the_commit_and_takes_nothing_that_runs(hub: FakeHub, tmp_path: Path) -> None:
    done = pull(hub, "a/m", tmp_path)
    assert done.returncode == 0, done.stderr
    folder = json.loads(done.stdout)
    assert (folder["name"], folder["revision"], folder["license"]) == ("a/m", COMMIT, "mit")
    assert (folder["tool_parser"], folder["reasoning_parser"]) == ("hermes", "qwen3")
    assert folder["weights_sha256"] == hashlib.sha256(hub.files["model.safetensors"]).hexdigest()
    names = {path.name for path in Path(folder["path"]).iterdir()}
    assert names == {"config.json", "tokenizer_config.json", "model.safetensors", "ctxlab.json"}


def test_weights_with_another_digest_are_refused_and_then_fetched_again(hub: FakeHub, tmp_path: Path) -> None:
    good = hub.files["model.safetensors"]
    hub.served["model.safetensors"] = b"Weights" * 1000
    refused = pull(hub, "a/m", tmp_path)
    assert refused.returncode == 1
    assert f"SHA-256 {hashlib.sha256(good).hexdigest()}, but it has" in refused.stderr
    assert not list((tmp_path / "models").iterdir())
    hub.served["model.safetensors"] = good
    assert pull(hub, "a/m", tmp_path).returncode == 0


def test_a_repository_that_is_not_there_is_a_clear_error(hub: FakeHub, tmp_path: Path) -> None:
    done = pull(hub, "a/other", tmp_path)
    assert done.returncode == 1
    assert "Expected a/other on the hub, but it is not there" in done.stderr


def test_one_head_request_tells_whether_the_hub_answers(hub: FakeHub) -> None:
    assert hub_answers("a/m", {"HF_ENDPOINT": hub.url}) is True
    assert hub_answers("a/other", {"HF_ENDPOINT": hub.url}) is False
    assert hub.asked == ["/a/m/resolve/main/config.json", "/a/other/resolve/main/config.json"]
    assert hub_answers("a/m", {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "1"}) is False
    assert len(hub.asked) == 2


@pytest.mark.parametrize(("value", "offline"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_offline_is_read_as_the_hub_library_does(value: str, offline: bool) -> None:
    assert hub_offline({"HF_HUB_OFFLINE": value}) is offline


@pytest.mark.parametrize(
    ("name", "valid"), [("Qwen/Qwen3-0.6B", True), ("qwen3", False), ("a/b/c", False), ("../x", False)]
)
def test_a_hub_id_is_owner_and_repository(name: str, valid: bool) -> None:
    assert is_hub_id(name) is valid
