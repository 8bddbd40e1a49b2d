"""How large the viewer's page is, and how soon a browser has drawn it.

    python -m benchmarks.attention_page                     # made-up captures of 4,096 tokens
    python -m benchmarks.attention_page --capture FILE      # one of `ctxlab attend`

Made-up maps are random, so they compress worse than real ones. The time is the page's own, from the start of its
navigation to its last drawing, in a headless Chromium with a fresh profile; what else the machine does is in it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from serving.attention import Capture, CaptureOptions, Segment, SegmentKind, build_segments, load_capture
from serving.attention.capture import ModelIdentity
from serving.attention.page import render_page, viewer_options, write_page
from tests.support.chromium import COMMAND, chromium

SHAPES = {"smollm2-135m": (30, 9), "qwen3-0.6b": (28, 16), "qwen3-4b": (36, 32)}
"""Layers and query heads."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--capture", type=Path, help="a capture file instead of made-up ones")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--segments", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.capture:
        measure(arguments.capture.name, load_capture(arguments.capture), arguments.repeats)
        return
    for name, shape in SHAPES.items():
        measure(name, made_up(name, *shape, arguments.tokens, arguments.segments), arguments.repeats)


def measure(name: str, capture: Capture, repeats: int) -> None:
    """One line: bytes, seconds to write, milliseconds to draw."""
    start = time.perf_counter()
    page = render_page(capture)
    wrote = time.perf_counter() - start
    drawn = drawing_times(page, repeats) if COMMAND else []
    shown = (
        f"drawn after {statistics.median(drawn):.0f} ms (median of {repeats}, {min(drawn):.0f} to {max(drawn):.0f})"
        if drawn
        else "no Chromium here"
    )
    print(f"{name:14} {capture.tokens} tokens: {len(page) / 1e6:.2f} MB, written in {wrote:.1f} s, {shown}")


def drawing_times(page: str, repeats: int) -> list[float]:
    """Milliseconds from navigation to the page's last drawing."""
    with tempfile.TemporaryDirectory() as folder, chromium() as tab:
        file = Path(folder) / "page.html"
        write_page(file, page)
        times = []
        for _ in range(repeats):
            tab.open(file)
            times.append(float(tab.evaluate("document.documentElement.dataset.ready")))
        return times


def made_up(name: str, layers: int, heads: int, tokens: int, parts: int) -> Capture:
    """A capture of the right shapes: rows that sum to 1, and no sense."""
    rng = np.random.default_rng(0)
    cuts = np.linspace(0, tokens, parts + 1).astype(int)
    owners = [
        Segment(id=f"part-{part}", label=f"part {part}", kind=SegmentKind.TEXT)
        for part in range(parts)
        for _ in range(cuts[part], cuts[part + 1])
    ]
    segments = build_segments(owners, prompt_tokens=tokens)
    options = viewer_options(tokens, CaptureOptions(row_bins=128))
    fine = -(-tokens // (2 * options.heatmap_bins))
    bins = -(-tokens // fine)
    width = -(-tokens // options.row_bins)
    starts = np.arange(0, tokens, width)
    maps = rng.exponential(size=(layers, heads, bins // 2, bins // 2)) * np.tri(bins // 2)
    maps /= maps.sum(-1, keepdims=True)
    fine_maps = np.kron(maps.mean(1), np.ones((2, 2))) / 2 * np.tri(bins)
    between = rng.dirichlet(np.ones(parts + 1), size=(layers, heads, parts + 1))
    mass = rng.dirichlet(np.ones(parts + 1), size=(layers, heads, len(starts)))
    received = rng.exponential(size=(layers, heads, tokens))

    def floats(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float32)

    return Capture(
        model=ModelIdentity(
            name=name,
            architecture="made up",
            weights_sha256=None,
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=64,
            dtype="float32",
        ),
        options=options,
        segments=segments,
        token_ids=tuple(range(tokens)),
        layers=tuple(range(layers)),
        heads=tuple(range(heads)),
        row_starts=starts,
        row_ends=np.minimum(starts + width, tokens),
        mass=floats(mass),
        sink=floats(mass[..., 0]),
        between=floats(between),
        rows_in=segments.sizes,
        entropy=floats(mass[..., 0]),
        received=floats(received),
        heatmap=floats(maps),
        heatmap_mean=floats(fine_maps),
        heatmap_max=floats(fine_maps),
        pieces=tuple(f"word{token}" for token in range(tokens)),
        baseline=floats(between),
    )


if __name__ == "__main__":
    main()
