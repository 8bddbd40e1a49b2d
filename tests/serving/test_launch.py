from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from serving.errors import UsageError
from serving.launch import LaunchOptions, free_port, plan_launch


@pytest.mark.parametrize("host", ["nosuch.invalid", "a..b", "256.0.0.1"])
def test_a_host_that_is_not_this_machine_has_no_free_port(host: str) -> None:
    with pytest.raises(UsageError, match="Expected a host of this machine"):
        free_port(host)


def test_exposure_is_judged_before_anything_is_looked_up_or_fetched(tmp_path: Path) -> None:
    options = LaunchOptions(model="no-such-model", host="nosuch.invalid", port=0)
    environ = {"CTXLAB_CACHE": str(tmp_path)}
    with pytest.raises(UsageError, match="no API key was given"):
        plan_launch(options, environ=environ)
    with pytest.raises(UsageError, match="no-such-model"):
        plan_launch(options.model_copy(update={"api_key": SecretStr("k")}), environ=environ)
