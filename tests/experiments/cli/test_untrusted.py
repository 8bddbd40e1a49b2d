from __future__ import annotations

import io

from rich.console import Console

from experiments.cli.untrusted import plain, untrusted


def shown(content: object) -> str:
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, color_system="standard", soft_wrap=True, highlight=False, emoji=False
    )
    console.print(content, end="")
    return out.getvalue()


def test_markup_in_untrusted_text_means_nothing() -> None:
    assert shown(untrusted("[red]x[/red] [/nope] :smile:")) == "[red]x[/red] [/nope] :smile:"
    assert shown(f"[bold]{plain('[red]x[/red] [/nope] :smile:')}[/]") == (
        "\x1b[1m[red]x[/red] [/nope] :smile:\x1b[0m"
    )


def test_controls_mean_nothing_and_only_a_stream_may_begin_a_line() -> None:
    assert shown(untrusted("a\x1b[2J\nb")) == "a\\u001b[2J\nb"
    assert shown(plain("a\x1b[2J\nb")) == "a\\u001b[2J\\u000ab"
