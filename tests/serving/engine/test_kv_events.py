"""Endpoints, subscriptions and the live mirror, against a publisher that loses what it is told to lose."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.engine import KVEventsEndpoint, lab_endpoint
from serving.engine.kv_events import prepare
from serving.engine.live_mirror import Change, LiveMirror, Notice
from serving.engine.subscription import KVEventSubscription
from serving.errors import LabError, UsageError
from tests.support.kv_publisher import CLEARED, Publisher, removed, stored


@pytest.fixture
def endpoint(tmp_path: Path) -> KVEventsEndpoint:
    return KVEventsEndpoint(live=f"ipc://{tmp_path}/e", replay=f"ipc://{tmp_path}/r")


def follow(mirror: LiveMirror, until: Callable[[list[Change]], bool]) -> list[Change]:
    """Every change until the condition holds; a failure after ten seconds."""
    changes: list[Change] = []
    deadline = time.monotonic() + 10
    while not until(changes):
        assert time.monotonic() < deadline, f"the condition never held; seen: {changes}"
        changes += mirror.advance(0.05)
    return changes


def seen(number: int) -> Callable[[list[Change]], bool]:
    return lambda changes: any(change.step.sequence == number for change in changes)


def notices(changes: list[Change]) -> list[Notice]:
    return [notice for change in changes for notice in change.notices]


def publish_until_seen(publisher: Publisher, mirror: LiveMirror) -> list[Change]:
    """A subscription takes a moment to reach its publisher: send empty batches until one arrives."""
    changes: list[Change] = []
    deadline = time.monotonic() + 10
    while not changes:
        assert time.monotonic() < deadline
        publisher.publish()
        changes += mirror.advance(0.05)
    return changes


@pytest.mark.parametrize(
    ("address", "binds"),
    [
        ("ipc:///tmp/x", False),
        ("inproc://x", False),
        ("tcp://*:5557", False),
        ("tcp://[::]:5557", False),
        ("tcp://127.0.0.1:5557", True),
        ("tcp://localhost:5557", True),
    ],
)
def test_who_binds_follows_the_engines_rule(address: str, binds: bool) -> None:
    assert KVEventsEndpoint(live=address).subscriber_binds is binds


def test_the_labs_sockets_follow_from_the_port_and_lie_in_a_folder_of_this_user(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    endpoint = lab_endpoint(8123, environ)
    assert endpoint == lab_endpoint(8123, environ) != lab_endpoint(8124, environ)
    endpoint.check()
    prepare(endpoint)
    [folder] = {path.parent for path in endpoint.socket_paths}
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(UsageError, match="nobody else"):
        prepare(endpoint)


def test_sockets_of_engines_that_ended_are_removed_and_those_in_use_stay(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    ended, running = lab_endpoint(8123, environ), lab_endpoint(8124, environ)
    prepare(ended)
    note = ended.socket_paths[0].with_name("note.events")
    note.write_text("no socket")
    for path in ended.socket_paths:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    with Publisher(running):
        prepare(running)
        assert not any(path.exists() for path in ended.socket_paths)
        assert all(path.exists() for path in running.socket_paths)
    assert note.exists()


def test_a_socket_path_that_no_system_takes_is_refused_before_the_start() -> None:
    with pytest.raises(UsageError, match="100 bytes"):
        KVEventsEndpoint(live=f"ipc:///{'x' * 101}").check()


def test_a_mirror_that_comes_late_catches_up_from_the_replay(endpoint: KVEventsEndpoint) -> None:
    with Publisher(endpoint) as publisher:
        publisher.publish(stored(1, 2))
        publisher.publish(removed(2), stored(3, parent=1))
        with KVEventSubscription(endpoint) as subscription:
            mirror = LiveMirror(subscription)
            changes = follow(mirror, seen(1))
            assert notices(changes) == [Notice.CAUGHT_UP]
            assert mirror.mirror.complete
            assert mirror.mirror.contents() == {1: 1, 3: 1}


def test_batches_that_come_live_after_they_were_replayed_are_no_restart(endpoint: KVEventsEndpoint) -> None:
    with Publisher(endpoint) as publisher, KVEventSubscription(endpoint) as subscription:
        publish_until_seen(publisher, LiveMirror(subscription))
        publisher.publish(stored(1))
        publisher.publish(stored(2))
        late = LiveMirror(subscription)
        changes = follow(late, lambda _: late.mirror.blocks == 2)
        publisher.publish(stored(3))
        changes += follow(late, lambda _: late.mirror.blocks == 3)
        assert notices(changes) == [Notice.CAUGHT_UP]
        assert late.mirror.contents() == {1: 1, 2: 1, 3: 1}


def test_a_gap_is_filled_from_the_replay(endpoint: KVEventsEndpoint) -> None:
    with Publisher(endpoint) as publisher, KVEventSubscription(endpoint) as subscription:
        mirror = LiveMirror(subscription)
        publish_until_seen(publisher, mirror)
        publisher.publish(stored(1), lose=True)
        publisher.publish(stored(2), lose=True)
        publisher.publish(stored(3))
        changes = follow(mirror, lambda _: mirror.mirror.blocks == 3)
        assert Notice.GAP_FILLED in notices(changes)
        assert mirror.mirror.complete


def test_a_gap_that_nobody_can_fill_is_said_and_a_reset_ends_it(tmp_path: Path) -> None:
    endpoint = KVEventsEndpoint(live=f"ipc://{tmp_path}/e")
    with Publisher(endpoint) as publisher, KVEventSubscription(endpoint) as subscription:
        mirror = LiveMirror(subscription)
        publish_until_seen(publisher, mirror)
        publisher.publish(CLEARED, stored(1))
        follow(mirror, lambda _: mirror.mirror.complete and mirror.mirror.blocks == 1)
        publisher.publish(stored(1), lose=True)
        publisher.publish(stored(2))
        changes = follow(mirror, lambda changes: Notice.LOST in notices(changes))
        assert changes[-1].step.missed == 1
        assert not mirror.mirror.complete
        publisher.publish(CLEARED)
        assert notices(follow(mirror, lambda _: mirror.mirror.complete)) == [Notice.TRUE_AGAIN]


def test_a_replay_that_forgot_the_beginning_makes_no_complete_mirror(endpoint: KVEventsEndpoint) -> None:
    with Publisher(endpoint, kept=2) as publisher:
        for key in range(5):
            publisher.publish(stored(key))
        with KVEventSubscription(endpoint) as subscription:
            mirror = LiveMirror(subscription)
            changes = follow(mirror, seen(4))
            assert notices(changes) == [Notice.LOST]
            assert changes[0].step.missed == 3
            assert not mirror.mirror.complete


def test_an_engine_that_was_started_anew_begins_a_new_mirror(endpoint: KVEventsEndpoint) -> None:
    with KVEventSubscription(endpoint) as subscription:
        mirror = LiveMirror(subscription)
        with Publisher(endpoint) as publisher:
            publish_until_seen(publisher, mirror)
            for key in range(8):
                publisher.publish(stored(key))
            follow(mirror, lambda _: mirror.mirror.blocks == 8)
        with Publisher(endpoint) as publisher:
            changes = publish_until_seen(publisher, mirror)
            publisher.publish(stored(77))
            changes += follow(mirror, lambda _: 77 in mirror.mirror.contents())
            assert Notice.RESTARTED in notices(changes)
            assert mirror.mirror.complete
            assert mirror.mirror.contents() == {77: 1}


def test_copies_in_other_tiers_are_no_blocks_of_the_pool(endpoint: KVEventsEndpoint) -> None:
    with Publisher(endpoint) as publisher, KVEventSubscription(endpoint) as subscription:
        publisher.publish(stored(1), {**stored(2), "medium": "CPU"})
        publisher.publish(removed(1, medium="CPU"))
        mirror = LiveMirror(subscription)
        follow(mirror, seen(1))
        assert mirror.mirror.contents() == {1: 1}
        assert mirror.mirror.complete


def test_a_subscriber_binds_where_the_engine_connects() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = KVEventsEndpoint(live=f"tcp://127.0.0.1:{port}")
    with KVEventSubscription(endpoint) as subscription, Publisher(endpoint) as publisher:
        mirror = LiveMirror(subscription)
        assert publish_until_seen(publisher, mirror)


def test_an_address_that_is_taken_or_none_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(LabError, match="check the address"):
            KVEventSubscription(KVEventsEndpoint(live=f"tcp://127.0.0.1:{taken.getsockname()[1]}"))
    with pytest.raises(LabError, match="check the address"):
        KVEventSubscription(KVEventsEndpoint(live="nonsense://x"))


def test_events_in_another_form_are_refused_by_name(endpoint: KVEventsEndpoint) -> None:
    with Publisher(endpoint) as publisher, KVEventSubscription(endpoint) as subscription:
        publisher.publish({"type": "SomethingNew"})
        with pytest.raises(LabError, match=r"vLLM 0\.32"):
            LiveMirror(subscription).advance(0.1)
