from __future__ import annotations

import pytest

from serving.capabilities import Fact, ServerCapabilities
from serving.errors import LabError
from serving.probe import probe_server
from tests.support.stub import running_stub


def _probe(persona: str, **options: bool) -> ServerCapabilities:
    with running_stub(persona) as stub:
        return probe_server(stub.base_url, **options)


def _facts(found: ServerCapabilities) -> dict[str, Fact]:
    return {name: value for name, value in found if isinstance(value, Fact)}


def test_a_server_that_tells_everything_is_known_in_full():
    found = _probe("vllm")
    assert all(fact.value is not None and fact.how for fact in _facts(found).values())
    assert (found.engine.value, found.version.value) == ("vllm", "0.32.0")
    assert (found.block_size.value, found.num_gpu_blocks.value, found.kv_cache_tokens.value) == (
        16,
        512,
        8192,
    )
    assert found.models.value[0].max_model_len == 4096
    assert found.cached_tokens.value and found.cached_tokens_exact.value and found.cache_salt.value
    assert found.token_ids.value and found.render_offsets.value and found.reset_prefix_cache.value
    cold, warm, _, longer, other = found.canary
    assert cold.cached_tokens == other.cached_tokens == 0
    assert warm.cached_tokens == warm.expected_cached_tokens >= 3 * 16
    assert longer.prompt_tokens > warm.prompt_tokens
    assert ServerCapabilities.model_validate_json(found.model_dump_json()) == found


def test_a_server_that_lacks_everything_leaves_reasons_not_guesses():
    found = _probe("bare")
    for name in (
        "engine",
        "version",
        "block_size",
        "num_gpu_blocks",
        "kv_cache_tokens",
        "cached_tokens_exact",
    ):
        assert getattr(found, name).value is None, name
    for name in ("cached_tokens", "token_ids", "render", "tokenize", "reset_prefix_cache", "cache_salt"):
        assert getattr(found, name).value is False, name
    assert all(fact.how for fact in _facts(found).values())
    assert "404" in found.version.how


def test_a_server_that_calls_a_new_prompt_cached_is_not_believed():
    found = _probe("boasting")
    assert found.cached_tokens.value is False
    assert "never sent before" in found.cached_tokens.how
    assert found.cached_tokens_exact.value is None


def test_a_server_that_always_says_zero_is_not_believed():
    assert _probe("silent").cached_tokens.value is False


def test_a_false_block_size_is_found_out_even_where_one_length_would_agree():
    found = _probe("wrong-block")
    assert found.cached_tokens.value is True
    assert found.cached_tokens_exact.value is False


def test_a_page_of_html_everywhere_is_no_capability():
    found = _probe("garbler")
    assert found.models.value is None
    assert not any(fact.value for fact in _facts(found).values())


@pytest.mark.parametrize("allowed", [False, True])
def test_a_strangers_cache_is_reset_only_when_asked(allowed):
    found = _probe("vllm", reset=allowed)
    assert found.reset_prefix_cache.value is True
    assert ("not tried" in found.reset_prefix_cache.how) is not allowed


def test_a_url_where_nobody_listens_is_an_error():
    with pytest.raises(LabError, match="is it running"):
        probe_server("http://127.0.0.1:1")
