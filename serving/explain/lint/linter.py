"""The log linter: every request of a log in order, predicted, explained, and checked against its report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from serving.assembler import Rendered
from serving.chat import probe_template
from serving.chat.tokenizer import load_template
from serving.errors import LabError, UsageError
from serving.explain.causes import MissCause
from serving.explain.lint.conversations import Conversations
from serving.explain.lint.earlier import EarlierRequests, Renderers, entry_turn
from serving.explain.lint.entry import LogEntry, parse_entry
from serving.explain.lint.reader import LogReader, RawLine
from serving.explain.lint.replies import ReplyIds, generated_ids, reply_tokens
from serving.explain.lint.usage import Expected, UsageFlag, check_usage
from serving.explain.miss import Miss, explain_miss
from serving.explain.turn import Turn, common_messages, reasoning_of
from serving.prefix import Prediction, Predictor, Relation
from serving.prefix.prediction import hit_tokens


@dataclass(frozen=True, slots=True)
class LintOptions:
    """What a log does not tell."""

    block_size: int = 16
    """Tokens per block, as the server reports it."""
    num_blocks: int | None = None
    """Blocks of the KV cache, the reserved one included; None: endless."""
    served_name: str | None = None
    """Which `model` of the log is meant; None: that of its first request."""
    server_usage: bool = False
    """Whether the reported usage is held against the prediction."""


@dataclass(frozen=True, slots=True)
class LintedRequest:
    """One request of the log with its verdict."""

    line: int
    model: str | None
    miss: Miss
    possible_tokens: int
    """Cached tokens at most: more than predicted where an earlier reply's ids are not in the log."""
    against: int | None
    """The line of the request that it was held against."""
    repeats: int | None
    """The line of an earlier request whose stored ids hold this whole prompt."""
    reply_ids: ReplyIds
    reported_cached: int | None
    flags: tuple[UsageFlag, ...]
    silent_reasoning: int | None
    """The first message whose reasoning the template leaves out of every prompt."""


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that is no request of this model, and why."""

    line: int
    reason: str
    other_model: str | None = None
    """Set where the request is sound and names another model."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the linter holds on to."""

    token_ids: int
    """Distinct ids to compare with, 4 bytes each; beyond the first few millions in a file without a name."""
    requests: int


