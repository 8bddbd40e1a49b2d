"""Where an engine tells what happens to its KV blocks, and who has to open which end of the line."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from serving.errors import UsageError

_LONGEST_SOCKET_PATH = 100  # Linux takes 107 bytes, macOS 103, and a terminating zero

_SUFFIXES = (".events", ".replay")


class KVEventsEndpoint(BaseModel):
    """The two ZMQ addresses of an engine's KV events, as vLLM's `--kv-events-config` has them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    live: str
    """Events as they happen (PUB)."""
    replay: str | None = None
    """Batches that were missed, on request (ROUTER); None: what is lost stays lost."""

    @property
    def subscriber_binds(self) -> bool:
        """Whether the engine connects, so that the subscriber must bind.

        vLLM binds wildcards, `ipc://` and `inproc://`, and connects to everything else, `tcp://host:port`
        among it (`ZmqEventPublisher._is_bind_endpoint`).
        """
        wildcard = "*" in self.live or "::" in self.live
        return not wildcard and not self.live.startswith(("ipc://", "inproc://"))

    @property
    def socket_paths(self) -> tuple[Path, ...]:
        """The files behind `ipc://` addresses."""
        addresses = [address for address in (self.live, self.replay) if address is not None]
        return tuple(
            Path(address.removeprefix("ipc://")) for address in addresses if address.startswith("ipc://")
        )

    def flag_value(self) -> str:
        """The value of `--kv-events-config`."""
        config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": self.live}
        if self.replay is not None:
            config["replay_endpoint"] = self.replay
        return json.dumps(config)

    def check(self) -> None:
        """Refuse what would tell the world: events carry the token ids of every prompt, and ask for no key.

        Raises `UsageError` for an address that other machines reach, and for a socket path that is too long.
        """
        for address in (self.live, self.replay):
            if address is not None and not address.startswith(("ipc://", "tcp://127.0.0.1:", "tcp://[::1]:")):
                raise UsageError(
                    f"KV events carry every prompt's token ids and ask for no key, and {address} can be reached "
                    "from other machines: use an ipc:// address or one on 127.0.0.1."
                )
        for path in self.socket_paths:
            if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
                raise UsageError(
                    f"A socket's path has at most {_LONGEST_SOCKET_PATH} bytes, and {path} has "
                    f"{len(os.fsencode(path))}: set XDG_RUNTIME_DIR or TMPDIR to a shorter folder."
                )


def lab_endpoint(port: int, environ: Mapping[str, str] | None = None) -> KVEventsEndpoint:
    """The addresses under which a server of the lab on `port` tells its events: two sockets of this user.

    They follow from the port, so that whoever knows the URL finds them.
    """
    folder = events_folder(environ)
    return KVEventsEndpoint(
        live=f"ipc://{folder / f'{port}{_SUFFIXES[0]}'}", replay=f"ipc://{folder / f'{port}{_SUFFIXES[1]}'}"
    )


def events_folder(environ: Mapping[str, str] | None = None) -> Path:
    """This user's folder of event sockets, under XDG_RUNTIME_DIR where there is one."""
    environ = os.environ if environ is None else environ
    runtime = environ.get("XDG_RUNTIME_DIR")
    return Path(runtime or tempfile.gettempdir()) / f"ctxlab-{os.getuid()}"


def prepare(endpoint: KVEventsEndpoint) -> None:
    """Make the folder that holds the sockets, for this user only; whoever may read them reads every prompt.

    Sockets of engines that ended are removed: a process that is killed leaves its own behind. Raises
    `UsageError` where the folder is there and another user's, or open to others.
    """
    for folder in dict.fromkeys(path.parent for path in endpoint.socket_paths):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise UsageError(
                f"The sockets of KV events need a folder of your own that nobody else can open, and {folder} "
                "is none: remove it, or set XDG_RUNTIME_DIR to another place."
            )
        for path in folder.iterdir():
            if path.suffix in _SUFFIXES and path.is_socket() and not listens(path):
                path.unlink(missing_ok=True)


def listens(path: Path) -> bool:
    """Whether anybody holds the other end of a socket; False where there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(2.0)
        try:
            line.connect(str(path))
        except OSError:
            return False
        return True
