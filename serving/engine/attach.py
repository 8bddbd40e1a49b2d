"""A server that somebody else runs, seen as an engine."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx
from pydantic import SecretStr

from serving.errors import LabError
from serving.text import server_root


class AttachedEngine:
    """The counterpart of `RunningEngine` without a process: stopping it ends nothing."""

    pid: None = None
    log_path: None = None

    def __init__(self, base_url: str, model_names: tuple[str, ...], api_key: SecretStr | None) -> None:
        self.base_url = base_url
        self.model_names = model_names
        """What the server lists under `/v1/models`."""
        self._api_key = api_key

    def check(self) -> None:
        """Raise LabError when the server no longer answers."""
        _list_models(self.base_url, self._api_key, 10.0)

    def stop(self) -> None:
        """Leave the server as it is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


def attach(url: str, *, api_key: SecretStr | None = None, timeout_s: float = 10.0) -> AttachedEngine:
    """Use the server at `url` (with or without `/v1`); LabError when it lists no models as OpenAI does."""
    base_url = server_root(url)
    return AttachedEngine(base_url, _list_models(base_url, api_key, timeout_s), api_key)


def _list_models(base_url: str, api_key: SecretStr | None, timeout_s: float) -> tuple[str, ...]:
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key.get_secret_value()}"}
    try:
        answer = httpx.get(f"{base_url}/v1/models", headers=headers, timeout=timeout_s)
        answer.raise_for_status()
        data = answer.json()["data"]
        return tuple(str(entry["id"]) for entry in data)
    except httpx.HTTPStatusError as error:
        hint = "give its API key" if error.response.status_code in {401, 403} else "check the address"
        raise LabError(
            f"A list of models was expected from {base_url}/v1/models and HTTP "
            f"{error.response.status_code} came: {hint}."
        ) from error
    except httpx.HTTPError as error:
        raise LabError(
            f"No server answers at {base_url} ({error}): start it, or check the address."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"{base_url}/v1/models does not list models as OpenAI's API does: this is another kind of server."
        ) from error
