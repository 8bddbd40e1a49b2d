from __future__ import annotations

import base64
import gzip

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from serving.attention.page.packing import DECADES, Blob, linear_shorts, log_bytes, lower_triangle

SHARES = arrays(np.float32, st.integers(1, 30), elements=st.floats(0, 1, width=32))


def shown(steps: np.ndarray) -> np.ndarray:
    """What the page makes of the bytes (`data.js`)."""
    return np.where(steps == 0, 0, 10.0 ** ((steps.astype(np.float64) - 255) * (DECADES / 254)))


@given(SHARES)
def test_a_byte_is_off_by_less_than_a_half_step_or_stands_for_almost_nothing(values: np.ndarray) -> None:
    back = shown(log_bytes(values))
    seen = values >= 10.0**-DECADES
    assert np.all(np.abs(back[seen] / values[seen] - 1) < 0.0233)
    assert np.all(back[~seen] <= 1.03 * 10.0**-DECADES)


@given(SHARES)
def test_a_larger_share_never_gets_a_smaller_byte(values: np.ndarray) -> None:
    assert np.all(np.diff(log_bytes(np.sort(values)).astype(int)) >= 0)


@given(SHARES)
def test_a_linear_step_is_fine(values: np.ndarray) -> None:
    assert np.all(np.abs(linear_shorts(values) / 65535 - values) < 1e-5)


def test_nothing_and_all_are_kept_exactly() -> None:
    ends = np.array([0, 1], dtype=np.float32)
    assert list(shown(log_bytes(ends))) == [0, 1]


def test_a_triangle_is_read_row_by_row_to_the_diagonal() -> None:
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert list(lower_triangle(square)) == [0, 3, 4, 6, 7, 8]


def test_every_array_begins_where_its_elements_may_and_reads_back() -> None:
    blob = Blob()
    given_arrays = [
        np.arange(5, dtype=np.uint8),
        np.arange(3, dtype=np.float32),
        np.arange(7, dtype=np.uint16),
        np.zeros((0, 4), dtype=np.uint32),
    ]
    places = [blob.add(array) for array in given_arrays]
    raw = gzip.decompress(base64.b64decode(blob.text()))
    for array, place in zip(given_arrays, places, strict=True):
        assert isinstance(place, dict)
        at, length = place["at"], place["length"]
        assert isinstance(at, int)
        assert isinstance(length, int)
        assert at % 8 == 0
        assert np.array_equal(np.frombuffer(raw, array.dtype, length, at).reshape(array.shape), array)