class Linter:
    """Reads a log once, front to back; earlier lines are read again only to be quoted.

    Requests are taken to run one after another on a server that starts cold. Once the renderer's latest
    conversations have filled, memory grows by about a KB a request; the distinct token ids, 4 bytes each, go to a
    temporary file (`serving.prefix.history`).
    """

    def __init__(self, reader: LogReader, folder: Path, options: LintOptions) -> None:
        """Args: `folder` the model's, for its template and tokenizer. Raises: UsageError for a bad option."""
        self.bytes_read = 0
        """How far into the log the last verdict lies."""
        self._reader = reader
        self._options = options
        self._served_name = options.served_name
        self._predictor = Predictor(options.block_size, options.num_blocks)
        self._conversations = Conversations()
        self._renderers = Renderers(folder)
        self._earlier = EarlierRequests(reader, self._renderers)
        self._template = load_template(folder, self._renderers.given({}).tokenizer.config, with_tools=False)

    @property
    def reads_clock(self) -> bool:
        """Whether the model's template prints the date of the day on which it is rendered."""
        return "strftime_now" in self._template

    @cached_property
    def _prints_reasoning(self) -> bool:
        return bool(probe_template(self._template).reasoning_fields)

    @property
    def served_name(self) -> str | None:
        """The `model` whose requests are linted; None before the first, or where the log names none."""
        return self._served_name

    def requests(self) -> Iterator[LintedRequest | SkippedLine]:
        """Every line's verdict, as soon as it is known."""
        for raw in self._reader:
            self.bytes_read = raw.offset + len(raw.data)
            try:
                yield self._line(raw)
            except LabError as error:
                yield SkippedLine(raw.number, str(error))

    def kept(self) -> Kept:
        """What is held in memory now."""
        return Kept(self._predictor.held_ids(), len(self._earlier))

    def _line(self, raw: RawLine) -> LintedRequest | SkippedLine:
        if not raw.whole:
            raise UsageError(f"Expected lines of less than {len(raw.data):,} bytes; this one is longer.")
        entry = parse_entry(raw.data, raw.number)
        if self._served_name is None:
            self._served_name = entry.model
        if entry.model is not None and entry.model != self._served_name:
            reason = f"It is a request to {entry.model!r}, not to {self._served_name!r}."
            return SkippedLine(raw.number, reason, entry.model)
        return self._request(entry, raw.offset)

    def _request(self, entry: LogEntry, offset: int) -> LintedRequest:
        renderer = self._renderers.given(entry.template_kwargs)
        rendered = renderer.render_body(entry.messages, entry.tools)
        generated = generated_ids(entry, renderer, rendered)
        prompt = rendered.token_ids if entry.prompt_ids is None else entry.prompt_ids
        prediction = self._predictor.predict_next(prompt, entry.cache_salt)
        sent = entry_turn(entry, renderer, rendered, generated)
        try:
            reference = self._reference(sent, prediction)
            stored = None if reference is None else self._earlier.turn(reference)
            miss = explain_miss(prediction, sent, stored, reads_cache=entry.reads_cache)
            possible = max(miss.cached_tokens, self._possible(entry, prediction, rendered))
        except BaseException:
            self._predictor.abandon()
            raise
        self._predictor.record(generated.ids, reads_cache=entry.reads_cache)
        self._earlier.add(entry, offset, generated.known, sent)
        self._conversations.add(entry.messages, prediction.index)
        nearest = prediction.nearest
        whole = nearest is not None and nearest.relation is Relation.CONTAINED and nearest.same_salt
        return LintedRequest(
            line=entry.line,
            model=entry.model,
            miss=miss,
            possible_tokens=possible,
            against=self._against(reference, prediction, miss),
            repeats=self._earlier.line(nearest.index) if whole and nearest is not None else None,
            reply_ids=generated.known,
            reported_cached=None if entry.usage is None else entry.usage.cached_tokens,
            flags=self._flags(entry, rendered, prediction, miss, possible),
            silent_reasoning=self._silent_reasoning(entry),
        )

    def _reference(self, sent: Turn, prediction: Prediction) -> int | None:
        """The earlier request to hold this one against; None where it leaves none."""
        nearest = prediction.nearest
        if nearest is None or nearest.relation is not Relation.DIVERGES or prediction.ceiling_tokens == 0:
            return None
        before = self._conversations.turn_before(sent.messages)
        if before is None or before == nearest.index:
            return nearest.index
        common = {
            index: common_messages(self._earlier.turn(index), sent) for index in (nearest.index, before)
        }
        return before if common[before] > common[nearest.index] else nearest.index

    def _silent_reasoning(self, entry: LogEntry) -> int | None:
        if not entry.has_reasoning or self._prints_reasoning:
            return None
        return next(
            index for index, message in enumerate(entry.messages) if reasoning_of(message) is not None
        )

    def _against(self, reference: int | None, prediction: Prediction, miss: Miss) -> int | None:
        if reference is None and prediction.nearest is not None:
            elsewhere = miss.tokens.keys() & {
                MissCause.OTHER_SALT,
                MissCause.EVICTED,
                MissCause.READS_SKIPPED,
            }
            reference = prediction.nearest.index if elsewhere else None
        return None if reference is None else self._earlier.line(reference)

    def _possible(self, entry: LogEntry, prediction: Prediction, rendered: Rendered) -> int:
        """What the cache can have served if the reply that this request goes on from was generated as sent."""
        nearest = prediction.nearest
        if nearest is None or not nearest.same_salt or not entry.reads_cache:
            return 0
        if (
            nearest.relation is not Relation.EXTENDS
            or self._earlier.reply(nearest.index) is not ReplyIds.UNKNOWN
        ):
            return 0
        place = self._earlier.messages(nearest.index)
        reply = entry.messages[place] if place < len(entry.messages) else {}
        text_only = reply.get("role") == "assistant"
        tokens = reply_tokens(reply, rendered, nearest.shared_tokens) if text_only else None
        reach = prediction.prompt_tokens if tokens is None else nearest.shared_tokens + tokens
        return hit_tokens(reach, prediction.prompt_tokens, self._options.block_size)

    def _flags(
        self, entry: LogEntry, rendered: Rendered, prediction: Prediction, miss: Miss, possible: int
    ) -> tuple[UsageFlag, ...]:
        if not self._options.server_usage:
            return ()
        expected = Expected(
            prediction=prediction,
            cached_tokens=miss.cached_tokens,
            possible_tokens=possible,
            same_ids=None if entry.prompt_ids is None else entry.prompt_ids == rendered.token_ids,
            block_size=self._options.block_size,
            first=prediction.index == 0,
        )
        return tuple(check_usage(entry, expected))
