from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.client.metrics import CacheConfig, read_cache_config


def _line(**labels: str) -> str:
    return "vllm:cache_config_info{{{}}} 1.0\n".format(
        ",".join(f'{name}="{value}"' for name, value in labels.items())
    )


def test_the_labels_are_read_and_a_label_without_a_number_is_unknown():
    text = "# TYPE vllm:cache_config_info gauge\n" + _line(block_size="32", num_gpu_blocks="None")
    assert read_cache_config(text) == CacheConfig(block_size=32, num_gpu_blocks=None, kv_cache_tokens=None)


def test_engines_that_disagree_make_a_value_unknown():
    text = _line(engine="0", block_size="16", num_gpu_blocks="5") + _line(
        engine="1", block_size="16", num_gpu_blocks="6"
    )
    assert read_cache_config(text) == CacheConfig(block_size=16)


@given(st.text())
def test_any_text_is_read_without_an_exception(text):
    read_cache_config(text)
