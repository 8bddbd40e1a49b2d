"""Whole proofs against a server that is honest, and against one that lies in one way at a time."""

from __future__ import annotations

import pytest

from serving.errors import LabError
from serving.probe.prove import Claim, Lie, ServerProof, Verdict, prove_server
from tests.support.stub import running_stub


def prove(persona: str, **options: bool | float) -> ServerProof:
    with running_stub(persona) as stub:
        return prove_server(stub.base_url, **options)  # type: ignore[arg-type]


def verdicts(found: ServerProof) -> dict[Claim, Verdict]:
    return {finding.claim: finding.verdict for finding in found.findings}


def sentence(found: ServerProof, claim: Claim) -> str:
    [said] = [finding.sentence for finding in found.findings if finding.claim is claim]
    return said


def test_an_honest_server_is_proven_in_everything_that_can_be_asked() -> None:
    found = prove("proven-honest", reset=True)
    assert [finding.claim for finding in found.findings] and set(verdicts(found)) == set(Claim)
    unproven = {claim for claim, verdict in verdicts(found).items() if verdict is not Verdict.PROVEN}
    assert unproven == {Claim.RULE, Claim.EVENTS}, [f for f in found.findings if f.claim in unproven]
    assert found.lies == () and not found.refuted
    assert len([call for call in found.compared if call.surface == "token-in"]) >= 30
    assert all(call.reported == call.predicted for call in found.compared)
    assert "30 of 30" in sentence(found, Claim.TOKEN_IN)
    assert ServerProof.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("persona", "lie"),
    [
        ("always-zero", Lie.ALWAYS_ZERO),
        ("prompt-minus-one", Lie.PROMPT_MINUS_ONE),
        ("doubled", Lie.DOUBLED),
        ("previous", Lie.PREVIOUS_REQUEST),
        ("rounded-up", Lie.ROUNDED_UP),
    ],
)
def test_a_lie_is_caught_and_called_by_its_name_and_no_other(persona: str, lie: Lie) -> None:
    found = prove(f"proven-{persona}")
    assert [named.lie for named in found.lies] == [lie]
    assert verdicts(found)[Claim.TOKEN_IN] is Verdict.REFUTED
    assert lie.value in sentence(found, Claim.TOKEN_IN)
    assert verdicts(found)[Claim.COUNTERS] is Verdict.REFUTED
    assert verdicts(found)[Claim.POOL] is Verdict.UNPROVEN
    assert found.refuted


def test_a_block_size_that_is_told_wrongly_is_found_from_the_hits() -> None:
    found = prove("proven-other-block-told")
    assert verdicts(found)[Claim.BLOCK_SIZE] is Verdict.REFUTED
    assert "fits blocks of 16 tokens, and it tells 24" in sentence(found, Claim.BLOCK_SIZE)


def test_a_lie_that_no_formula_gives_is_shown_by_its_numbers() -> None:
    found = prove("proven-sometimes")
    assert found.lies == ()
    assert verdicts(found)[Claim.TOKEN_IN] is Verdict.REFUTED
    assert "No known formula" in sentence(found, Claim.TOKEN_IN)


def test_a_server_that_reports_nothing_is_told_which_flag_is_missing() -> None:
    found = prove("proven-silent")
    for claim in (Claim.REPORTS, Claim.TOKEN_IN):
        assert verdicts(found)[claim] is Verdict.UNPROVEN
        assert "--enable-prompt-tokens-details" in sentence(found, claim)
    assert not found.refuted


@pytest.mark.parametrize("persona", ["smaller-pool", "larger-pool"])
def test_a_pool_that_is_one_block_off_is_found_out(persona: str) -> None:
    found = prove(f"proven-{persona}")
    assert verdicts(found)[Claim.TOKEN_IN] is Verdict.PROVEN
    assert verdicts(found)[Claim.POOL] is Verdict.REFUTED, sentence(found, Claim.POOL)


@pytest.mark.parametrize(
    ("persona", "verdict", "words"),
    [
        ("honest", Verdict.PROVEN, "had none afterwards"),
        ("deaf-reset", Verdict.REFUTED, "32 cached tokens afterwards"),
        ("honest-refusal", Verdict.UNPROVEN, "success: false"),
        ("shy-reset", Verdict.REFUTED, "success: false"),
    ],
)
def test_a_reset_is_judged_by_a_canary_and_not_by_its_answer(
    persona: str, verdict: Verdict, words: str
) -> None:
    found = prove(f"proven-{persona}", reset=True)
    assert verdicts(found)[Claim.RESET] is verdict
    assert words in sentence(found, Claim.RESET)


def test_nothing_is_reset_and_no_pool_filled_that_was_not_allowed() -> None:
    found = prove("proven-honest", budget_s=0.0)
    assert "--reset" in sentence(found, Claim.RESET)
    assert "--budget" in sentence(found, Claim.POOL)
    assert verdicts(found)[Claim.POOL] is verdicts(found)[Claim.RESET] is Verdict.UNPROVEN


def test_what_cannot_be_proven_is_said_with_its_reason() -> None:
    uncounted = prove("proven-uncounted")
    assert "vllm:prefix_cache_queries_total" in sentence(uncounted, Claim.COUNTERS)
    bare = prove("bare")
    assert set(verdicts(bare)) == set(Claim)
    assert verdicts(bare)[Claim.TOKEN_IN] is Verdict.UNPROVEN
    assert "no token ids" in sentence(bare, Claim.TOKEN_IN)


def test_a_server_without_the_token_in_surface_stops_the_proof_with_its_own_words() -> None:
    found = prove("vllm")
    assert verdicts(found)[Claim.TOKEN_IN] is Verdict.UNPROVEN
    assert "/v1/completions" in sentence(found, Claim.TOKEN_IN) or "404" in sentence(found, Claim.TOKEN_IN)


def test_nothing_there_is_one_sentence() -> None:
    with pytest.raises(LabError, match="is it running"):
        prove_server("http://127.0.0.1:9")
