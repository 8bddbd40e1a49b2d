"""Proving a server: what it tells of its cache, held against the rule, with what could not be shown named."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

import httpx

from serving.client import ChatRequest, Client
from serving.client.metrics import read_counter
from serving.engine.live_mirror import LiveMirror
from serving.engine.subscription import KVEventSubscription
from serving.errors import LabError
from serving.probe.canary import make_words
from serving.probe.capabilities import ServerCapabilities
from serving.probe.events import find_kv_events
from serving.probe.prove.bench import Bench, ProofStoppedError
from serving.probe.prove.claims import Claim, Finding, ServerProof, Verdict
from serving.probe.prove.lies import NamedLie
from serving.probe.prove.reset import prove_reset
from serving.probe.prove.shapes import edge_shapes, pool_shapes
from serving.probe.prove.verdicts import (
    judge_block_size,
    judge_calls,
    judge_canary,
    judge_counters,
    judge_events,
    judge_lies,
    judge_one,
    judge_rule,
    proven,
    unproven,
)
from serving.probe.server import probe_server
from serving.probe.server_info import ServerInfo, read_server_info
from serving.progress import Progress, Silent
from serving.text import server_root

DEFAULT_BUDGET_S = 60.0
"""What filling the pool may take, as far as the requests before tell."""

_ASSUMED_BLOCK = 16  # where the server does not tell: its reports then show which size fits
_LONGEST = 4096
_SETTLE_S = 3.0


def prove_server(
    base_url: str,
    api_key: str | None = None,
    *,
    reset: bool = False,
    budget_s: float = DEFAULT_BUDGET_S,
    progress: Progress | None = None,
) -> ServerProof:
    """Hold everything that a server tells of its cache against the rule, with about 45 short requests.

    The server should be idle. Others lose nothing but what they left in the cache: filling the pool evicts it
    (done only where it is expected to take no longer than `budget_s`), and `reset` allows one reset of the
    prefix cache. Raises `LabError` when nothing answers there.
    """
    progress = progress or Silent()
    root = server_root(base_url)
    progress.begin("ask what it tells")
    found = probe_server(root, api_key)
    info = read_server_info(root, api_key)
    findings = [judge_canary(found), judge_rule(info)]
    lies: tuple[NamedLie, ...] = ()
    bench: Bench | None = None
    if (why := _why_unable(found)) is not None:
        asked = [finding.claim for finding in findings]
        findings += [unproven(claim, why) for claim in Claim if claim not in asked]
    else:
        model = (found.models.value or ())[0].id
        block = found.block_size.value or _ASSUMED_BLOCK
        with Client(root, api_key) as client:
            bench = Bench(client, model, block, found.num_gpu_blocks.value)
            more, lies = _prove(root, api_key, found, bench, reset, budget_s, progress)
        findings += more
    return _page(root, found, info, findings, lies, bench)


def _why_unable(found: ServerCapabilities) -> str | None:
    if not found.models.value:
        return "The server lists no model."
    if not found.token_ids.value:
        return f"It gives no token ids ({found.token_ids.how}), and nothing can be predicted without."
    longest, block = _longest(found), found.block_size.value or _ASSUMED_BLOCK
    if longest < 6 * block:
        return f"A request holds {longest} tokens, and the proof needs room for six blocks of {block}."
    return None


def _longest(found: ServerCapabilities) -> int:
    return min((found.models.value or ())[0].max_model_len or _LONGEST, _LONGEST)


def _prove(
    root: str,
    api_key: str | None,
    found: ServerCapabilities,
    bench: Bench,
    reset: bool,
    budget_s: float,
    progress: Progress,
) -> tuple[list[Finding], tuple[NamedLie, ...]]:
    salt = f"prove-{secrets.token_hex(8)}"
    longest, told = _longest(found), found.block_size.value
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with httpx.Client(base_url=root, headers=headers, timeout=60.0, trust_env=False) as http:
        before = _read_counters(http)
        progress.begin("compare requests at every edge of the rule")
        try:
            first = bench.chat("a chat to learn ids from", _chat(bench, make_words(salt, 150), f"{salt}-ids"))
            vocabulary = sorted(set(first.prompt_token_ids or ()))
            edges = bench.run(edge_shapes(vocabulary, bench.block_size, longest, salt))
        except ProofStoppedError as error:
            rest = [claim for claim in Claim if claim not in (Claim.REPORTS, Claim.RULE)]
            return [unproven(claim, str(error)) for claim in rest], ()
        calls = bench.compared[edges]
        cases, unevicted = bench.whole(edges)
        lies = judge_lies(cases, unevicted, bench.block_size)
        findings = [
            judge_calls(Claim.TOKEN_IN, calls, lies),
            _or_unproven(Claim.CHAT, lambda: _prove_chat(bench, f"{salt}-chat")),
            judge_block_size(told, cases, unevicted, lies),
            judge_one(Claim.SALT, calls, "the same under another salt", "The same prompt under another salt"),
            judge_one(Claim.OUTPUT, calls, "the next turn after it", "Two turns after an output"),
            _prove_counters(http, before, bench),
        ]
        believed = findings[0].verdict is Verdict.PROVEN
        progress.begin("fill the pool")
        pool = _or_unproven(
            Claim.POOL,
            lambda: _prove_pool(
                bench, found, vocabulary, longest, f"{salt}-pool", budget_s, believed=believed
            ),
        )
        progress.begin("compare the pool with its events; reset")
        findings += [
            pool,
            _prove_events(root, api_key, bench, whole_pool=pool.verdict is Verdict.PROVEN),
            _or_unproven(
                Claim.RESET,
                lambda: prove_reset(
                    http, bench.client, bench.model, vocabulary, bench.block_size, allowed=reset
                ),
            ),
        ]
    progress.end()
    return findings, lies


def _or_unproven(claim: Claim, prove: Callable[[], Finding]) -> Finding:
    try:
        return prove()
    except ProofStoppedError as error:
        return unproven(claim, str(error))


def _chat(bench: Bench, words: Sequence[str], salt: str, *more: str) -> ChatRequest:
    texts = (" ".join(words), *more)
    roles = ("user", "assistant")
    messages = tuple({"role": roles[number % 2], "content": text} for number, text in enumerate(texts))
    return ChatRequest(model=bench.model, messages=messages, max_tokens=2, cache_salt=salt)


def _prove_chat(bench: Bench, salt: str) -> Finding:
    words, first = make_words(salt, 3 * bench.block_size), len(bench.compared)
    bench.chat("a new chat", _chat(bench, words, salt))
    bench.chat("the same chat", _chat(bench, words, salt))
    bench.chat("its next turn", _chat(bench, words, salt, "Yes.", "And then?"))
    bench.chat("the same chat under another salt", _chat(bench, words, f"{salt}-2"))
    bench.chat("the chat cut short", _chat(bench, words[: 2 * bench.block_size], salt))
    chats = slice(first, len(bench.compared))
    lies = judge_lies(*bench.whole(chats), bench.block_size)
    return judge_calls(Claim.CHAT, bench.compared[chats], lies)


def _read_counters(http: httpx.Client) -> tuple[float | None, float | None]:
    """Prompt tokens looked up, and of those found, since the server began."""
    try:
        text = http.get("/metrics").text
    except httpx.TransportError:
        return None, None  # a server that died says so to the next request
    return read_counter(text, "vllm:prefix_cache_queries_total"), read_counter(
        text, "vllm:prefix_cache_hits_total"
    )


def _prove_counters(http: httpx.Client, before: tuple[float | None, float | None], bench: Bench) -> Finding:
    asked = sum(call.prompt_tokens for call in bench.compared)
    deadline = time.monotonic() + _SETTLE_S
    while True:
        after = _read_counters(http)
        grown = [
            b - a if a is not None and b is not None else None for a, b in zip(before, after, strict=True)
        ]
        # The counters follow the answers by a moment.
        if grown[0] is None or grown[0] >= asked or time.monotonic() > deadline:
            return judge_counters(queries=grown[0], hits=grown[1], calls=bench.compared)
        time.sleep(0.1)


def _prove_pool(
    bench: Bench,
    found: ServerCapabilities,
    vocabulary: Sequence[int],
    longest: int,
    salt: str,
    budget_s: float,
    *,
    believed: bool,
) -> Finding:
    blocks = found.num_gpu_blocks.value
    if blocks is None:
        return unproven(
            Claim.POOL, f"The server does not tell how many blocks it has ({found.num_gpu_blocks.how})."
        )
    if not believed:
        return unproven(Claim.POOL, "What it reports differs before anything is evicted.")
    tokens = blocks * bench.block_size
    expected_s = tokens * bench.seconds / max(bench.computed_tokens, 1)
    if expected_s > budget_s:
        return unproven(
            Claim.POOL,
            f"Filling {blocks:,} blocks means to compute {tokens:,} tokens, about {expected_s:,.0f} s at the speed "
            f"seen: allow it with --budget {expected_s:,.0f}.",
        )
    calls = bench.compared[bench.run(pool_shapes(vocabulary, bench.block_size, blocks, longest, salt))]
    wrong = judge_calls(Claim.POOL, calls, ())
    if wrong.verdict is not Verdict.PROVEN:
        return wrong
    return proven(
        Claim.POOL,
        f"{len(calls)} requests filled {blocks - 1:,} usable blocks and evicted as predicted; one block more or "
        "fewer would have shown.",
    )


def _prove_events(root: str, api_key: str | None, bench: Bench, *, whole_pool: bool) -> Finding:
    if bench.predictor.pool is None:
        return unproven(Claim.EVENTS, "The server does not tell how many blocks it has.")
    try:
        endpoint = find_kv_events(root, api_key)
    except LabError as error:
        return unproven(Claim.EVENTS, str(error))
    predicted = dict(bench.predictor.contents())
    with KVEventSubscription(endpoint) as subscription:
        live = LiveMirror(subscription)
        deadline = time.monotonic() + _SETTLE_S
        while True:
            live.advance(0.1)
            finding = judge_events(live.mirror, predicted, whole_pool=whole_pool)
            if finding.verdict is Verdict.PROVEN or time.monotonic() > deadline:
                return finding


def _page(
    root: str,
    found: ServerCapabilities,
    info: ServerInfo | None,
    findings: Sequence[Finding],
    lies: tuple[NamedLie, ...],
    bench: Bench | None,
) -> ServerProof:
    models = found.models.value or ()
    return ServerProof(
        base_url=root,
        model=models[0].id if models else None,
        engine=found.engine.value,
        version=found.version.value,
        block_size=found.block_size.value,
        num_blocks=found.num_gpu_blocks.value,
        asynchronous=None if info is None else info.asynchronous,
        findings=tuple(findings),
        lies=lies,
        compared=() if bench is None else tuple(bench.compared),
    )
