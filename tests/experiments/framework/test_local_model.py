from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.framework.local_model import LocalModel, load_model
from serving.attention import CaptureOptions, RowMode, Segment, SegmentKind, build_segments
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
