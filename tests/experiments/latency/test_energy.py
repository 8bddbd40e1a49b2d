"""Counters of energy, played by files and by a module: no machine here has any."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from experiments.latency import cells
from experiments.latency.analysis import analyse
from experiments.latency.energy import Counter, Meter, card_counters, counters_of, package_counters
from experiments.latency.workload import Shape
from tests.support.made_load import record_of


def zone(powercap: Path, name: str, microjoules: int, wraps_at: int = 1_000_000_000) -> Path:
    folder = powercap / name
    folder.mkdir()
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{wraps_at}\n")
    return folder


def test_the_packages_are_added_and_their_parts_are_not(tmp_path: Path) -> None:
    first, second = zone(tmp_path, "intel-rapl:0", 5_000_000), zone(tmp_path, "intel-rapl:1", 7_000_000)
    part = zone(tmp_path, "intel-rapl:0:0", 1)
    meter = Meter(package_counters(tmp_path))
    (first / "energy_uj").write_text("8000000\n")
    (second / "energy_uj").write_text("7500000\n")
    (part / "energy_uj").write_text("900000000\n")
    assert meter.joules() == pytest.approx(3.5)


def test_a_counter_that_began_again_goes_on(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", 999_000_000)
    meter = Meter(package_counters(tmp_path))
    (folder / "energy_uj").write_text("2000000\n")
    assert meter.joules() == pytest.approx(3)


def test_no_counter_and_one_that_is_gone_are_unknown_energy(tmp_path: Path) -> None:
    assert Meter(package_counters(tmp_path)).joules() is None
    folder = zone(tmp_path, "intel-rapl:0", 1)
    meter = Meter(package_counters(tmp_path))
    (folder / "energy_uj").unlink()
    assert meter.joules() is None
    (folder / "max_energy_range_uj").unlink()
    assert package_counters(tmp_path) == ()


def test_one_counter_that_may_not_be_read_makes_the_sum_unknown() -> None:
    def refused() -> float:
        raise PermissionError

    assert Meter((Counter(lambda: 1.0), Counter(refused))).joules() is None


class FakeError(Exception):
    pass


def nvml(millijoules: dict[str, int]) -> ModuleType:
    module = ModuleType("pynvml")
    module.NVMLError = FakeError  # type: ignore[attr-defined]
    module.nvmlInit = lambda: None  # type: ignore[attr-defined]
    module.nvmlDeviceGetCount = lambda: len(millijoules)  # type: ignore[attr-defined]
    module.nvmlDeviceGetHandleByIndex = lambda index: list(millijoules)[index]  # type: ignore[attr-defined]
    module.nvmlDeviceGetHandleByUUID = lambda name: name  # type: ignore[attr-defined]

    def energy(name: str) -> int:
        if name not in millijoules:
            raise FakeError("not supported")
        return millijoules[name]

    module.nvmlDeviceGetTotalEnergyConsumption = energy  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(("visible", "spent"), [(None, 0.3), ("1", 0.2), ("GPU-a, GPU-b", 0.3)])
def test_the_cards_that_may_be_used_are_added(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, spent: float
) -> None:
    millijoules = {"GPU-a": 1000, "GPU-b": 5000}
    monkeypatch.setitem(sys.modules, "vllm.third_party.pynvml", nvml(millijoules))
    meter = Meter(card_counters({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}))
    millijoules |= {"GPU-a": 1100, "GPU-b": 5200}
    assert meter.joules() == pytest.approx(spent)


def test_a_card_without_a_counter_is_unknown_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.third_party.pynvml", nvml({"GPU-a": 1}))
    assert Meter(card_counters({"CUDA_VISIBLE_DEVICES": "GPU-old"})).joules() is None
    monkeypatch.setitem(sys.modules, "vllm.third_party.pynvml", None)
    assert card_counters({}) == ()


def test_an_engine_elsewhere_has_no_counter_here() -> None:
    assert counters_of(None) == ()


def test_the_table_has_joules_only_where_a_machine_counts_them() -> None:
    loads = (cells.closed(1, Shape(prompt_tokens=70, output_tokens=4)),)
    times = {"ttft_p50_s": 0.1}
    unknown = [record_of(loads[0].name, seed, {**times}) for seed in range(5)]
    assert "J/output token" not in analyse(loads, unknown).tables[0].columns
    known = [
        record_of(loads[0].name, seed, {**times, "joules_per_output_token": 2.0 + seed}) for seed in range(5)
    ]
    table = analyse(loads, known).tables[0]
    assert str(table.rows[0][table.columns.index("J/output token")]).startswith("4")
    assert "idling included" in table.note
