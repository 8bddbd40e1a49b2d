"""Every study by name, and what runs its trials: a served engine, or a model in this process."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from serving.errors import UsageError

if TYPE_CHECKING:
    from experiments.framework import Study
    from experiments.framework.study import Serve
    from serving.progress import Progress


class Known(NamedTuple):
    """A study that is imported only when it is asked for."""

    place: str
    """`module:class`; called with the model's name, and the block size where an engine serves it."""
    served: bool
    """By vLLM; else the model runs in this process, since a server hands out no attention."""


STUDIES: Final[Mapping[str, Known]] = MappingProxyType(
    {
        "prefix-cache": Known("experiments.prefix_cache:PrefixCacheStudy", served=True),
        "prefix-cache-live": Known("experiments.prefix_cache:PrefixCacheLiveStudy", served=True),
        "tool-calling": Known("experiments.tool_calling:ToolCallingStudy", served=True),
        "tool-calling-cost": Known("experiments.tool_calling:ToolCallingCostStudy", served=True),
        "chat-template": Known("experiments.chat_template:ChatTemplateStudy", served=True),
        "chat-template-reading": Known("experiments.chat_template:ChatTemplateReadingStudy", served=True),
        "chat-template-cost": Known("experiments.chat_template:ChatTemplateCostStudy", served=True),
        "chat-template-replay": Known("experiments.chat_template:ChatTemplateReplayStudy", served=True),
        "latency": Known("experiments.latency.study:LatencyStudy", served=True),
        "attention": Known("experiments.attention.study:AttentionStudy", served=False),
        "status-bar": Known("experiments.status_bar:StatusBarStudy", served=True),
        "status-bar-thinking": Known("experiments.status_bar:StatusBarThinkingStudy", served=True),
        "status-bar-cost": Known("experiments.status_bar:StatusBarCostStudy", served=True),
        "status-bar-techniques": Known("experiments.status_bar:StatusBarTechniquesStudy", served=True),
        "status-bar-attention": Known(
            "experiments.status_bar_attention:StatusBarAttentionStudy", served=False
        ),
        "status-bar-decided": Known("experiments.status_bar_attention:StatusBarDecidedStudy", served=False),
    }
)


def find_study(name: str, *, model: str, block_size: int) -> Study[object]:
    """The study of this name for a model; `UsageError` lists those there are.

    Its target is what `serve_study` gives for the same name, and nothing else.
    """
    known = _known(name)
    module, _, built = known.place.partition(":")
    study = getattr(import_module(module), built)
    made = study(model, block_size=block_size) if known.served else study(model)
    return cast("Study[object]", made)


def serve_study(name: str, progress: Progress) -> Serve[object]:
    """What starts the target of this study."""
    if _known(name).served:
        from experiments.framework.served_model import serve_model

        return cast("Serve[object]", serve_model(progress))
    from experiments.framework.local_model import load_model

    return cast("Serve[object]", load_model(progress))


def _known(name: str) -> Known:
    if name not in STUDIES:
        raise UsageError(f"There is no study {name!r}; there are: {', '.join(STUDIES)}.")
    return STUDIES[name]
