"""Which model to use when nobody said."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from pydantic import BaseModel, ConfigDict

from serving.models.cache import cache_root
from serving.models.hub import hub_answers, hub_offline
from serving.models.pull import on_disk

DEFAULT_MODEL = "qwen3-0.6b"
DEFAULT_REPOSITORY = "Qwen/Qwen3-0.6B"
EMBEDDED_MODEL = "qwen2.5-coder-0.5b"


class ModelChoice(BaseModel):
    """A model's name or path, and why it is this one, in one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    reason: str


def choose(
    explicit: str | None,
    environ: Mapping[str, str] | None = None,
    *,
    answers: Callable[[str, Mapping[str, str]], bool] = hub_answers,
) -> ModelChoice:
    """`explicit` (--model), else `CTXLAB_MODEL`, else Qwen3-0.6B if it can be had, else the embedded model.

    `answers(repository, environ)` says whether the hub serves a repository; it is not asked when Qwen3-0.6B
    is on this disk already.
    """
    environ = os.environ if environ is None else environ
    if explicit:
        return ModelChoice(name=explicit, reason=f"{explicit} was asked for with --model.")
    if named := environ.get("CTXLAB_MODEL"):
        return ModelChoice(name=named, reason=f"{named} is named by CTXLAB_MODEL.")
    if on_disk(DEFAULT_MODEL, cache=cache_root(environ)) is not None:
        return ModelChoice(
            name=DEFAULT_MODEL, reason=f"{DEFAULT_REPOSITORY} is the default and on this disk."
        )
    if answers(DEFAULT_REPOSITORY, environ):
        return ModelChoice(
            name=DEFAULT_MODEL, reason=f"{DEFAULT_REPOSITORY} is the default and the hub answers."
        )
    why = "HF_HUB_OFFLINE is set" if hub_offline(environ) else "the Hugging Face hub does not answer"
    return ModelChoice(
        name=EMBEDDED_MODEL,
        reason=f"{why}, so the embedded {EMBEDDED_MODEL} stands in for {DEFAULT_REPOSITORY}.",
    )
