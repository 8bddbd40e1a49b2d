"""How fast this machine is at best: bytes a second from memory, and operations a second in a matrix product.

    python -m experiments.latency.roofline --dtype float32 --device cpu

A process of its own, so that torch's threads and arrays are gone when the load begins. A ceiling is what the
machine can reach, so the best of several passes counts; how much it varies from trial to trial is the interval.
Source of the triad: McCalpin, "Memory bandwidth and machine balance in current high performance computers" (1995);
of the model: Williams, Waterman and Patterson, "Roofline" (2009).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError

from serving.engine.machine import inspect_machine
from serving.errors import LabError

if TYPE_CHECKING:
    import torch

TRIAD_BYTES: Final = {"cpu": 256 << 20, "cuda": 1 << 30}
"""Of one of the three arrays: many times the last cache of any processor that this is likely to meet."""
SIDE: Final = {"cpu": 1536, "cuda": 8192}
"""Of the square matrices: past it the rate does not grow."""
PASSES: Final = 5
TIMEOUT_S: Final = 300.0


class Rates(BaseModel):
    """The two rates that bound all work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes_per_s: PositiveFloat
    """The better of a triad a = b + s · c and of a sum. The triad's write counts once although many processors read a
    line before they write it, so where that costs it, the sum, which only reads as decoding does, is the ceiling."""
    flop_per_s: PositiveFloat
    """Of the product of two square matrices: 2 n³ operations."""


class Ceilings(Rates):
    """What one machine reached, and with what."""

    device: str
    dtype: str
    threads: int


def measure_ceilings(dtype: str, device: str) -> Ceilings:
    """Measure in a child process; takes some seconds with the machine to itself.

    Raises: LabError where torch is missing, knows no such type or device, or memory runs out.
    """
    command = [sys.executable, "-m", "experiments.latency.roofline", "--dtype", dtype, "--device", device]
    try:
        done = subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        return Ceilings.model_validate_json(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"Expected the machine's ceilings within {TIMEOUT_S:g} s, got none.") from error
    except ValidationError as error:
        said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        raise LabError(f"Expected the machine's ceilings, got: {said[0]}") from error


def reach(dtype: str, device: str) -> Ceilings:
    """Measure in this process."""
    import torch

    number = getattr(torch, dtype, None)
    if not isinstance(number, torch.dtype):
        raise LabError(f"Expected a number type of torch, such as float32 or bfloat16, got {dtype!r}.")
    torch.set_num_threads(len(inspect_machine().cores))
    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    return Ceilings(
        device=device,
        dtype=dtype,
        threads=torch.get_num_threads(),
        bytes_per_s=_bandwidth(device, wait),
        flop_per_s=_product(number, device, wait),
    )


def _bandwidth(device: str, wait: Callable[[], None]) -> float:
    import torch

    wide = (
        torch.float32
    )  # half-width sums are slow on many processors, and memory does not ask what the bytes mean
    count = _triad_bytes(device) // wide.itemsize
    a, b, c = (torch.full((count,), 1.0, dtype=wide, device=device) for _ in range(3))
    array = count * wide.itemsize
    triad = 3 * array / _best(lambda: torch.add(b, c, alpha=3.0, out=a), wait)
    return max(triad, array / _best(a.sum, wait))


def _triad_bytes(device: str) -> int:
    """Of one array: less than usual on a graphics card of which an idle engine has left little free."""
    import torch

    if device != "cuda":
        return TRIAD_BYTES[device]
    return min(TRIAD_BYTES[device], torch.cuda.mem_get_info()[0] // 8)


def _product(number: torch.dtype, device: str, wait: Callable[[], None]) -> float:
    import torch

    side = SIDE[device]
    a, b = (torch.randn(side, side, dtype=torch.float32, device=device).to(number) for _ in range(2))
    out = torch.empty(side, side, dtype=number, device=device)
    return 2 * side**3 / _best(lambda: torch.mm(a, b, out=out), wait)


def _best(work: Callable[[], object], wait: Callable[[], None]) -> float:
    """Seconds of the fastest pass; the first one, which meets cold pages, does not count."""
    seconds = []
    for _ in range(PASSES + 1):
        wait()
        begin = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


def _nothing() -> None:
    return


_ROOT = Path(__file__).parents[2]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", choices=sorted(TRIAD_BYTES), default="cpu")
    options = parser.parse_args()
    print(json.dumps(reach(options.dtype, options.device).model_dump(mode="json")))
