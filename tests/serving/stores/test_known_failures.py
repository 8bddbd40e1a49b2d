"""Failures that other tools are known for, in what outlives a request: each by its name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from serving.assembler import (
    AssemblyRequest,
    ContextItem,
    ContextPolicy,
    FixedCounter,
    Observation,
    Packet,
    RequestContext,
    ToolCall,
    ToolStep,
    assemble,
)
from serving.assembler.layout import OPEN_CALL_TEXT
from serving.stores import (
    ArtifactStore,
    MemoryDraft,
    MemoryPolicy,
    MemoryStore,
    StoredMemory,
    Withheld,
    observed,
)

NOW = datetime(2026, 10, 2, tzinfo=UTC)
LAX = MemoryPolicy(
    purposes={"assist", "billing"}, legal_bases={"consent", "contract"}, longest=timedelta(days=400)
)
DRAFT = MemoryDraft(
    text="Prefers mail.",
    source="user_stated",
    legal_basis="contract",
    expires_at=NOW + timedelta(days=300),
)


def context(actor: str = "test_user", tenant: str = "test_tenant") -> RequestContext:
    return RequestContext(tenant=tenant, actor=actor, now=NOW)


def written(path: Path, asked: RequestContext) -> StoredMemory:
    kept = MemoryStore(path, policy=LAX).write(DRAFT, asked)
    assert isinstance(kept, StoredMemory)
    return kept


@pytest.mark.parametrize(
    "stricter",
    [
        {"legal_bases": {"consent"}},
        {"purposes": {"billing"}},
        {"longest": timedelta(days=30)},
    ],
)
def test_a_memory_is_filtered_on_read_by_the_rules_of_today(
    tmp_path: Path, stricter: dict[str, object]
) -> None:
    kept = written(tmp_path / "memories.db", context())
    policy = MemoryPolicy.model_validate({**LAX.model_dump(), **stricter})
    loaded = MemoryStore(tmp_path / "memories.db", policy=policy).load(context())
    assert loaded.items == ()
    assert [withheld.id for withheld in loaded.withheld if isinstance(withheld, Withheld)] == [kept.id]
    assert len(MemoryStore(tmp_path / "memories.db", policy=LAX).load(context()).items) == 1


@pytest.mark.parametrize("other", ["test_user1", "test_use", "TEST_USER", "test%", "test_user%", "test.user"])
def test_a_subject_or_tenant_matches_itself_and_no_similar_one(tmp_path: Path, other: str) -> None:
    path = tmp_path / "memories.db"
    written(path, context())
    store = MemoryStore(path, policy=LAX)
    for stranger in (context(actor=other), context(tenant=other)):
        assert store.load(stranger).items == ()
        assert store.load(stranger).withheld == ()
        assert store.list_own(stranger) == ()
        assert store.delete_own(stranger) == 0
    assert len(store.list_own(context())) == 1


CRASH = """
import sys
from pathlib import Path
from serving.assembler import Observation
from serving.stores import ArtifactStore, observe
store = ArtifactStore(Path(sys.argv[1]))
seen = Observation(tool="search", status="ok", checked_at="2026-10-02", verified={"rows": 2})
for step in range(100_000):
    print(f"called {step}", flush=True)
    observe(store, f"c{step}", reference=f"toolrun://r/{step}", raw=f"rows of {step}", observation=seen)
"""


def test_a_tool_use_whose_result_was_not_stored_before_a_crash_is_closed_and_one_that_was_comes_back(
    tmp_path: Path, kill_after_lines: Callable[..., list[str]]
) -> None:
    printed = kill_after_lines(CRASH, str(tmp_path), lines=4)
    called = [int(line.split()[1]) for line in printed if line.startswith("called ") and line[-1].isdigit()]
    store = ArtifactStore(tmp_path)
    results = {step: observed(store, f"c{step}", f"toolrun://r/{step}") for step in called}
    # All but the call that was running when the process was killed had their results stored.
    assert all(results[step] is not None for step in called[:-1])
    log = tuple(
        ContextItem(
            id=f"step-{step}",
            payload=ToolStep(
                calls=(ToolCall(id=f"c{step}", name="search", arguments="{}"),),
                results=tuple(result for result in [results[step]] if result is not None),
            ),
        )
        for step in called
    )
    built = assemble(
        AssemblyRequest(context=context(), history=log, window=10_000_000, max_output=10),
        ContextPolicy(),
        FixedCounter(),
    )
    assert isinstance(built, Packet)
    answers = [message.content or "" for message in built.messages if message.role == "tool"]
    assert len(answers) == len(called)
    for answer in answers[:-1]:
        assert Observation.read(answer).verified == {"rows": 2}
    assert answers[-1] == OPEN_CALL_TEXT or Observation.read(answers[-1]).status == "ok"
