from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.assembler import (
    AssemblyRequest,
    ContextPolicy,
    FixedCounter,
    Memory,
    Packet,
    RequestContext,
    assemble,
)
from serving.assembler.gates import in_scope
from serving.errors import LabError, UsageError
from serving.stores import (
    EventQueue,
    MemoryDraft,
    MemoryPolicy,
    MemoryStore,
    Redaction,
    Refusal,
    Refused,
    StoredMemory,
    Withheld,
)

NOW = datetime(2026, 10, 2, tzinfo=UTC)
DAY = timedelta(days=1)
POLICY = MemoryPolicy(purposes={"assist", "billing"}, legal_bases={"consent"}, longest=30 * DAY)


class NumbersOut:
    """Takes out numbers of six digits and more."""

    def redact(self, text: str) -> Redaction:
        cut = re.sub(r"\d{6,}", "[NUMBER]", text)
        return Redaction(cut, ("number",) if cut != text else ())


class Broken:
    def redact(self, text: str) -> Redaction:
        raise RuntimeError("the detector did not answer")


class All:
    def redact(self, text: str) -> Redaction:
        return Redaction(" ", ("all",))


def context(actor: str = "u1", tenant: str = "t1", now: datetime = NOW, **more: Any) -> RequestContext:
    return RequestContext(tenant=tenant, actor=actor, now=now, **more)


def draft(text: str = "prefers short answers", **more: Any) -> MemoryDraft:
    given = {"source": "user_stated", "legal_basis": "consent", "expires_at": NOW + 10 * DAY, **more}
    return MemoryDraft(text=text, **given)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memories.sqlite"


@pytest.fixture
def store(path: Path) -> MemoryStore:
    return opened(path)


def opened(path: Path, policy: MemoryPolicy = POLICY, redactor: Any = None) -> MemoryStore:
    return MemoryStore(path, policy=policy, redactor=redactor or NumbersOut())


def kept(store: MemoryStore, *arguments: Any, **more: Any) -> StoredMemory:
    written = store.write(draft(*arguments, **more), context())
    assert isinstance(written, StoredMemory)
    return written


def texts(store: MemoryStore, request: RequestContext) -> list[str]:
    return [item.payload.text for item in store.load(request).items if isinstance(item.payload, Memory)]


def test_a_memory_takes_who_and_when_from_the_request_and_keeps_all_it_was_given(store: MemoryStore) -> None:
    written = store.write(
        draft(confidence=0.5, review_at=NOW + DAY, deletion_binding="account-7"),
        context(subject="u2", purpose="billing"),
    )
    assert isinstance(written, StoredMemory)
    assert written.tenant == "t1"
    assert written.memory == Memory(
        text="prefers short answers",
        subject="u2",
        purpose="billing",
        source="user_stated",
        legal_basis="consent",
        confidence=0.5,
        created_at=NOW,
        expires_at=NOW + 10 * DAY,
        deletion_binding="account-7",
    )
    assert store.list_own(context("u2")) == (written,)


def test_a_loaded_memory_passes_the_assemblers_own_gates_into_a_packet(store: MemoryStore) -> None:
    written = kept(store)
    (item,) = store.load(context()).items
    request = AssemblyRequest(context=context(), candidates=(item,), window=1_000, max_output=10)
    packet = assemble(request, ContextPolicy(), FixedCounter())
    assert isinstance(packet, Packet)
    assert "prefers short answers" in (packet.messages[-1].content or "")
    assert item.id == written.id
    assert in_scope(item, context())


@pytest.mark.parametrize(
    ("other", "who"),
    [
        ("the longer name", {"tenant": "test_user1"}),
        ("the shorter name", {"tenant": "test"}),
        ("another case", {"tenant": "TEST_USER"}),
        ("a pattern", {"tenant": "test%"}),
        ("a one-character pattern", {"tenant": "test_use_"}),
        ("a name with an end mark", {"tenant": "test_user\0"}),
        ("another subject", {"actor": "test_user1"}),
        ("a subject of another case", {"actor": "TEST_USER"}),
    ],
)
def test_only_the_very_same_tenant_and_subject_match(
    store: MemoryStore, other: str, who: dict[str, str]
) -> None:
    mine = context("test_user", "test_user")
    theirs = context(**{"actor": "test_user", "tenant": "test_user", **who})
    written = store.write(draft(id="m", deletion_binding="b"), mine)
    assert isinstance(written, StoredMemory)
    loaded = store.load(theirs)
    assert (loaded.items, loaded.withheld) == ((), ())
    assert store.list_own(theirs) == ()
    assert store.delete_own(theirs) == store.delete_own(theirs, "m") == 0
    assert store.confirm("m", theirs, review_at=NOW + DAY) == Refused(Refusal.UNKNOWN)
    if "tenant" in who:
        assert store.delete_bound(theirs.tenant, "b") == 0
    # The same id is free for others: it does not tell that somebody has it.
    assert isinstance(store.write(draft("something else", id="m"), theirs), StoredMemory)
    assert texts(store, mine) == ["prefers short answers"]


