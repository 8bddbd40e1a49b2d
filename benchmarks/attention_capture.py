"""Attention statistics beside transformers' own way to see attention: eager with `output_attentions`.

    python -m benchmarks.attention_capture                      # SmolLM2, T = 512, 1024, 2048 and ours to 8192
    python -m benchmarks.attention_capture --long               # 256 chosen rows at 32k tokens
    python -m benchmarks.attention_capture --viewer 64 128 256  # to what a viewer is given: ours and BertViz

Every measurement is a process of its own, the sides take turns, and what is printed are medians with their
range. All sides compute the same numbers for all heads and rows: mass per segment, entropy, sink share; the
eager side from the matrices that transformers hands back, which it lets go of one by one. `sdpa` is the plain
forward pass with nothing observed: the floor. Memory is the peak of the process during the run less what the
loaded model had before it.

BertViz is no dependency: `pip install --no-deps --target DIR bertviz==1.4.1 ipython`, and DIR on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PARTS = 24
MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument(
        "--eager", type=int, nargs="*", default=[512, 1024, 2048], help="lengths of both sides"
    )
    parser.add_argument(
        "--ours", type=int, nargs="*", default=[4096, 8192], help="lengths of ours and sdpa alone"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--long", action="store_true", help="256 chosen rows at 32,768 tokens, qwen3-nano-shape"
    )
    parser.add_argument(
        "--viewer", type=int, nargs="+", default=[], help="lengths for BertViz's page and our file"
    )
    parser.add_argument("--out", type=Path, help="write every measurement as JSON lines")
    parser.add_argument("--child", nargs=3, metavar=("SIDE", "TOKENS", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        side, tokens, file = arguments.child
        print(json.dumps(measure(arguments.model, side, int(tokens), Path(file))))
        return
    if arguments.viewer:
        cases = [(arguments.model, tokens, ("bertviz", "file")) for tokens in arguments.viewer]
    elif arguments.long:
        cases = [("qwen3-nano-shape", 32768, ("sdpa", "chosen"))]
    else:
        cases = [(arguments.model, tokens, ("sdpa", "eager", "ours")) for tokens in arguments.eager]
        cases += [(arguments.model, tokens, ("sdpa", "ours")) for tokens in arguments.ours]
    for model, tokens, sides in cases:
        report(model, tokens, take_turns(model, tokens, sides, arguments.repeats, arguments.out))


def take_turns(
    model: str, tokens: int, sides: tuple[str, ...], repeats: int, out: Path | None
) -> dict[str, list[dict[str, float]]]:
    """Every side `repeats` times, in an order that turns round each time; results must agree."""
    taken: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    files = {side: Path(f"/tmp/attention-{side}-{tokens}.npz") for side in sides}  # noqa: S108
    for turn in range(repeats):
        for side in sides if turn % 2 == 0 else reversed(sides):
            command = [sys.executable, "-m", "benchmarks.attention_capture", "--model", model]
            command += ["--child", side, str(tokens), str(files[side])]
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            taken[side].append(found)
            if out is not None:
                with out.open("a") as lines:
                    line = {"model": model, "tokens": tokens, "side": side, "turn": turn, **found}
                    lines.write(json.dumps(line) + "\n")
    if {"eager", "ours"} <= set(sides):
        eager, ours = np.load(files["eager"]), np.load(files["ours"])
        worst = max(float(np.abs(eager[name] - ours[name]).max()) for name in eager.files)
        print(f"largest difference between eager and ours, all numbers: {worst:.1e}")
    for file in files.values():
        file.unlink(missing_ok=True)
    return taken


def report(model: str, tokens: int, taken: dict[str, list[dict[str, float]]]) -> None:
    """One line a side, and the ratios of eager to ours."""
    print(f"{model}, T = {tokens}")
    middle: dict[str, dict[str, float]] = {}
    for side, found in taken.items():
        middle[side] = {name: statistics.median(run[name] for run in found) for name in found[0]}
        low, high = min(run["wall_s"] for run in found), max(run["wall_s"] for run in found)
        print(
            f"  {side:7} wall {middle[side]['wall_s']:7.2f} s ({low:.2f} to {high:.2f})"
            f"  processor {middle[side]['cpu_s']:7.2f} s  added memory {middle[side]['added'] / MIB:8.1f} MiB"
            + (f"  written {middle[side]['written'] / MIB:8.1f} MiB" if "written" in middle[side] else "")
        )
    if "eager" in middle and "ours" in middle:
        memory = middle["eager"]["added"] / middle["ours"]["added"]
        wall = middle["eager"]["wall_s"] / middle["ours"]["wall_s"]
        cpu = middle["eager"]["cpu_s"] / middle["ours"]["cpu_s"]
        print(
            f"  eager / ours: {memory:.1f} times the memory, {wall:.2f} times the wall clock, {cpu:.2f} processor"
        )


def measure(name: str, side: str, tokens: int, file: Path) -> dict[str, float]:
    """One side in this process."""
    import torch

    from serving.attention import (
        CaptureOptions,
        RowMode,
        Segment,
        SegmentKind,
        Statistic,
        build_segments,
        save,
    )
    from serving.attention.finish import to_capture
    from serving.attention.model import head_shape, load
    from serving.attention.plan import make_plan
    from serving.chat import ChatTokenizer
    from serving.models import ensure

    folder = ensure(name)
    ids = _text_ids(ChatTokenizer(folder.path), tokens)
    loaded = load(folder)
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.choice(np.arange(1, tokens), PARTS - 1, replace=False))
    part = np.searchsorted(cuts, np.arange(tokens), side="right")
    owners = [Segment(id=f"part-{p}", label=f"part {p}", kind=SegmentKind.TEXT) for p in part]
    segments = build_segments(owners, prompt_tokens=tokens)
    if side in ("eager", "bertviz"):
        loaded.model.set_attn_implementation("eager")
    short = torch.tensor([ids[:32]])
    with torch.inference_mode():
        loaded.model(short, use_cache=False, logits_to_keep=1)  # the first call pays for set-up

    before = _start_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    arrays: dict[str, np.ndarray] = {}
    if side == "sdpa":
        with torch.inference_mode():
            loaded.model(torch.tensor([ids]), use_cache=False, logits_to_keep=1)
    elif side == "bertviz":
        file.write_text(_bertviz_page(loaded.model, ids, folder.path))
    elif side == "file":
        plan = make_plan(head_shape(loaded.model), segments, CaptureOptions())
        arrays = loaded.run(plan, ids, None)
        save(to_capture(plan, arrays, loaded.identity, ids), file)
    elif side == "eager":
        arrays = _from_matrices(loaded.model, ids, segments.by_token)
    else:
        options = CaptureOptions(rows=RowMode.EVERY, statistics=frozenset({Statistic.ENTROPY}))
        if side == "chosen":
            options = CaptureOptions(rows=RowMode.CHOSEN, chosen=tuple(range(tokens - 256, tokens)))
        plan = make_plan(head_shape(loaded.model), segments, options)
        arrays = loaded.run(plan, ids, None)
    spent = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    added = float(_peak() - before)
    if side in ("eager", "ours"):
        np.savez(file, **{kept: arrays[kept] for kept in ("mass", "sink", "entropy")})
    written = {"written": float(file.stat().st_size)} if side in ("bertviz", "file") else {}
    return {**spent, "added": added, "loaded": float(before), **written}


def _bertviz_page(model, ids: list[int], folder: Path) -> str:
    """The page of BertViz' head view, all layers and heads in it as text."""
    import torch
    from bertviz import head_view

    from serving.chat import ChatTokenizer

    with torch.inference_mode():
        given = model(torch.tensor([ids]), use_cache=False, logits_to_keep=1, output_attentions=True)
    pieces = [token.piece for token in ChatTokenizer(folder).show(ids)]
    return head_view(given.attentions, pieces, html_action="return").data


