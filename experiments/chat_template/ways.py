"""How an arm sends a conversation: read off its factors, and put between a loop and the one measured path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from experiments.agent.tokenin import ExtendingRenderer, TokenInStart
from experiments.chat_template.arms import FAULT, REBUILD, REMINDER, SURFACE, TEMPLATE, THINKING
from experiments.faults import FaultContext, build_faults
from experiments.faults.late_system_message import REMINDER as REMINDER_TEXT
from experiments.framework.measured import rebuilt
from experiments.framework.served_model import ServedModel
from serving.assembler import AssemblyRequest, ContextItem, ContextPolicy, Fault, HandOff, Instruction
from serving.call import Caller, DecodeOptions, StartedCall
from serving.chat import ChatRenderer
from serving.client import Surface
from serving.errors import LabError

NOW: Final = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)
"""When everything is sent; no arm here shows a time."""


@dataclass(frozen=True)
class Way:
    """One way to send a conversation."""

    faults: tuple[str, ...]
    rebuild: bool
    reminder: bool
    """Whether the late system message's sentence stands at the head."""
    thinking: bool | None
    """None: the model has no such switch, and nothing is said of it."""
    surface: Surface
    template: str | None
    """Name of another family's template; None: the model's own."""

    @classmethod
    def of(cls, factors: Mapping[str, JsonValue]) -> Way:
        """Read an arm's factors; `LabError` where a study gave them another form."""
        faults, thinking, template = factors[FAULT], factors[THINKING], factors[TEMPLATE]
        if not isinstance(faults, list) or not isinstance(thinking, bool | None):
            raise LabError(f"Expected a list in {FAULT} and true, false or null in {THINKING}: {factors}.")
        return cls(
            faults=tuple(str(name) for name in faults),
            rebuild=factors[REBUILD] is True,
            reminder=factors[REMINDER] is True,
            thinking=thinking,
            surface=Surface(str(factors[SURFACE])),
            template=None if template is None else str(template),
        )

    @property
    def keeps_ids(self) -> bool:
        """Whether a prompt takes over the ids of the one before; another family's is rendered whole."""
        return self.surface is Surface.TOKEN_IN and self.template is None

    @property
    def template_kwargs(self) -> dict[str, JsonValue]:
        """What the template is told."""
        if self.template is not None:
            return {
                "bos_token": "<s>"
            }  # many templates cannot be rendered without, and Qwen's tokenizer has none
        return {"enable_thinking": False} if self.thinking is False else {}

    def changed(self, request: AssemblyRequest) -> AssemblyRequest:
        """The request as this way builds it; what stands in the messages is the faults' business."""
        if self.rebuild:
            request = rebuilt(request)
        if self.reminder:
            candidates = tuple(_reminded(item) for item in request.candidates)
            request = request.model_copy(update={"candidates": candidates})
        return request

    def sabotage(self, call: int, seed: int) -> tuple[Fault, ...]:
        """The faults of one call."""
        return build_faults(self.faults, FaultContext(call, NOW, seed))


def _reminded(item: ContextItem) -> ContextItem:
    if not isinstance(item.payload, Instruction):
        return item
    payload = item.payload.model_copy(update={"text": f"{item.payload.text} {REMINDER_TEXT}"})
    return item.model_copy(update={"payload": payload})


@dataclass
class WayCaller:
    """A `ModelCaller` that sends what the loop asks for in the arm's way."""

    caller: Caller
    way: Way
    seed: int
    extending: ExtendingRenderer | None
    """What keeps the ids, where the way does."""
    _started: int = field(default=0, init=False)

    @classmethod
    def of(
        cls,
        way: Way,
        target: ServedModel,
        *,
        seed: int,
        predictable: bool = True,
        source: str | None = None,
    ) -> WayCaller:
        """`source`: of the other family's template, where the way names one; `predictable` as `Caller`'s."""
        extending = None
        if way.keeps_ids:
            own = ChatRenderer(
                target.folder.path, template_kwargs=way.template_kwargs, tokenizer=target.tokenizer
            )
            extending = ExtendingRenderer(own)
        caller = Caller(
            target.client,
            target.folder,
            block_size=target.block_size,
            template_kwargs=way.template_kwargs,
            surface=way.surface,
            predictable=predictable,
            tokenizer=target.tokenizer,
            prompts=extending,
            template=source,
        )
        return cls(caller, way, seed, extending)

    def start(
        self,
        request: AssemblyRequest,
        policy: ContextPolicy,
        decode: DecodeOptions,
        *,
        salt: str,
        faults: Sequence[Fault] = (),
    ) -> StartedCall | TokenInStart | HandOff:
        """As the caller's; raises `TemplateRefusesError` where the template does."""
        number, self._started = self._started, self._started + 1
        started = self.caller.start(
            self.way.changed(request),
            policy,
            decode,
            salt=salt,
            faults=(*faults, *self.way.sabotage(number, self.seed)),
        )
        if isinstance(started, HandOff) or self.extending is None:
            return started
        return TokenInStart(started, self.extending)
