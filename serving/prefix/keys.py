"""Block keys: the very bytes under which vLLM files a block of the prefix cache."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

DEFAULT_SEED = "vllm-none-hash"
"""What vLLM hashes into the root key when PYTHONHASHSEED is not set (vllm/v1/core/kv_cache_utils.py)."""

ExtraKeys = tuple[tuple[str, str], ...]
_Hashable = tuple[bytes, tuple[int, ...], ExtraKeys | None]


class HashAlgorithm(StrEnum):
    """The values of `--prefix-caching-hash-algo` whose keys can be known from outside the server.

    vLLM's `xxhash` and `xxhash_cbor` start from random bytes, so their keys cannot be foretold.
    """

    SHA256 = "sha256"
    SHA256_CBOR = "sha256_cbor"


def seed_from(environ: Mapping[str, str]) -> str:
    """Give the seed of a server that runs under `environ`: PYTHONHASHSEED as text, else `DEFAULT_SEED`.

    Source: vLLM's `resolve_none_hash_seed`. The server's environment counts, not the caller's.
    """
    return environ.get("PYTHONHASHSEED", DEFAULT_SEED)


@dataclass(frozen=True)
class BlockHasher:
    """The chain hash: the key of a block covers its own ids and, through its parent, every id before them.

    `block_size` in tokens. The keys are byte for byte those of vLLM 0.32's `get_request_block_hasher`
    for requests without LoRA, multimodal inputs or prompt embeddings.
    """

    block_size: int
    algorithm: HashAlgorithm = HashAlgorithm.SHA256
    seed: str = DEFAULT_SEED

    @cached_property
    def root(self) -> bytes:
        """The parent key of every first block (vLLM's NONE_HASH)."""
        return _digest(self.algorithm, self.seed)

    def keys(
        self, token_ids: Sequence[int], *, cache_salt: str | None = None, known: Sequence[bytes] = ()
    ) -> tuple[bytes, ...]:
        """Give one 32-byte key for each full block of `token_ids`; ids after the last full block have none.

        `cache_salt` enters block 0 only and reaches the others through the chain. `known` are keys already
        computed for a prefix of the same ids under the same salt; they are kept and extended. The ids must
        be Python ints: pickle writes NumPy integers differently.
        """
        size = self.block_size
        keys = list(known)
        parent = keys[-1] if keys else self.root
        for start in range(len(keys) * size, len(token_ids) - size + 1, size):
            extra: ExtraKeys | None = (("cache_salt", cache_salt),) if start == 0 and cache_salt else None
            parent = _digest(self.algorithm, (parent, tuple(token_ids[start : start + size]), extra))
            keys.append(parent)
        return tuple(keys)


def event_key(key: bytes) -> int:
    """Give the form a key has in KV events by default: its low 64 bits.

    Source: vLLM's `maybe_convert_block_hash`; with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 events carry the
    32 bytes themselves.
    """
    return int.from_bytes(key[-8:], "big")


def _digest(algorithm: HashAlgorithm, value: str | _Hashable) -> bytes:
    match algorithm:
        case HashAlgorithm.SHA256:
            encoded = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        case HashAlgorithm.SHA256_CBOR:
            encoded = _cbor(value)
    return hashlib.sha256(encoded).digest()


def _cbor(value: object) -> bytes:
    """Encode the few types that a block key is made of as canonical CBOR (RFC 8949, section 4.2).

    Four types do not earn a dependency; the tests hold this against the encoder that vLLM uses.
    """
    match value:
        case None:
            return b"\xf6"
        case int() if value >= 0:
            return _cbor_head(0, value)
        case bytes():
            return _cbor_head(2, len(value)) + value
        case str():
            text = value.encode()
            return _cbor_head(3, len(text)) + text
        case tuple():
            return _cbor_head(4, len(value)) + b"".join(map(_cbor, value))
        case _:
            raise TypeError(f"A block key holds None, ids, bytes, text and tuples; got {value!r}.")


def _cbor_head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    for code, width in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 1 << (8 * width):
            return bytes([major << 5 | code]) + argument.to_bytes(width, "big")
    raise TypeError(f"A block key holds integers below 2**64; got {argument}.")
