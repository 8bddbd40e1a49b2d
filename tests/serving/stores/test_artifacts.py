from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import LabError, UsageError
from serving.stores import ArtifactStore

RUN = "toolrun://req-42/step-3"


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts")


def test_a_reference_names_the_content_and_gives_it_back(store: ArtifactStore) -> None:
    kept = store.put("größe\r\n\0")
    data = "größe\r\n\0".encode()
    assert kept.uri == f"artifact://sha256/{hashlib.sha256(data).hexdigest()}"
    assert kept.size_bytes == len(data)
    assert store.get(kept.uri) == data
    assert store.resolve(kept.uri) == kept
    assert store.put(data) == kept


def test_a_tool_run_is_a_reference_of_its_own_for_the_same_content(store: ArtifactStore) -> None:
    by_run = store.put(b"rows", reference=RUN)
    by_content = store.put(b"rows")
    assert by_run.uri == RUN
    assert by_run.sha256 == by_content.sha256
    assert store.get(RUN) == store.get(by_content.uri) == b"rows"


def test_a_tool_run_never_changes_its_meaning(store: ArtifactStore) -> None:
    store.put(b"rows", reference=RUN)
    assert store.put(b"rows", reference=RUN).uri == RUN
    with pytest.raises(LabError, match="already stands for other content"):
        store.put(b"other rows", reference=RUN)
    assert store.get(RUN) == b"rows"


def test_what_was_never_put_does_not_resolve_and_cannot_be_shown(store: ArtifactStore) -> None:
    for reference in (RUN, f"artifact://sha256/{'0' * 64}"):
        assert store.resolve(reference) is None
        with pytest.raises(LabError, match="does not resolve"):
            store.get(reference)
        with pytest.raises(LabError, match="does not resolve"):
            store.freeze(reference, "see the archive")
        assert store.frozen(reference) is None


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "toolrun://",
        "toolrun://a/../b",
        "toolrun://./b",
        "toolrun://a//b",
        "toolrun://a/b\n",
        "toolrun://a b",
        "toolrun:///etc/passwd",
        f"toolrun://{'a' * 600}",
        "artifact://sha256/../../etc/passwd",
        f"artifact://sha256/{'A' * 64}",
        f"artifact://sha256/{'a' * 64}\n",
        "file:///etc/passwd",
        "toolrun://\ud800",
    ],
)
def test_a_text_that_is_no_reference_is_refused_everywhere(store: ArtifactStore, reference: str) -> None:
    for use in (store.resolve, store.get, store.frozen, lambda text: store.put(b"x", reference=text)):
        with pytest.raises(UsageError, match="Expected artifact://"):
            use(reference)


def test_a_content_address_is_not_given_by_hand(store: ArtifactStore) -> None:
    with pytest.raises(UsageError, match="toolrun"):
        store.put(b"x", reference=f"artifact://sha256/{'a' * 64}")


