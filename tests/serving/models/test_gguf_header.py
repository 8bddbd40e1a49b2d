from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.errors import LabError
from serving.models.gguf_header import read_gguf_header


def test_header_agrees_with_the_gguf_packages_own_reader(tiny_gguf: Path) -> None:
    import gguf

    ours, reference = read_gguf_header(tiny_gguf), gguf.GGUFReader(tiny_gguf)
    fields = {name: f.contents() for name, f in reference.fields.items() if not name.startswith("GGUF.")}
    assert {k: list(v) if isinstance(v, tuple) else v for k, v in ours.metadata.items()} == fields
    described = [
        (t.name, tuple(int(n) for n in t.shape[::-1]), int(t.tensor_type), int(t.data_offset))
        for t in reference.tensors
    ]
    assert [(t.name, t.shape, t.quantization, t.offset) for t in ours.tensors] == described


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.999))
def test_a_header_cut_anywhere_is_a_clear_error(tiny_gguf: Path, tmp_path: Path, share: float) -> None:
    content = tiny_gguf.read_bytes()
    header_bytes = min(tensor.offset for tensor in read_gguf_header(tiny_gguf).tensors) - 32
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(content[: int(header_bytes * share)])
    with pytest.raises(LabError, match="GGUF of version 2 or 3"):
        read_gguf_header(cut)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(8, 4000), value=st.binary(min_size=1, max_size=8))
def test_a_damaged_header_is_read_or_refused_but_never_hangs(
    tiny_gguf: Path, tmp_path: Path, at: int, value: bytes
) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    content[at : at + len(value)] = value
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    try:
        read_gguf_header(damaged)
    except LabError as error:
        assert str(damaged) in str(error)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(LabError, match="not 'GGUF'"):
        read_gguf_header(other)
