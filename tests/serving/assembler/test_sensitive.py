"""A manifest says what kinds of secrets a packet holds, and holds none itself."""

from __future__ import annotations

import pytest

from serving.assembler import (
    AssemblyRequest,
    ContextItem,
    ContextPolicy,
    Evidence,
    FixedCounter,
    Packet,
    RequestContext,
    Retrieval,
    Scope,
    UserTurn,
    Verdict,
    assemble,
    history_items,
    replay,
)
from serving.errors import UsageError

KEY = "ghp_" + "aB3dE6gH9" * 4
MAIL = "ada.lovelace@example.org"
CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02T00:00:00Z")


def request(
    *, text: str = "fine", item_id: str = "fact", source: str = "wiki", **fields: object
) -> AssemblyRequest:
    fact = ContextItem(id=item_id, payload=Evidence(text=text), scope=Scope(tenant="t1"), source=source)
    return AssemblyRequest(
        context=CONTEXT,
        candidates=(fact,),
        history=history_items([UserTurn(text="why?")]),
        window=1_000,
        max_output=10,
        **fields,
    )


def packet(asked: AssemblyRequest, policy: ContextPolicy | None = None) -> Packet:
    built = assemble(asked, policy or ContextPolicy(), FixedCounter())
    assert isinstance(built, Packet)
    return built


def test_a_clean_packet_has_an_empty_verdict_and_a_policy_may_not_look() -> None:
    verdict = packet(request()).manifest.redaction
    assert verdict is not None
    assert (verdict.sensitive, verdict.taken_out) == ((), ())
    assert packet(request(text=KEY), ContextPolicy(look_for_secrets=False)).manifest.redaction is None


def test_kinds_are_recorded_by_item_and_values_nowhere_in_the_manifest() -> None:
    built = packet(request(text=f"token {KEY} of {MAIL}"))
    verdict = built.manifest.redaction
    assert verdict is not None
    assert [(found.item_id, len(found.kinds)) for found in verdict.sensitive] == [("fact", 2)]
    assert KEY in (built.messages[-1].content or "")
    assert KEY not in built.manifest.model_dump_json()
    assert MAIL not in built.manifest.model_dump_json()


def test_the_words_of_the_manifest_itself_are_cleaned_and_the_replay_is_exact() -> None:
    asked = request(
        source=f"https://ada:{'s3cr3tPassw0rd'}@wiki.example.org/x",
        surface=f"model for {MAIL}",
        run_id=KEY,
        retrieval=Retrieval(query_sha256="q", filters=(("author", MAIL),)),
    )
    manifest = packet(asked).manifest
    written = manifest.model_dump_json()
    assert all(secret not in written for secret in (KEY, MAIL, "s3cr3tPassw0rd"))
    assert manifest.redaction is not None
    assert len(manifest.redaction.taken_out) == 3
    found = replay(manifest, request=asked, policy=ContextPolicy(), renderer=FixedCounter())
    assert found.verdict is Verdict.EXACT


def test_an_id_that_tells_something_is_refused_without_repeating_it() -> None:
    with pytest.raises(UsageError, match="use an opaque id") as refused:
        packet(request(item_id=f"mail:{MAIL}"))
    assert MAIL not in str(refused.value)
