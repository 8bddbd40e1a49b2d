"""Against a real engine: every request reuses what was predicted, the ones that leave an answer included."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.chat_template import ChatTemplateCostStudy, ChatTemplateReplayStudy
from experiments.chat_template.names import IDS_KEPT, TEXT, TOOL_ROLE
from experiments.framework import publish
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.records import read_records, read_violations
from experiments.framework.trials import TrialRecord
from experiments.tool_calling.names import REFUSED
from tests.conftest import LiveServer
from tests.support.study_run import MODEL, run_against

pytestmark = pytest.mark.live


def replayed(live_server: LiveServer, folder: Path, arms: tuple[str, ...]) -> dict[str, TrialRecord]:
    study = ChatTemplateReplayStudy(MODEL, block_size=live_server.block_size)
    done = run_against(
        live_server.base_url,
        study,
        folder,
        block_size=live_server.block_size,
        num_blocks=live_server.num_blocks,
        arms=arms,
    )
    assert done.complete == done.planned == len(arms or study.arms)
    assert read_violations(folder) == ()
    return {record.arm: record for record in read_records(folder)}


def test_every_request_of_a_replay_reuses_what_was_predicted(live_server: LiveServer, tmp_path: Path) -> None:
    records = replayed(live_server, tmp_path / "run", (TOOL_ROLE, NULL_REBUILD, IDS_KEPT))
    for record in records.values():
        assert len(record.calls) == len(record.exchanges) == 11
        assert all(call.cached_tokens == call.predicted_tokens for call in record.calls)
        assert record.calls[0].cached_tokens == 0
    assert records[TOOL_ROLE].measures["kept_all"] == 3
    assert records[IDS_KEPT].measures["lost_tokens"] == 0
    page = publish(ChatTemplateReplayStudy(MODEL), tmp_path / "run").read_text(encoding="utf-8")
    assert "agree in 33 of 33 requests" in page


@pytest.mark.full
def test_every_arm_of_a_replay_is_exact_or_refused_by_its_template(
    live_server: LiveServer, tmp_path: Path
) -> None:
    for record in replayed(live_server, tmp_path / "run", ()).values():
        assert all(call.cached_tokens == call.predicted_tokens for call in record.calls)
        assert record.measures["model_calls"] == 6 or REFUSED in record.measures


@pytest.mark.full
def test_real_turns_are_predicted_in_every_call(live_server: LiveServer, tmp_path: Path) -> None:
    study = ChatTemplateCostStudy(MODEL, block_size=live_server.block_size)
    study.base = {**study.base, "decode.max_tokens": 24}
    run_against(
        live_server.base_url,
        study,
        tmp_path / "run",
        block_size=live_server.block_size,
        arms=(TOOL_ROLE, NULL_REBUILD, TEXT, IDS_KEPT),
    )
    for record in read_records(tmp_path / "run"):
        assert all(call.cached_tokens == call.predicted_tokens for call in record.calls)
