"""What is committed under `results/` still says what the README says it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.framework.manifests import read_manifests
from experiments.framework.records import read_records, read_run, read_violations
from experiments.prefix_cache import PrefixCacheStudy

ROOT = Path(__file__).parents[2]
RUNS = sorted(path.parent for path in (ROOT / "results" / "prefix-cache").glob("*/run.json"))


def test_there_are_committed_runs() -> None:
    assert len(RUNS) >= 2


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_every_call_of_a_committed_run_was_predicted_exactly(folder: Path) -> None:
    assert read_violations(folder) == ()
    records = list(read_records(folder))
    manifests = {manifest.manifest_id for manifest in read_manifests(folder)}
    assert len([record for record in records if record.scored]) == read_run(folder).identity.trials
    for record in records:
        for call, exchange in zip(record.calls, record.exchanges, strict=True):
            assert call.cached_tokens == call.predicted_tokens
            assert exchange.prompt_token_ids is not None
            assert len(exchange.prompt_token_ids) == call.prompt_tokens
            assert exchange.manifest_id in manifests


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_the_readme_quotes_the_conclusion_that_the_records_give(folder: Path) -> None:
    model = str(read_run(folder).identity.base["engine.model"])
    records = [record for record in read_records(folder, with_exchanges=False) if record.scored]
    said = PrefixCacheStudy(model).analyse(records).conclusion
    readme = re.sub(r"[\s>]+", " ", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert said in readme
    assert folder.relative_to(ROOT).as_posix() in readme


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_committed_run_names_its_code_model_engine_and_no_place_on_a_disk(folder: Path) -> None:
    info = read_run(folder)
    assert info.sessions[0].code.revision
    assert info.sessions[0].code.dirty is False
    for environment in info.environments.values():
        assert "vllm" in str(environment)
    for file in ("run.json", "report.html"):
        text = (folder / file).read_text(encoding="utf-8")
        assert not re.search(r"/(root|home|tmp|work)/", text)


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_committed_study_is_small(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.parent.rglob("*") if file.is_file()) < 10_000_000
