"""Options under which the page can set the sink apart exactly."""

from __future__ import annotations

from serving.attention.options import CaptureOptions, RowMode


def viewer_options(tokens: int, options: CaptureOptions | None = None) -> CaptureOptions:
    """`options` with as many stored rows, at most `row_bins`, as fit the map's bins without straddling one.

    Only pooled rows change. A stored row is then a divisor of a bin, so a bin's sink is a mean of whole rows.
    """
    given = options or CaptureOptions()
    if given.rows is not RowMode.POOLED:
        return given
    bin_width = -(-tokens // (2 * given.heatmap_bins))
    least = -(-tokens // given.row_bins)
    for width in range(least, bin_width + 1):
        row_bins = -(-tokens // width)
        if bin_width % width == 0 and -(-tokens // row_bins) == width:
            return given.model_copy(update={"row_bins": row_bins})
    return given