def test_the_stand_in_text_is_fixed_at_first_appearance_also_after_a_restart(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.put(b"rows", reference=RUN)
    first = "412 rows;\r\nfull output: toolrun://req-42/step-3 \u2028"
    assert store.freeze(RUN, first) == first
    assert store.freeze(RUN, "other words") == first
    assert ArtifactStore(tmp_path).freeze(RUN, "again other words") == first
    assert ArtifactStore(tmp_path).frozen(RUN) == first


def test_a_tool_result_carries_the_frozen_text_and_the_reference(store: ArtifactStore) -> None:
    kept = store.put(b"x" * 100_000)
    result = store.tool_result("c1", kept.uri, "100 kB of x", failed=True)
    assert (result.content, result.artifact_ref, result.failed) == ("100 kB of x", kept.uri, True)
    assert store.tool_result("c1", kept.uri, "100 kB, mostly x").content == "100 kB of x"


def test_an_empty_or_torn_stand_in_text_is_refused(store: ArtifactStore) -> None:
    kept = store.put(b"x")
    for text in ("", "torn \ud83d"):
        with pytest.raises(UsageError):
            store.freeze(kept.uri, text)
    assert store.frozen(kept.uri) is None


@pytest.mark.parametrize("area", ["objects", "references", "replacements", "incoming"])
def test_a_link_planted_as_an_area_is_not_followed(tmp_path: Path, area: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / area).symlink_to(outside)
    with pytest.raises(LabError, match="this store's own"):
        store = ArtifactStore(root)
        store.put(b"rows", reference=RUN)
        store.freeze(RUN, "text")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("planted", ["link", "pipe", "folder"])
def test_what_is_planted_under_the_name_of_an_artifact_is_neither_read_nor_written(
    tmp_path: Path, planted: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    sha256 = hashlib.sha256(b"secret").hexdigest()
    store = ArtifactStore(tmp_path / "root")
    store.put(b"other")
    place = tmp_path / "root" / "objects" / sha256
    if planted == "link":
        place.symlink_to(secret)
    elif planted == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    for use in (store.resolve, store.get):
        with pytest.raises(LabError):
            use(f"artifact://sha256/{sha256}")
    with pytest.raises(LabError):
        store.put(b"secret")
    assert secret.read_bytes() == b"secret"


def test_damaged_content_is_said_to_be_damaged(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    kept = store.put(b"rows", reference=RUN)
    (tmp_path / "objects" / kept.sha256).write_bytes(b"rowz")
    for use in (store.get, store.resolve, lambda _: store.put(b"rows")):
        with pytest.raises(LabError, match="holds other bytes"):
            use(RUN)


def test_a_root_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="Expected a folder"):
        ArtifactStore(tmp_path / "file")


def test_what_is_kept_is_readable_for_its_owner_only(tmp_path: Path) -> None:
    kept = ArtifactStore(tmp_path / "root").put(b"rows")
    for path in (tmp_path / "root", tmp_path / "root" / "objects" / kept.sha256):
        assert path.stat().st_mode & 0o077 == 0


WRITER = """
import itertools, sys
from pathlib import Path
from serving.stores import ArtifactStore
store = ArtifactStore(Path(sys.argv[1]))
for index in itertools.count():
    reference = f"toolrun://run/step-{index}"
    store.put(str(index).encode() * 200_000, reference=reference)
    print(reference, store.freeze(reference, f"text {index}"), sep="\\t", flush=True)
"""


def test_a_killed_writer_leaves_all_that_it_reported_and_nothing_half_made(
    tmp_path: Path, kill_after_lines: Callable[..., list[str]]
) -> None:
    reported: dict[str, str] = {}
    for pause in (0.0, 0.004):
        root = tmp_path / str(pause)
        printed = kill_after_lines(WRITER, str(root), lines=3, pause=pause)
        reported = dict(line.split("\t") for line in printed if "\t" in line)
        assert len(reported) >= 3
        store = ArtifactStore(root)
        for reference, text in reported.items():
            assert store.freeze(reference, "later words") == text
            assert store.get(reference) == reference.rpartition("-")[2].encode() * 200_000
        for path in (root / "objects").iterdir():
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        assert list((root / "incoming").iterdir()) == []


def test_a_new_store_does_not_disturb_a_writer_at_work(tmp_path: Path) -> None:
    from serving.stores.folder import _staged

    ArtifactStore(tmp_path)
    descriptor = os.open(tmp_path / "incoming", os.O_RDONLY)
    with _staged(descriptor, b"data") as name:
        (tmp_path / "incoming" / "left-by-a-dead-writer").write_bytes(b"ha")
        ArtifactStore(tmp_path)
        assert [path.name for path in (tmp_path / "incoming").iterdir()] == [name]
    os.close(descriptor)


RACER = """
import sys
from pathlib import Path
from serving.stores import ArtifactStore
for index in range(40):
    store = ArtifactStore(Path(sys.argv[1]))
    uri = store.put(str(index)).uri
    print(store.freeze(uri, f"{sys.argv[2]} saw {index}"))
"""


def test_two_processes_freeze_the_same_words(
    tmp_path: Path, run_at_once: Callable[..., list[list[str]]]
) -> None:
    first, second = run_at_once(RACER, (str(tmp_path), "a"), (str(tmp_path), "b"))
    assert len(first) == 40
    assert first == second


CONTENTS = st.sampled_from([b"", b"a", b"b", b"a" * 5_000])
REFERENCES = st.sampled_from([None, "toolrun://r/1", "toolrun://r/2"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), CONTENTS, REFERENCES),
        st.tuples(st.just("freeze"), CONTENTS, REFERENCES, st.text(min_size=1, max_size=5)),
        st.tuples(st.just("restart")),
    ),
    max_size=12,
)


