"""`Recorder`: adds up the statistics of every tile, and proves that every position came exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch

from serving.attention.capture import Integers
from serving.attention.lanes import Lanes
from serving.attention.options import Statistic
from serving.attention.plan import Arrays, Plan, array_shapes
from serving.attention.tiles import Buffers, Heads, Rows, Tile, divide, tiles
from serving.errors import LabError

_TOLERANCE: Final = 1e-4
"""How far the parts of a row may be from 1 in sum."""

_FEW_ROWS: Final = 8


class Recorder:
    """Takes the queries and keys of a running model, layer by layer and piece by piece, in any order.

    Rows may come in one prefill, in chunks, or one by one from cached decoding: the sums are the same.
    """

    def __init__(self, plan: Plan, observed: Callable[[int], None] | None = None, *, cached: int = 0) -> None:
        """Args: `observed` is told of every layer's piece: how many positions it had; `cached` leading positions
        are in the model's cache already and will not come, so none of their rows (or keys) may be wanted.

        Raises: LabError when one of them is.
        """
        first = int(plan.captured.min(initial=plan.tokens))
        if first < cached or (cached and plan.options.keep_rows):
            raise LabError(
                f"Position {first} is to be captured, but the model holds {cached} positions in its cache and "
                "will not read them again; read the whole sequence."
            )
        self.plan = plan
        self._observed = observed
        self._lanes: Lanes[Heads, Buffers] = Lanes(Buffers)
        self._sums: dict[str, torch.Tensor] = {}
        self._seen = np.zeros((len(plan.layers), plan.tokens), dtype=bool)
        self._seen[:, :cached] = True
        self._fixed: _Fixed | None = None

    def observe(self, layer: int, query: torch.Tensor, key: torch.Tensor, scale: float) -> None:
        """One layer's piece: query [Hq, Tq, D] of the last Tq of the Tk positions, key [Hkv, Tk, D].

        Both as the attention reads them: after norms, rotation and the cache, keys not repeated.
        Raises: LabError when a position comes twice or lies beyond the planned sequence.
        """
        asked, held = query.shape[1], key.shape[1]
        first = held - asked
        if layer in self.plan.layers:
            place = self.plan.layers.index(layer)
            self._cover(place, layer, first, held)
            fixed = self._constants(query.device)
            captured = fixed.captured
            positions = captured[(captured >= first) & (captured < held)]
            if kept := self.plan.options.keep_rows:
                self._keep(place, query, key, first, scale, kept)
            if len(positions):
                self._walk(place, Rows(query, key, positions, first, scale), fixed)
        if self._observed is not None:
            self._observed(asked)

    def rehearse(self, query: torch.Tensor, key: torch.Tensor, positions: torch.Tensor, first: int) -> None:
        """Do the work of these rows in the first captured layer without counting them as seen, to time it."""
        self._walk(0, Rows(query, key, positions, first, 1.0), self._constants(query.device))

    def finish(self) -> Arrays:
        """The sums as arrays of `array_shapes`.

        Raises: LabError when a position never came, or the parts of a row do not sum to 1.
        """
        if not self._seen.all():
            layer, token = np.argwhere(~self._seen)[0]
            raise LabError(
                f"Every position must be seen once in every layer, but layer {self.plan.layers[layer]} never "
                f"saw position {token} of {self.plan.tokens}; run the whole sequence through the model."
            )
        arrays = {name: tensor.cpu().numpy() for name, tensor in self._sums.items()}
        counts = (self.plan.row_ends - self.plan.row_starts).astype(np.float32)
        for name in ("mass", "sink", "entropy", "peak", "distance", "distance_sd"):
            if name in arrays:
                arrays[name] /= counts[:, None] if name == "mass" else counts
        worst = float(np.abs(arrays["mass"].sum(-1, dtype=np.float64) - 1).max(initial=0))
        if not worst <= _TOLERANCE:
            raise LabError(
                f"The parts of a row must sum to 1 within {_TOLERANCE:g}, but one is off by {worst:.2g}; this "
                "is a defect, or the model's queries and keys are not finite numbers."
            )
        return arrays

    def _cover(self, place: int, layer: int, first: int, held: int) -> None:
        if held > self.plan.tokens or self._seen[place, first:held].any():
            raise LabError(
                f"Every position must be seen once, but layer {layer} got positions {first} to {held - 1} of "
                f"{self.plan.tokens} again or beyond the end; give every run its own recorder."
            )
        self._seen[place, first:held] = True

    def _constants(self, device: torch.device) -> _Fixed:
        if self._fixed is None:
            self._fixed = _Fixed(self.plan, device)
            shapes = array_shapes(self.plan.size, self.plan.options)
            self._sums = {name: torch.zeros(shape, device=device) for name, shape in shapes.items()}
        return self._fixed

    def _walk(self, layer: int, rows: Rows, fixed: _Fixed) -> None:
        def work(heads: Heads, buffers: Buffers) -> None:
            # In every thread and whatever the caller's mode: what is made in this mode is changed only in it.
            with torch.inference_mode():
                for tile in tiles(rows, heads, self.plan.bin_width, buffers):
                    self._add(layer, tile, rows.positions[tile.rows], fixed)

        tasks = divide(self.plan.heads, self.plan.shape.group, len(rows.positions))
        # One row at a time is too little to share; a graphics device shares by itself.
        alone = len(rows.positions) < _FEW_ROWS or rows.query.device.type != "cpu"
        self._lanes.run(work, tasks, one_by_one=alone)

    def _keep(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        first: int,
        scale: float,
        kept: Sequence[int],
    ) -> None:
        held = key.shape[1]
        here = [place for place, position in enumerate(kept) if first <= position < held]
        with torch.inference_mode():
            self._sums["scales"][layer] = scale
            self._sums["keys"][layer, :, first:held] = key[list(self.plan.kv_heads), first:]
            if here:
                asked = query[list(self.plan.heads)][:, [kept[place] - first for place in here]]
                self._sums["queries"][layer][:, here] = asked.to(torch.float32)

    def _add(self, layer: int, tile: Tile, at: torch.Tensor, fixed: _Fixed) -> None:
        plan, sums, heads = self.plan, self._sums, tile.heads
        group, count, width = tile.weights.shape
        flat = tile.weights.view(group * count, width)
        inverse = 1 / tile.total
        rows = fixed.row_of[at]

        parts = (flat @ fixed.columns[:width])[:, : fixed.used] * inverse.view(-1, 1)
        parts = parts.view(group, count, len(plan.owners), -1)
        sums["mass"][layer, heads].index_add_(1, rows, parts[:, :, 0])
        sums["sink"][layer, heads].index_add_(1, rows, tile.weights[:, :, 0] * inverse)
        for order, owners in enumerate(fixed.owners):
            sums["between"][layer, order, heads].index_add_(1, owners[at], parts[:, :, order])
        if plan.wants(Statistic.PEAK):
            sums["peak"][layer, heads].index_add_(1, rows, inverse)  # the largest weight is exp(0)
        if plan.wants(Statistic.ENTROPY):
            surprise = torch.linalg.vecdot(tile.weights, tile.shifted) * inverse
            sums["entropy"][layer, heads].index_add_(1, rows, tile.total.log() - surprise)
        if plan.wants(Statistic.RECEIVED):
            received = torch.bmm(inverse[:, None], tile.weights)[:, 0, : plan.tokens]
            sums["received"][layer, heads, : received.shape[1]] += received
        if plan.wants(Statistic.HEATMAP) or plan.wants(Statistic.DISTANCE):
            self._add_binned(layer, tile, at, inverse, fixed)
        if plan.options.full_rows:
            found, wanted = torch.nonzero(at[:, None] == fixed.full_rows, as_tuple=True)
            if len(found):
                exact = tile.weights[:, found, : plan.tokens] * inverse[:, found, None]
                sums["full"][layer, heads][:, wanted, : exact.shape[2]] = exact

    def _add_binned(
        self, layer: int, tile: Tile, at: torch.Tensor, inverse: torch.Tensor, fixed: _Fixed
    ) -> None:
        """The moments of every key bin: masses are the map, all three give mean and spread of the place."""
        plan, sums, heads = self.plan, self._sums, tile.heads
        group, count, width = tile.weights.shape
        bins = width // plan.bin_width
        moments = tile.weights.view(-1, plan.bin_width) @ fixed.moments
        moments = moments.view(group, count, bins, 3) * inverse[:, :, None, None]
        if plan.wants(Statistic.HEATMAP):
            sums["heatmap"][layer, heads, :, :bins].index_add_(1, at // plan.bin_width, moments[..., 0])
        if plan.wants(Statistic.DISTANCE):
            mass, first, second = moments.double().unbind(-1)
            rows = fixed.row_of[at]
            mean = (fixed.centres[:bins] * mass + first).sum(-1)
            off = fixed.centres[:bins] - mean[..., None]
            variance = (off * off * mass + 2 * off * first + second).sum(-1).clamp_(min=0)
            sums["distance"][layer, heads].index_add_(1, rows, (at - mean).float())
            sums["distance_sd"][layer, heads].index_add_(1, rows, variance.sqrt().float())


class _Fixed:
    """What is the same for all layers, as tensors on the model's device."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        def tensor(values: Integers) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        self.captured = tensor(plan.captured)
        self.row_of = tensor(plan.row_of)
        self.owners = tensor(plan.owners)
        self.full_rows = torch.tensor(plan.options.full_rows, dtype=torch.int64, device=device)
        parts = len(plan.segments.segments)
        self.used = len(plan.owners) * parts
        # Matrix kernels work on whole vectors of columns: 25 cost more than 32.
        self.columns = torch.zeros(plan.bins * plan.bin_width, -(-self.used // 16) * 16, device=device)
        """[T padded, orders × S padded]: 1 where a key belongs to a segment."""
        places = self.owners.T + parts * torch.arange(len(plan.owners), device=device)
        self.columns[: plan.tokens].scatter_(1, places, 1.0)
        # Places inside a bin are counted from its middle: in float32 a spread of a few tokens would vanish
        # beside the square of a place in the ten thousands.
        inside = torch.arange(plan.bin_width, device=device, dtype=torch.float32) - (plan.bin_width - 1) / 2
        self.moments = torch.stack([torch.ones_like(inside), inside, inside * inside], dim=1)
        middles = torch.arange(plan.bins, device=device, dtype=torch.float64) * plan.bin_width
        self.centres = middles + (plan.bin_width - 1) / 2