@pytest.mark.parametrize(
    ("reason", "changed", "asked"),
    [
        (Refusal.PURPOSE, {}, {"purpose": "advertising"}),
        (Refusal.EXPIRED, {"expires_at": NOW}, {}),
        (Refusal.REVIEW_DUE, {"review_at": NOW}, {}),
        (Refusal.SOURCE, {"source": "web_page"}, {}),
        (Refusal.LEGAL_BASIS, {"legal_basis": "curiosity"}, {}),
        (Refusal.NO_END, {"expires_at": None}, {}),
        (Refusal.KEPT_TOO_LONG, {"expires_at": NOW + 31 * DAY}, {}),
        (Refusal.KEPT_TOO_LONG, {"expires_at": NOW + 31 * DAY, "review_at": NOW + DAY}, {}),
        (Refusal.KEPT_TOO_LONG, {"expires_at": None, "review_at": NOW + 31 * DAY}, {}),
        (Refusal.NO_CONFIDENCE, {"source": "model_inferred"}, {}),
        (Refusal.TOO_LONG, {"text": "x" * 2_001}, {}),
        (Refusal.NOTHING_LEFT, {"text": " \n"}, {}),
    ],
)
def test_a_memory_that_breaks_a_rule_is_refused_with_it_and_not_kept(
    store: MemoryStore, reason: Refusal, changed: dict[str, Any], asked: dict[str, Any]
) -> None:
    assert store.write(draft(**changed), context(**asked)) == Refused(reason)
    assert store.list_own(context()) == ()


@pytest.mark.parametrize(
    ("reason", "policy"),
    [
        (Refusal.PURPOSE, {"purposes": {"billing"}}),
        (Refusal.SOURCE, {"sources": {"system_record"}}),
        (Refusal.LEGAL_BASIS, {"legal_bases": {"contract"}}),
        (Refusal.KEPT_TOO_LONG, {"longest": DAY}),
        (Refusal.NO_CONFIDENCE, {"least_confidence": 0.9, "sources": {"user_stated", "model_inferred"}}),
        (Refusal.TOO_LONG, {"most_characters": 5}),
    ],
)
def test_a_rule_that_became_stricter_holds_for_what_is_already_kept(
    path: Path, reason: Refusal, policy: dict[str, Any]
) -> None:
    inferred = {"source": "model_inferred", "confidence": 0.5} if reason is Refusal.NO_CONFIDENCE else {}
    written = kept(opened(path), **inferred)
    stricter = MemoryPolicy.model_validate({**POLICY.model_dump(), **policy})
    loaded = opened(path, stricter).load(context())
    assert (loaded.items, loaded.withheld) == ((), (Withheld(written.id, reason),))
    # The person it is about still sees it and can delete it.
    assert opened(path, stricter).list_own(context()) == (written,)


def test_purpose_expiry_and_review_are_asked_at_every_reading(store: MemoryStore) -> None:
    expiring = kept(store, id="a")
    reviewed = kept(store, id="b", review_at=NOW + DAY)
    assert [item.id for item in store.load(context()).items] == [expiring.id, reviewed.id]

    def withheld(**asked: Any) -> dict[str, Refusal]:
        return {entry.id: entry.reason for entry in store.load(context(**asked)).withheld}

    assert withheld(purpose="billing") == {"a": Refusal.PURPOSE, "b": Refusal.PURPOSE}
    assert withheld(now=NOW + DAY - timedelta(microseconds=1)) == {}
    assert withheld(now=NOW + DAY) == {"b": Refusal.REVIEW_DUE}
    assert withheld(now=NOW + 10 * DAY) == {"a": Refusal.EXPIRED, "b": Refusal.EXPIRED}


def test_the_item_tells_the_assembler_the_earlier_of_expiry_and_review(store: MemoryStore) -> None:
    kept(store, id="a", review_at=NOW + DAY)
    kept(store, id="b", expires_at=None, review_at=NOW + DAY)
    kept(store, id="c", review_at=NOW + 20 * DAY)
    ends = {item.id: getattr(item.payload, "expires_at", None) for item in store.load(context()).items}
    assert ends == {"a": NOW + DAY, "b": NOW + DAY, "c": NOW + 10 * DAY}


