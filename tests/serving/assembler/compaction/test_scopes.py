from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.assembler import Classification, ContextItem, Note, RequestContext, Scope
from serving.assembler.compaction.scopes import at_least_as_wide
from serving.assembler.gates import in_scope

moments = st.sampled_from([datetime(2026, month, 1, tzinfo=UTC) for month in range(1, 5)])
scopes = st.builds(
    Scope,
    tenant=st.sampled_from([None, "t1", "t2"]),
    readers=st.none() | st.frozensets(st.sampled_from(["anna", "ben", "ops"])),
    classification=st.sampled_from(Classification),
    applies_to=st.dictionaries(st.sampled_from(["product"]), st.frozensets(st.sampled_from(["1", "2"]))),
    effective_from=st.none() | moments,
    effective_until=st.none() | moments,
    lookup_failed=st.sampled_from([False, False, False, True]),
)
contexts = st.builds(
    RequestContext,
    tenant=st.sampled_from(["t1", "t2"]),
    actor=st.sampled_from(["anna", "ben"]),
    groups=st.frozensets(st.just("ops")),
    clearance=st.sampled_from(Classification),
    now=moments,
    facets=st.dictionaries(st.just("product"), st.sampled_from(["1", "2", "3"])),
)


def readable(scope: Scope, context: RequestContext) -> bool:
    return in_scope(ContextItem(id="x", payload=Note(text="x"), scope=scope), context)


@settings(max_examples=500)
@given(scopes, scopes, contexts)
def test_who_reads_the_narrow_reads_the_wide(one: Scope, other: Scope, context: RequestContext) -> None:
    if at_least_as_wide(one, other) and readable(other, context):
        assert readable(one, context)


@given(scopes)
def test_a_scope_is_as_wide_as_itself_and_the_open_one_as_wide_as_any(scope: Scope) -> None:
    assert at_least_as_wide(scope, scope) != scope.lookup_failed
    assert at_least_as_wide(Scope(), scope)
