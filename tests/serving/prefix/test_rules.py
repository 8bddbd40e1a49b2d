from __future__ import annotations

import pytest

from serving.prefix.rules import CacheKind, EngineTraits, Unsupported, unsupported


def test_a_plain_decoder_is_supported() -> None:
    assert unsupported(EngineTraits()) == ()


@pytest.mark.parametrize(
    ("traits", "reasons"),
    [
        (EngineTraits(caching=False), {Unsupported.CACHING_OFF}),
        (EngineTraits(groups=(CacheKind.SLIDING_WINDOW,)), {Unsupported.SLIDING_WINDOW}),
        (EngineTraits(groups=(CacheKind.CHUNKED_LOCAL,)), {Unsupported.CHUNKED_LOCAL}),
        (EngineTraits(groups=(CacheKind.STATE_SPACE,)), {Unsupported.STATE_SPACE}),
        (
            EngineTraits(groups=(CacheKind.FULL, CacheKind.STATE_SPACE)),
            {Unsupported.SEVERAL_GROUPS, Unsupported.STATE_SPACE},
        ),
        (
            EngineTraits(groups=(CacheKind.FULL, CacheKind.CROSS)),
            {Unsupported.SEVERAL_GROUPS, Unsupported.CROSS_ATTENTION},
        ),
        (EngineTraits(speculative_tokens=3), {Unsupported.SPECULATIVE_DECODING}),
        (EngineTraits(kv_connector=True), {Unsupported.KV_CONNECTOR}),
        (EngineTraits(decode_context_parallel=2), {Unsupported.CONTEXT_PARALLEL}),
        (EngineTraits(hash_algorithm="xxhash", compares_keys=True), {Unsupported.HASH_SEED_UNKNOWN}),
        (EngineTraits(other_keys=True), {Unsupported.OTHER_KEYS}),
        (EngineTraits(prompt_logprobs=True), {Unsupported.READS_SKIPPED}),
    ],
)
def test_every_other_rule_is_refused_by_its_reason(traits: EngineTraits, reasons: set[Unsupported]) -> None:
    assert set(unsupported(traits)) == reasons


def test_an_unknown_hash_does_not_matter_while_only_tokens_are_counted() -> None:
    assert unsupported(EngineTraits(hash_algorithm="xxhash")) == ()