def test_a_confirmed_memory_loads_until_its_next_review(store: MemoryStore) -> None:
    kept(store, id="m", expires_at=None, review_at=NOW + 20 * DAY)
    later = context(now=NOW + 25 * DAY)
    assert store.load(later).items == ()
    assert store.confirm("m", later, review_at=NOW + 56 * DAY) == Refused(Refusal.KEPT_TOO_LONG)
    assert store.confirm("m", later, review_at=None) == Refused(Refusal.NO_END)
    assert store.confirm("m", later, review_at=later.now) == Refused(Refusal.REVIEW_DUE)
    assert store.load(later).items == ()
    # Its creation is further back than `longest`: what counts is the time from one review to the next.
    assert isinstance(store.confirm("m", later, review_at=NOW + 55 * DAY), StoredMemory)
    assert len(store.load(later).items) == 1


def test_what_is_redacted_never_reaches_the_file(path: Path, store: MemoryStore) -> None:
    written = kept(store, "my account is 123456789")
    assert written.memory.text == "my account is [NUMBER]"
    assert written.redacted == ("number",)
    assert b"123456789" not in path.read_bytes()


def test_a_redactor_that_learned_something_is_applied_when_reading(path: Path) -> None:
    class Nothing:
        def redact(self, text: str) -> Redaction:
            return Redaction(text)

    kept(opened(path, redactor=Nothing()), "my account is 123456789")
    assert texts(opened(path), context()) == ["my account is [NUMBER]"]
    (withheld,) = opened(path, redactor=All()).load(context()).withheld
    assert withheld.reason is Refusal.NOTHING_LEFT


def test_a_redactor_that_fails_closes_both_directions(path: Path, store: MemoryStore) -> None:
    kept(store)
    broken = opened(path, redactor=Broken())
    with pytest.raises(RuntimeError, match="did not answer"):
        broken.write(draft("another"), context())
    with pytest.raises(RuntimeError, match="did not answer"):
        broken.load(context())
    assert len(store.list_own(context())) == 1


def test_a_text_that_redaction_empties_is_refused(path: Path) -> None:
    assert opened(path, redactor=All()).write(draft(), context()) == Refused(Refusal.NOTHING_LEFT)


def test_the_same_write_again_changes_nothing_and_another_one_is_refused(store: MemoryStore) -> None:
    first = kept(store, id="m")
    assert store.write(draft(id="m"), context(now=NOW + DAY)) == first
    assert store.write(draft("other words", id="m"), context()) == Refused(Refusal.ID_TAKEN)
    assert store.write(draft(id="m"), context(purpose="billing")) == Refused(Refusal.ID_TAKEN)
    assert store.list_own(context()) == (first,)


def test_a_deleted_memory_is_gone_from_the_file_too(path: Path, store: MemoryStore) -> None:
    written = kept(store, "likes marzipan")
    assert b"marzipan" in path.read_bytes()
    assert store.delete_own(context(), written.id) == 1
    assert store.delete_own(context(), written.id) == 0
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"marzipan" not in left


def test_one_deletes_ones_own_and_not_what_one_may_act_on(store: MemoryStore) -> None:
    kept(store)
    acting = context("operator", subject="u1")
    assert len(store.load(acting).items) == 1
    assert store.list_own(acting) == ()
    assert store.delete_own(acting) == 0
    assert store.delete_own(context()) == 1


def test_a_deletion_takes_along_what_is_bound_to_it_in_that_tenant_only(store: MemoryStore) -> None:
    for who in (context("u1"), context("u2"), context("u1", "t2")):
        store.write(draft(deletion_binding="account-7"), who)
        store.write(draft(deletion_binding="account-71"), who)
    assert store.delete_bound("t1", "account-7") == 2
    assert [
        len(store.list_own(context(actor, tenant))) for actor, tenant in (("u1", "t1"), ("u1", "t2"))
    ] == [
        1,
        2,
    ]


def test_what_has_expired_is_removed_at_the_moment_it_expires(store: MemoryStore) -> None:
    kept(store, expires_at=NOW + DAY)
    kept(store, expires_at=None, review_at=NOW + DAY)
    assert store.delete_expired(NOW + DAY - timedelta(microseconds=1)) == 0
    assert store.delete_expired(NOW + DAY) == 1
    assert len(store.list_own(context())) == 1


def test_names_that_no_file_could_hold_are_refused(store: MemoryStore) -> None:
    with pytest.raises(UsageError, match=r"RequestContext\.actor"):
        store.load(context("\ud800"))
    with pytest.raises(UsageError, match="surrogate"):
        store.delete_bound("t1", "\ud800")
    with pytest.raises(UsageError, match="unicode"):
        store.write(draft("\ud800"), context())
    with pytest.raises(UsageError):
        store.write(draft(), context(tenant=""))


def test_a_policy_names_only_sources_that_the_assembler_loads() -> None:
    with pytest.raises(UsageError, match="web_page"):
        MemoryPolicy(purposes={"assist"}, legal_bases={"consent"}, sources={"web_page"})


