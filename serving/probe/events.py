"""Where a server tells what happens to its KV blocks, as seen from this machine."""

from __future__ import annotations

from urllib.parse import urlsplit

from serving.engine.config import LOOPBACK_HOSTS
from serving.engine.kv_events import KVEventsEndpoint, lab_endpoint, listens
from serving.errors import LabError
from serving.probe.server_info import ServerInfo, read_server_info
from serving.text import server_root

_HOW = (
    "start it with `ctxlab serve --kv-events`, or vLLM with --kv-events-config and an ipc:///… endpoint, "
    "or give the address to `ctxlab watch --endpoint`"
)


def find_kv_events(url: str, api_key: str | None = None) -> KVEventsEndpoint:
    """Find the address of a server's KV events; raises `LabError` where they are off, or cannot be reached.

    A server in development mode (every one of the lab's) tells; else the sockets that the lab gives to a
    server on that port are tried.
    """
    root = server_root(url)
    info = read_server_info(root, api_key)
    endpoint = _told(info, root) if info is not None else _guessed(root)
    missing = [path for path in endpoint.socket_paths if not listens(path)]
    if missing:
        raise LabError(
            f"The server at {root} tells its KV events at {missing[0]}, and nobody listens there on this machine: "
            "watch on the machine that it runs on."
        )
    return endpoint


def _told(info: ServerInfo, root: str) -> KVEventsEndpoint:
    if info.kv_events is None:
        raise LabError(f"KV events are not on at {root}: {_HOW}.")
    host = urlsplit(root).hostname or "127.0.0.1"
    return KVEventsEndpoint(
        live=_reachable(info.kv_events.live, host),
        replay=None if info.kv_events.replay is None else _reachable(info.kv_events.replay, host),
    )


def _reachable(address: str, host: str) -> str:
    """An address that binds every interface is reached at the server's own host."""
    return address.replace("*", f"[{host}]" if ":" in host else host)


def _guessed(root: str) -> KVEventsEndpoint:
    parts = urlsplit(root)
    endpoint = lab_endpoint(parts.port or 80)
    here = parts.hostname in LOOPBACK_HOSTS
    if not here or not all(map(listens, endpoint.socket_paths)):
        raise LabError(
            f"{root} does not tell whether KV events are on (it has no /server_info), and no server of the lab "
            f"on this machine tells them for that port: {_HOW}."
        )
    return endpoint