@settings(max_examples=40)
@given(operations=OPERATIONS)
def test_any_sequence_of_operations_and_restarts_equals_a_dictionary(
    operations: list[tuple[object, ...]],
) -> None:
    kept: dict[str, bytes] = {}
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = ArtifactStore(Path(folder))
        for operation in operations:
            if operation[0] == "restart":
                store = ArtifactStore(Path(folder))
                continue
            content, reference = operation[1], operation[2]
            assert isinstance(content, bytes)
            uri = str(reference or f"artifact://sha256/{hashlib.sha256(content).hexdigest()}")
            if operation[0] == "put":
                # The content is kept under its own address even when the reference is refused.
                kept[f"artifact://sha256/{hashlib.sha256(content).hexdigest()}"] = content
                if kept.setdefault(uri, content) == content:
                    assert store.put(content, reference=reference and str(reference)).uri == uri
                else:
                    with pytest.raises(LabError):
                        store.put(content, reference=str(reference))
            elif uri in kept:
                text = str(operation[3])
                assert store.freeze(uri, text) == texts.setdefault(uri, text)
            else:
                with pytest.raises(LabError):
                    store.freeze(uri, str(operation[3]))
            assert {reference: store.get(reference) for reference in kept} == kept
            assert {reference: store.frozen(reference) for reference in texts} == texts


STUCK_WRITER = """
import os, sys, time
from pathlib import Path
from serving.stores import ArtifactStore
store = ArtifactStore(Path(sys.argv[1]))
def never_done(descriptor):
    print(os.fstat(descriptor).st_size, flush=True)
    time.sleep(600)
os.fsync = never_done
store.put(b"half of it")
"""


def test_a_writer_killed_in_the_middle_of_a_file_leaves_no_artifact_and_its_rest_is_removed(
    tmp_path: Path, kill_after_lines: Callable[..., list[str]]
) -> None:
    reference = f"artifact://sha256/{hashlib.sha256(b'half of it').hexdigest()}"
    # The first sync is of the new area's folder; the one of the file is never reached without it.
    ArtifactStore(tmp_path).put(b"other")
    assert kill_after_lines(STUCK_WRITER, str(tmp_path), lines=1) == [str(len(b"half of it"))]
    assert len(list((tmp_path / "incoming").iterdir())) == 1
    store = ArtifactStore(tmp_path)
    assert store.resolve(reference) is None
    assert list((tmp_path / "incoming").iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore(tmp_path)
    store.put(b"other")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(LabError, match="No space left"):
            store.put(b"rows", reference=RUN)
    assert store.resolve(RUN) is None
    assert list((tmp_path / "incoming").iterdir()) == []


@pytest.mark.parametrize("winner", [True, False])
def test_a_file_is_durable_before_it_has_its_name_and_the_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, winner: bool
) -> None:
    store = ArtifactStore(tmp_path)
    store.put(b"other" if winner else b"rows")
    steps: list[str] = []
    sync, link = os.fsync, os.link

    def recorded_sync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def recorded_link(*arguments: str, **more: int) -> None:
        steps.append("name")
        link(*arguments, **more)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(os, "link", recorded_link)
    store.put(b"rows")
    assert steps == ["file", "name", "folder"]
