"""Whether a reset of the prefix cache does what it answers: a canary before and after."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import httpx

from serving.client import Client, CompletionRequest
from serving.probe.prove.bench import ProofStoppedError, send
from serving.probe.prove.claims import Claim, Finding
from serving.probe.prove.verdicts import proven, refuted, unproven


def prove_reset(
    http: httpx.Client, client: Client, model: str, vocabulary: Sequence[int], block: int, *, allowed: bool
) -> Finding:
    """Warm a prompt, reset, and send it again; raises `ProofStoppedError` when a request fails."""
    if not allowed:
        return unproven(
            Claim.RESET, "Not tried, for it would empty the cache for everyone: allow it with --reset."
        )
    salt = f"reset-{secrets.token_hex(8)}"
    draw = secrets.SystemRandom()
    ids = tuple(draw.choice(vocabulary) for _ in range(2 * block + 1))
    request = CompletionRequest(model=model, prompt=ids, max_tokens=1, cache_salt=salt)
    _hit(client, request)
    warm = _hit(client, request)
    if not warm:
        return unproven(
            Claim.RESET, "A repeated prompt was not reported as cached, so a reset cannot be seen."
        )
    try:
        answer = http.post("/reset_prefix_cache")
    except httpx.TransportError as error:
        raise ProofStoppedError(f"The server did not answer POST /reset_prefix_cache: {error}.") from error
    if not answer.is_success:
        return unproven(
            Claim.RESET,
            f"POST /reset_prefix_cache answered HTTP {answer.status_code} (vLLM has it with "
            "VLLM_SERVER_DEV_MODE=1).",
        )
    done, left = _says_done(answer), _hit(client, request)
    said = f"It answered HTTP {answer.status_code}{'' if done else ' and success: false'}"
    if left is None:
        return unproven(Claim.RESET, f"{said}; the prompt sent again came without a report.")
    if done and not left:
        return proven(Claim.RESET, f"{said}, and a prompt with {warm} cached tokens had none afterwards.")
    if done or not left:
        return refuted(Claim.RESET, f"{said}, and the same prompt had {left} cached tokens afterwards.")
    return unproven(Claim.RESET, f"{said}: blocks were in use; the cache is as it was.")


def _hit(client: Client, request: CompletionRequest) -> int | None:
    usage = send(client, request).usage
    return None if usage is None else usage.cached_tokens


def _says_done(answer: httpx.Response) -> bool:
    """vLLM answers HTTP 200 also where it did not reset, and says so in the body."""
    try:
        body = answer.json()
    except ValueError:
        return True  # an older server, whose answer has no body
    return not (isinstance(body, dict) and body.get("success") is False)
