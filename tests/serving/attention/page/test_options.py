from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serving.attention import CaptureOptions, RowMode
from serving.attention.page import viewer_options
from serving.attention.plan import HeadShape, make_plan
from serving.attention.segments import plain_segments

SHAPE = HeadShape(num_layers=1, num_heads=1, num_kv_heads=1, head_dim=4)


@given(tokens=st.integers(2, 40_000))
def test_no_stored_row_straddles_a_bin_of_the_map(tokens: int) -> None:
    options = viewer_options(tokens)
    plan = make_plan(SHAPE, plain_segments(tokens), options)
    assert options.row_bins <= CaptureOptions().row_bins
    assert np.array_equal(plan.row_starts // plan.bin_width, (plan.row_ends - 1) // plan.bin_width)


def test_rows_that_somebody_chose_stay() -> None:
    every = CaptureOptions(rows=RowMode.EVERY)
    assert viewer_options(1000, every) == every
