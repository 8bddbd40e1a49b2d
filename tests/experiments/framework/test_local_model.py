from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.framework.local_model import LocalModel, load_model
from serving.attention import CaptureOptions, RowMode, Segment, SegmentKind, build_segments
from serving.errors import LabError
from tests.support.tiny_weights import write_tiny_weights


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    path: Path = write_tiny_weights(tmp_path_factory.mktemp("tiny") / "tiny").path
    with load_model()({"engine.model": str(path)}) as served:
        return served.target


@pytest.mark.parametrize("chosen", [(199,), (150, 199, 205), (200, 205)], ids=["last", "before", "answer"])
def test_a_capture_that_goes_on_from_a_read_prompt_is_that_of_the_whole(
    model: LocalModel, chosen: tuple[int, ...]
) -> None:
    ids = [3 + i % 500 for i in range(206)]
    owners = [
        Segment(id=f"part-{i // 50}", label=f"part {i // 50}", kind=SegmentKind.TEXT) for i in range(206)
    ]
    segments = build_segments(owners, prompt_tokens=200)
    options = CaptureOptions(rows=RowMode.CHOSEN, chosen=chosen)
    read = model.read(ids[:200])
    answer = read.answer(4)
    whole = model.capture(ids, segments, options)
    rest = model.capture(ids, segments, options, read)
    np.testing.assert_allclose(rest.mass, whole.mass, atol=1e-5)
    np.testing.assert_allclose(rest.sink, whole.sink, atol=1e-5)
    # What was read is as it was: the next answer is the same.
    assert read.answer(4) == answer
    assert read.cache.get_seq_length() == 200


@pytest.mark.parametrize("shared", [0, 1, 127, 128, 200, 256, 300])
def test_a_prompt_gives_the_same_bits_whatever_was_read_before(model: LocalModel, shared: int) -> None:
    ids = [3 + i % 500 for i in range(300)]
    model._last.clear()
    fresh = model.read(ids)
    expected, said = fresh.scores.clone(), fresh.answer(5)
    model.read([*ids[:shared], *(7 for _ in range(40))])
    again = model.read(ids)
    assert torch.equal(again.scores, expected)
    assert again.answer(5) == said


def test_a_prompt_whose_cache_was_taken_over_is_refused(model: LocalModel) -> None:
    first = model.read([3, 4, 5])
    model.read([3, 4, 6])
    with pytest.raises(LabError, match="read this one again"):
        first.answer(1)
    with pytest.raises(LabError, match="at least one token"):
        model.read([])


def test_a_cache_that_a_failed_capture_has_shortened_is_not_gone_on_from(model: LocalModel) -> None:
    ids = [3 + i % 500 for i in range(300)]
    expected = model.read(ids).scores.clone()
    read = model.read(ids)
    with pytest.raises(ZeroDivisionError), read.only(10):
        _ = 1 / 0
    with pytest.raises(LabError, match="read this one again"):
        read.answer(1)
    assert torch.equal(model.read(ids).scores, expected)
