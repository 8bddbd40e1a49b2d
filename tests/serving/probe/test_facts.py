from __future__ import annotations

import pytest

from serving.errors import LabError
from serving.probe import ServerFacts, read_server_facts
from tests.support.stub import running_stub


def test_a_server_that_tells_everything_gives_all_four_numbers() -> None:
    with running_stub("vllm") as stub:
        facts = read_server_facts(stub.base_url, "stub-model")
    assert facts == ServerFacts(version="0.32.0", max_model_len=4096, block_size=16, num_blocks=512)


def test_another_models_length_is_not_taken_for_this_ones() -> None:
    with running_stub("vllm") as stub:
        assert read_server_facts(stub.base_url, "other").max_model_len is None


@pytest.mark.parametrize("persona", ["bare", "garbler"])
def test_a_server_that_tells_nothing_gives_unknowns(persona: str) -> None:
    with running_stub(persona) as stub:
        facts = read_server_facts(stub.base_url, "bare-model")
    assert (facts.version, facts.block_size, facts.num_blocks) == (None, None, None)


def test_no_server_is_one_sentence() -> None:
    with pytest.raises(LabError, match=r"Expected a server at http://127\.0\.0\.1:9"):
        read_server_facts("http://127.0.0.1:9", "any")
