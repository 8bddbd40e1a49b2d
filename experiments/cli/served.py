"""A served model for a conversation: started here or attached to, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from pydantic import SecretStr

from experiments.cli.console import ConsoleProgress
from experiments.cli.model_files import files_here
from experiments.cli.options import api_key
from experiments.cli.serve import describe_plan, launch_options
from serving.chat import ChatRenderer
from serving.client import Client
from serving.engine import attach
from serving.errors import UsageError
from serving.launch import launch, plan_launch
from serving.models import ModelFolder, ensure
from serving.probe import read_server_facts
from serving.text import require_unicode_text

FALLBACK_WINDOW = 4096
"""Assumed where neither the server nor the model's files tell the longest context."""


@dataclass(frozen=True)
class Template:
    """The model's files and the server's block size: what rendering and predicting take."""

    folder: ModelFolder
    """Under the name that the server knows."""
    block_size: int


@dataclass(frozen=True)
class Served:
    """A server that answers, and what of it is known here."""

    client: Client
    name: str
    """Of the model, as the server knows it."""
    window: int
    template: Template | None
    """None: prediction is off, for the reason in `notes`."""
    check: Callable[[], None]
    """Raises `LabError` when the server is gone."""
    notes: tuple[str, ...] = ()

    def require_room(self, max_tokens: int) -> None:
        """Raise `UsageError` where an answer of so many tokens leaves none of the window to a prompt."""
        if max_tokens >= self.window:
            raise UsageError(
                f"--max-tokens must leave room for a prompt: {self.name} serves {self.window:,} tokens in all, "
                f"and {max_tokens:,} were asked for."
            )


def open_served(
    url: str | None, model: str | None, block_size: int | None, progress: ConsoleProgress, stack: ExitStack
) -> Served:
    """The server at `url`, or without one a server that `stack` ends; says what is unknown of it.

    `model` is what a new server serves; of one at `url` it names the files whose template renders, by default
    those of the served name. Raises `LabError` where no server answers or starts, and `UsageError` for a model that
    is none.
    """
    served = (
        _start(model, block_size, progress, stack) if url is None else _attach(url, model, block_size, stack)
    )
    progress.end()
    for sentence in served.notes:
        progress.note(sentence)
    return served


def _start(model: str | None, block_size: int | None, progress: ConsoleProgress, stack: ExitStack) -> Served:
    plan = plan_launch(launch_options(model=model, block_size=block_size), progress=progress)
    describe_plan(plan, progress)
    engine = stack.enter_context(launch(plan, progress=progress))
    client = stack.enter_context(Client(engine.base_url, api_key()))
    facts = read_server_facts(engine.base_url, plan.folder.name, api_key())
    window = facts.max_model_len or plan.folder.max_position_embeddings
    template, notes = _template(plan.folder, plan.folder.name, block_size or facts.block_size)
    return Served(client, plan.folder.name, window, template, engine.check, notes)


def _attach(url: str, model: str | None, block_size: int | None, stack: ExitStack) -> Served:
    key = api_key()
    engine = attach(url, api_key=SecretStr(key) if key else None)
    folder = ensure(model) if model is not None else None
    wanted = [name for name in (model, folder.name if folder else None) if name in engine.model_names]
    if not engine.model_names:
        raise UsageError(f"Expected a served model at {url}, and it lists none: load one there.")
    name = require_unicode_text(
        wanted[0] if wanted else engine.model_names[0], f"the model's name that {url} lists"
    )
    folder = folder or files_here(name)
    client = stack.enter_context(Client(engine.base_url, key))
    facts = read_server_facts(engine.base_url, name, key)
    notes: tuple[str, ...] = ()
    if folder is None:
        template, notes = (
            None,
            (f"Prediction is off: the files of {name} are not on this disk; give --model.",),
        )
    else:
        template, notes = _template(folder, name, block_size or facts.block_size)
    window = facts.max_model_len or (folder.max_position_embeddings if folder else None)
    if window is None:
        notes = (*notes, f"The longest context is unknown; {FALLBACK_WINDOW:,} tokens are assumed.")
    return Served(client, name, window or FALLBACK_WINDOW, template, engine.check, notes)


def _template(
    folder: ModelFolder, name: str, block_size: int | None
) -> tuple[Template | None, tuple[str, ...]]:
    if block_size is None:
        return None, ("Prediction is off: the server does not tell its block size; give --block-size.",)
    try:
        ChatRenderer(folder.path)
    except UsageError as error:
        return None, (f"Prediction is off: {error}",)
    return Template(folder.model_copy(update={"name": name}), block_size), ()
