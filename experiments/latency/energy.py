"""Energy by the machine's own counters: of its processor packages (RAPL, through powercap), or of its GPUs (NVML).

A counter belongs to a whole package or card, so it counts what idles and what other programs do as well. Where
there is none, or it may not be read (powercap is root's on most machines), energy is unknown.
Sources: the Linux kernel's "Power Capping Framework"; NVML's nvmlDeviceGetTotalEnergyConsumption.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

AnswerT = TypeVar("AnswerT")

POWERCAP: Final = Path("/sys/class/powercap")
PACKAGES: Final = "intel-rapl:*"
"""AMD's as well: the driver kept its first name."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter that only grows, until it begins again at 0."""

    read: Callable[[], float]
    """Joules since some time in the past; raises OSError where they cannot be read."""
    wraps_at: float = 0.0
    """Joules; 0: never."""


class Meter:
    """The energy from its making on, over several counters."""

    def __init__(self, counters: tuple[Counter, ...]) -> None:
        self._counters = counters
        self._before = self._read()

    def joules(self) -> float | None:
        """So far, if no counter began again more than once; None where it is unknown."""
        before, now = self._before, self._read()
        if before is None or now is None:
            return None
        pairs = zip(self._counters, before, now, strict=True)
        return sum(end - begin + (one.wraps_at if end < begin else 0.0) for one, begin, end in pairs)

    def _read(self) -> list[float] | None:
        with suppress(OSError):
            return [counter.read() for counter in self._counters] or None
        return None


def counters_of(device: str | None) -> tuple[Counter, ...]:
    """Of this machine's `device`, cpu or cuda; none for an engine elsewhere."""
    if device == "cpu":
        return package_counters(POWERCAP)
    return card_counters(os.environ) if device == "cuda" else ()


def package_counters(powercap: Path) -> tuple[Counter, ...]:
    """One for every processor package; none where a counter may not be read."""
    # `intel-rapl:0:1` is a part of package 0, and counted in it.
    zones = [zone for zone in sorted(powercap.glob(PACKAGES)) if zone.name.count(":") == 1]
    with suppress(OSError):
        return tuple(
            Counter(partial(_microjoules, zone / "energy_uj"), _microjoules(zone / "max_energy_range_uj"))
            for zone in zones
        )
    return ()


def card_counters(environment: Mapping[str, str]) -> tuple[Counter, ...]:
    """One for every GPU that a program started here may use; none without NVML, or for cards older than Volta."""
    with suppress(ImportError, OSError):
        nvml = import_module("vllm.third_party.pynvml")  # the binding that vLLM brings
        cards = _called(nvml, lambda: _cards(nvml, environment.get("CUDA_VISIBLE_DEVICES")))
        return tuple(Counter(partial(_called, nvml, partial(_millijoules, nvml, card))) for card in cards)
    return ()


def _cards(nvml: ModuleType, visible: str | None) -> list[object]:
    nvml.nvmlInit()
    if visible is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return [
        nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)
        for name in visible.replace(" ", "").split(",")
        if name
    ]


def _called(nvml: ModuleType, ask: Callable[[], AnswerT]) -> AnswerT:
    try:
        return ask()
    except nvml.NVMLError as error:
        raise OSError(str(error)) from error


def _millijoules(nvml: ModuleType, card: object) -> float:
    return float(nvml.nvmlDeviceGetTotalEnergyConsumption(card)) / 1e3


def _microjoules(file: Path) -> float:
    return int(file.read_text(encoding="ascii")) / 1e6
