"""Fixed keys, so that a change shows even where vLLM is not installed."""

from __future__ import annotations

import pytest

from serving.prefix import BlockHasher, HashAlgorithm, event_key, seed_from

# Computed with vLLM 0.32's own functions: the root, ids 0 … 15 under salt "tenant", then ids 16 … 31.
KEYS = {
    HashAlgorithm.SHA256: (
        "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
        "becd92828345ee4d06c1166c27360c470049395b0ebb51ca69a627dee601d952",
        "72d66b959e1e2aca8ba15f182316a6ab7fa18c98509fd4a295beb61500ef1e0e",
    ),
    HashAlgorithm.SHA256_CBOR: (
        "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
        "18b0eee824a2c0ff128d73b39b296a7fe8292500e884e10f6aaa53877cd09e01",
        "2f48b89d8981af9a4cbc85b33f333d74d34a7f4a281229fad437a4f19740d544",
    ),
}


@pytest.mark.parametrize("algorithm", list(HashAlgorithm))
def test_keys_have_not_changed(algorithm: HashAlgorithm) -> None:
    hasher = BlockHasher(16, algorithm)
    keys = hasher.keys(range(40), cache_salt="tenant")
    assert tuple(key.hex() for key in (hasher.root, *keys)) == KEYS[algorithm]


def test_a_salt_changes_every_block() -> None:
    hasher = BlockHasher(4)
    assert not set(hasher.keys(range(40), cache_salt="a")) & set(hasher.keys(range(40), cache_salt="b"))


def test_equal_blocks_at_different_places_have_different_keys() -> None:
    keys = BlockHasher(4).keys([1, 2, 3, 4] * 5)
    assert len(set(keys)) == 5


def test_the_seed_is_the_servers_variable_or_the_fixed_text() -> None:
    assert seed_from({"PYTHONHASHSEED": "0"}) == "0"
    assert seed_from({}) == "vllm-none-hash"


def test_the_key_in_events_is_the_low_64_bits() -> None:
    key = bytes(range(32))
    assert event_key(key) == int.from_bytes(key, "big") & (1 << 64) - 1