def test_a_file_of_another_kind_is_not_opened(path: Path, tmp_path: Path) -> None:
    EventQueue(path)
    with pytest.raises(LabError, match="name another file"):
        opened(path)
    (tmp_path / "text").write_text("no database at all, " * 100)
    with pytest.raises(LabError, match="Expected a usable database"):
        opened(tmp_path / "text")
    with pytest.raises(LabError, match="Expected a usable database"):
        opened(tmp_path)
    with pytest.raises(LabError, match="cannot be opened"):
        opened(tmp_path / "text" / "memories.sqlite")


def test_the_file_is_readable_for_its_owner_only(path: Path, store: MemoryStore) -> None:
    assert path.stat().st_mode & 0o077 == 0


WRITER = """
import itertools, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from serving.assembler import RequestContext
from serving.stores import MemoryDraft, MemoryPolicy, MemoryStore, Redaction
class AsIs:
    def redact(self, text):
        return Redaction(text)
now = datetime(2026, 10, 2, tzinfo=UTC)
policy = MemoryPolicy(purposes={"assist"}, legal_bases={"consent"})
context = RequestContext(tenant="t1", actor=sys.argv[2], now=now)
for index in itertools.islice(itertools.count(), int(sys.argv[3])):
    store = MemoryStore(Path(sys.argv[1]), policy=policy, redactor=AsIs())
    given = {"source": "user_stated", "legal_basis": "consent", "expires_at": now + timedelta(days=9)}
    print(store.write(MemoryDraft(id=f"m{index}", text=f"number {index}", **given), context).id, flush=True)
"""


def test_a_killed_writer_leaves_every_memory_that_it_reported(
    path: Path, kill_after_lines: Callable[..., list[str]]
) -> None:
    reported = kill_after_lines(WRITER, str(path), "u1", "100000", lines=5)
    found = [stored.id for stored in opened(path).list_own(context())]
    # The one on its way when the kill came may be there, in full.
    assert set(reported) <= set(found)
    assert len(found) <= len(set(reported)) + 1
    assert len(texts(opened(path), context())) == len(found)


def test_two_processes_write_at_once_and_nothing_is_lost(
    path: Path, run_at_once: Callable[..., list[list[str]]]
) -> None:
    run_at_once(WRITER, (str(path), "u1", "30"), (str(path), "u2", "30"))
    assert [len(opened(path).list_own(context(actor))) for actor in ("u1", "u2")] == [30, 30]


WHO = st.sampled_from([("t1", "u1"), ("t1", "u11"), ("t11", "u1")])
IDS = st.sampled_from(["a", "b"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), WHO, IDS, st.sampled_from(["x", "y"]), st.integers(1, 4)),
        st.tuples(st.just("delete"), WHO, IDS),
        st.tuples(st.just("delete all"), WHO),
        st.tuples(st.just("purge"), st.integers(0, 4)),
        st.tuples(st.just("restart")),
    ),
    max_size=15,
)


@settings(max_examples=40)
@given(operations=OPERATIONS, day=st.integers(0, 4))
def test_any_sequence_of_operations_and_restarts_equals_a_dictionary(
    operations: list[tuple[Any, ...]], day: int
) -> None:
    model: dict[tuple[str, str], dict[str, tuple[str, int]]] = {
        who: {} for who in (("t1", "u1"), ("t1", "u11"), ("t11", "u1"))
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memories.sqlite"
        store = opened(path)
        for operation, *given_values in operations:
            if operation == "restart":
                store = opened(path)
            elif operation == "purge":
                (until,) = given_values
                assert store.delete_expired(NOW + until * DAY) == sum(
                    expires <= until for own in model.values() for _, expires in own.values()
                )
                for own in model.values():
                    for gone in [key for key, (_, expires) in own.items() if expires <= until]:
                        del own[gone]
            else:
                (tenant, actor), *rest = given_values
                own, asking = model[tenant, actor], context(actor, tenant)
                if operation == "write":
                    memory_id, text, expires = rest
                    written = store.write(draft(text, id=memory_id, expires_at=NOW + expires * DAY), asking)
                    same = own.setdefault(memory_id, (text, expires)) == (text, expires)
                    assert isinstance(written, StoredMemory) if same else written == Refused(Refusal.ID_TAKEN)
                elif operation == "delete":
                    assert store.delete_own(asking, rest[0]) == (own.pop(rest[0], None) is not None)
                else:
                    assert store.delete_own(asking) == len(own)
                    own.clear()
        for (tenant, actor), own in model.items():
            loaded = store.load(context(actor, tenant, NOW + day * DAY))
            assert {item.id for item in loaded.items} == {key for key, (_, end) in own.items() if end > day}
            assert {entry.id for entry in loaded.withheld} == {
                key for key, (_, end) in own.items() if end <= day
            }
            assert [stored.id for stored in store.list_own(context(actor, tenant))] == sorted(own)
