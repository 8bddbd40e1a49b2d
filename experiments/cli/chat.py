"""`ctxlab chat`: a conversation with a served model that shows what each call reads and reuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.console import OUT, ConsoleProgress
from experiments.cli.options import (
    BlockSizeOption,
    MaxTokensOption,
    ModelOption,
    ServerOption,
    ThinkingOption,
)
from experiments.cli.signals import ending_on_sigterm

if TYPE_CHECKING:
    from experiments.agent.protocols import ModelCaller
    from experiments.agent.tools import Toolbox
    from experiments.cli.chat_session import ChatParts
    from experiments.cli.served import Served
    from serving.assembler import Rendered
    from serving.chat import ShownToken

SYSTEM_WITH_TOOLS = (
    "You answer questions about the files in one folder. Look with the tools before you answer, and be brief."
)
SYSTEM = "You are a helpful assistant. Be brief."


def chat(
    model: ModelOption = None,
    url: ServerOption = None,
    root: Annotated[Path, typer.Option("--root", help="The folder that the tools may read.")] = Path(),
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Offer the model no tools.")] = False,
    system: Annotated[str | None, typer.Option("--system", help="Another system prompt.")] = None,
    show_tokens: Annotated[
        bool, typer.Option("--show-tokens", help="Print every prompt token by token, with ids.")
    ] = False,
    max_tokens: MaxTokensOption = 512,
    thinking: ThinkingOption = None,
    block_size: BlockSizeOption = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Append every exchange to this file, one JSON a line.")
    ] = None,
) -> None:
    """Talk to a model that can read your files, and see after each call what its prompt cost.

    Starts a server (or uses the one at --url), renders every prompt with the model's own template, and prints
    how many tokens the prefix cache served beside how many were predicted. Questions may be piped in, one a
    line. What was started ends with the conversation: Ctrl-C stops an answer, Ctrl-D ends.

    Examples:

      ctxlab chat --root . --show-tokens

      ctxlab chat --url http://127.0.0.1:8000 --model qwen3-0.6b

      echo "Which files are here?" | ctxlab chat --save exchanges.jsonl
    """
    from experiments.agent.settings import SECRETS
    from experiments.agent.tools import GroupName, Workspace, World, build_toolbox
    from experiments.cli.chat_session import ChatSession, keyboard_lines, open_for_saving, piped_lines
    from experiments.cli.served import open_served

    tools = build_toolbox([GroupName.FILES], World(workspace=Workspace(root), redactor=SECRETS))
    interactive = sys.stdin.isatty()
    with ExitStack() as stack:
        stack.enter_context(ending_on_sigterm())
        saving = stack.enter_context(open_for_saving(save)) if save is not None else None
        progress = stack.enter_context(ConsoleProgress())
        served = open_served(url, model, block_size, progress, stack)
        parts = _parts(
            served,
            tools,
            offer=not no_tools,
            system=system,
            max_tokens=max_tokens,
            thinking=thinking,
            note=progress.note,
        )
        session = ChatSession(parts, OUT, always_show_tokens=show_tokens, save=saving)
        progress.note(f"Talking to {served.name}; /help lists the commands.")
        unanswered = session.run(keyboard_lines(OUT) if interactive else piped_lines(OUT))
        progress.begin("end the conversation")
    if unanswered and not interactive:
        raise typer.Exit(1)


def _parts(
    served: Served,
    tools: Toolbox,
    *,
    offer: bool,
    system: str | None,
    max_tokens: int,
    thinking: bool | None,
    note: Callable[[str], None],
) -> ChatParts:
    """Decide what the conversation is made of; `note` hears every choice that the user did not make."""
    from datetime import UTC, datetime

    from experiments.agent.settings import TurnSettings
    from experiments.cli.chat_session import ChatParts
    from serving.assembler import RequestContext
    from serving.call import DecodeOptions

    served.require_room(max_tokens)
    template = served.template
    if offer and template is not None and template.folder.tool_parser is None:
        note(f"No tools are offered: the template of {served.name} has none.")
        offer = False
    settings = TurnSettings(
        context=RequestContext(tenant="local", actor="user", now=datetime.now(UTC)),
        window=served.window,
        decode=DecodeOptions(max_tokens=max_tokens),
        salt="replaced-by-the-session",
        max_empty=0,  # who talks to it sees that nothing came, and says what is next
        surface=served.name,
    )
    new_caller, show = callers(served, thinking)
    return ChatParts(
        new_caller=new_caller,
        tools=tools,
        offered=tools.specs if offer else (),
        settings=settings,
        system=system if system is not None else SYSTEM_WITH_TOOLS if offer else SYSTEM,
        show_tokens=show,
        check=served.check,
    )


def callers(
    served: Served, thinking: bool | None, *, token_in: bool = False
) -> tuple[Callable[[], ModelCaller], Callable[[Rendered], list[ShownToken]]]:
    """How calls are made, measured where the template is known, and how a prompt's tokens are shown."""
    from experiments.agent.tokenin import TokenInCaller
    from experiments.agent.unmeasured import UnmeasuredCaller
    from serving.call import Caller
    from serving.chat import ChatRenderer, ChatTokenizer, probe_template
    from serving.chat.tokenizer import load_template
    from serving.errors import UsageError

    template = served.template
    has_switch = False
    if template is not None:
        config = ChatTokenizer(template.folder.path).config
        has_switch = probe_template(
            load_template(template.folder.path, config, with_tools=True)
        ).thinking_switch
    if thinking is not None and not has_switch:
        raise UsageError(
            f"--thinking and --no-thinking need a template that reads enable_thinking, and that of "
            f"{served.name} {'does not' if template is not None else 'is not known here'}: leave the option out."
        )
    if template is None:
        if token_in:
            raise UsageError(
                f"--token-in needs the files of {served.name}, which are not here: give --model."
            )
        return (lambda: UnmeasuredCaller(served.client, served.name)), (lambda _rendered: [])
    kwargs = {} if thinking is None else {"enable_thinking": thinking}

    def new_caller() -> ModelCaller:
        made = TokenInCaller if token_in else Caller
        return made(
            served.client,
            template.folder,
            block_size=template.block_size,
            template_kwargs=kwargs,
            strict=False,  # a conversation shows a difference and goes on
        )

    return new_caller, ChatRenderer(template.folder.path).show