def _from_matrices(model, ids: list[int], owners: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers from the matrices of all layers, each let go of once it is read."""
    import torch

    with torch.inference_mode():
        given = model(torch.tensor([ids]), use_cache=False, logits_to_keep=1, output_attentions=True)
        matrices = list(given.attentions)
        del given
        columns = torch.eye(int(owners.max()) + 1)[torch.from_numpy(owners)]
        mass, sink, entropy = [], [], []
        for layer in range(len(matrices)):
            matrix = matrices[layer][0]
            matrices[layer] = None
            mass.append(matrix @ columns)
            sink.append(matrix[:, :, 0].clone())
            entropy.append(-torch.special.xlogy(matrix, matrix).sum(-1))
    return {
        "mass": torch.stack(mass).numpy(),
        "sink": torch.stack(sink).numpy(),
        "entropy": torch.stack(entropy).numpy(),
    }


def _text_ids(tokenizer, tokens: int) -> list[int]:
    """Real text: the project's own sources."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "serving").rglob("*.py")))
    ids = tokenizer.encode(text[: 8 * tokens]).ids
    assert len(ids) >= tokens
    return list(ids[:tokens])


def _start_peak() -> int:
    """Resident bytes now; from here on `_peak` counts (Linux forgets the old peak when asked to)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()
    return _status("VmRSS")


def _peak() -> int:
    if Path("/proc/self/status").exists():
        return _status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


if __name__ == "__main__":
    main()
