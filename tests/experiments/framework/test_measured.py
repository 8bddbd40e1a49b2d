from __future__ import annotations

import pytest

from experiments.framework.measured import total


@pytest.mark.parametrize(
    ("parts", "sum_of_them"),
    [((), 0), ((1.5, 2), 3.5), ((1, None), None), ((None,), None)],
)
def test_a_total_is_unknown_where_one_part_is(parts, sum_of_them) -> None:
    assert total(iter(parts)) == sum_of_them
