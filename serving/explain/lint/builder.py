"""Verdicts added up, one at a time, into a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from serving.explain.causes import MissCause, advice
from serving.explain.first_break import FirstBreak
from serving.explain.lint.linter import Kept, LintedRequest, LintOptions, SkippedLine
from serving.explain.lint.replies import ReplyIds
from serving.explain.lint.report import (
    Example,
    Group,
    LintReport,
    Note,
    Notice,
    Side,
    Skipped,
    UsageGroup,
)
from serving.explain.lint.usage import UsageProblem
from serving.explain.miss import Miss

_EXAMPLES = 5
_SKIPPED_SHOWN = 20

Seconds = Callable[[int, int], float]
"""From (cached tokens, uncached tokens) to predicted seconds until the first token."""


class _Tally:
    """A group that is still growing."""

    def __init__(self, example: Example, cause: MissCause, place: str, change: str) -> None:
        self.example, self.cause, self.place, self.change = example, cause, place, change
        self.requests = self.tokens = 0
        self.seconds = 0.0
        self.lines: list[int] = []


class ReportBuilder:
    """Adds verdicts up, one at a time; what it keeps grows with kinds of breaks, not with requests."""

    def __init__(
        self,
        log: str,
        options: LintOptions,
        *,
        price: float | None = None,
        seconds: Seconds | None = None,
        template_clock: bool = False,
    ) -> None:
        """Args: `price` of one lost token, in any currency; `seconds` a fitted model of the time to first
        token; `template_clock` whether the template prints the date.
        """
        self._log, self._options, self._price, self._seconds = log, options, price, seconds
        self._template_clock = template_clock
        self._requests = self._prompt = self._cached = self._possible = self._reported = self._reports = 0
        self._causes: Counter[MissCause] = Counter()
        self._tallies: dict[tuple[MissCause, str], _Tally] = {}
        self._usage: dict[UsageProblem, tuple[str, list[int], int]] = {}
        self._reply_ids: Counter[ReplyIds] = Counter()
        self._repeats: list[tuple[int, int]] = []
        self._silent: list[tuple[int, int]] = []
        self._counts: Counter[Notice] = Counter()
        self._skipped: list[Skipped] = []
        self._skipped_lines = 0
        self._other_models: Counter[str] = Counter()

    def add(self, item: LintedRequest | SkippedLine) -> None:
        """Count one verdict."""
        if isinstance(item, SkippedLine):
            self._skip(item)
            return
        miss = item.miss
        self._requests += 1
        self._prompt += miss.prompt_tokens
        self._cached += miss.cached_tokens
        self._possible += item.possible_tokens
        if item.reported_cached is not None:
            self._reported += item.reported_cached
            self._reports += 1
        self._causes.update(miss.tokens)
        self._reply_ids[item.reply_ids] += 1
        for cause, tokens in miss.tokens.items():
            if cause.avoidable or cause is MissCause.BELOW_ONE_BLOCK:
                self._group(item, cause, tokens)
        for flag in item.flags:
            sentence, lines, count = self._usage.get(flag.problem, (flag.sentence, [], 0))
            self._usage[flag.problem] = (sentence, _first(lines, item.line), count + 1)
        if item.repeats is not None:
            self._counts[Notice.REPEATED_PROMPTS] += 1
            self._repeats = self._repeats or [(item.line, item.repeats)]
        if item.silent_reasoning is not None:
            self._counts[Notice.SILENT_REASONING] += 1
            self._silent = self._silent or [(item.line, item.silent_reasoning)]

    def report(self, *, served_name: str | None, kept: Kept) -> LintReport:
        """All that was added."""
        groups = sorted((self._finished(tally) for tally in self._tallies.values()), key=lambda g: -g.tokens)
        losses = [group for group in groups if group.cause.avoidable]
        seconds = [group.lost_seconds for group in losses if group.lost_seconds is not None]
        lost = sum(group.tokens for group in losses)
        return LintReport(
            log=self._log,
            served_name=served_name,
            block_size=self._options.block_size,
            num_blocks=self._options.num_blocks,
            requests=self._requests,
            prompt_tokens=self._prompt,
            cached_tokens=self._cached,
            possible_tokens=self._possible,
            reported_tokens=self._reported if self._requests and self._reports == self._requests else None,
            tokens_by_cause=dict(self._causes.most_common()),
            lost_tokens=lost,
            lost_money=None if self._price is None else lost * self._price,
            lost_seconds=None if self._seconds is None else sum(seconds),
            groups=tuple(groups),
            first_break=min(losses, key=lambda group: group.lines[0], default=None),
            usage=tuple(
                UsageGroup(problem=problem, requests=count, lines=tuple(lines), sentence=sentence)
                for problem, (sentence, lines, count) in self._usage.items()
            ),
            notes=tuple(self._notes(served_name)),
            skipped=tuple(self._skipped),
            skipped_lines=self._skipped_lines,
            kept_token_ids=kept.token_ids,
        )

    def _skip(self, item: SkippedLine) -> None:
        if item.other_model is not None:
            self._other_models[item.other_model] += 1
            return
        self._skipped_lines += 1
        if len(self._skipped) < _SKIPPED_SHOWN:
            self._skipped.append(Skipped(line=item.line, reason=item.reason))

    def _group(self, item: LintedRequest, cause: MissCause, tokens: int) -> None:
        found = item.miss.finding if item.miss.finding and item.miss.finding.cause is cause else None
        broken = item.miss.broken if found else None
        place = "" if broken is None else _kind_of_place(broken)
        tally = self._tallies.get((cause, place))
        if tally is None:
            example = _example(item, tokens, broken, "" if found is None else found.detail)
            tally = _Tally(example, cause, place, "" if found is None else found.advice)
            self._tallies[cause, place] = tally
        tally.requests += 1
        tally.tokens += tokens
        tally.lines = _first(tally.lines, item.line)
        if self._seconds is not None:
            tally.seconds += _saved(self._seconds, item.miss, tokens)

    def _finished(self, tally: _Tally) -> Group:
        return Group(
            cause=tally.cause,
            place=tally.place,
            requests=tally.requests,
            tokens=tally.tokens,
            lost_money=None if self._price is None else tally.tokens * self._price,
            lost_seconds=None if self._seconds is None else tally.seconds,
            lines=tuple(tally.lines),
            example=tally.example,
            advice=tally.change or advice(tally.cause),
        )

    def _notes(self, served_name: str | None) -> list[Note]:
        unknown = self._reply_ids[ReplyIds.UNKNOWN]
        sentences: list[tuple[Notice, str]] = []
        if self._possible > self._cached:
            sentences.append(
                (
                    Notice.REPLIES_UNKNOWN,
                    f"The log does not hold the ids that {unknown:,} of {self._requests:,} replies were made of "
                    "(return_token_ids), so what they left in the cache is not counted: "
                    f"{self._cached:,} cached tokens are certain, {self._possible:,} possible.",
                )
            )
        if self._repeats:
            (line, earlier), count = self._repeats[0], self._counts[Notice.REPEATED_PROMPTS]
            sentences.append(
                (
                    Notice.REPEATED_PROMPTS,
                    f"{count:,} prompts were stored whole before they were sent (line {line} repeats line {earlier}). "
                    "Where that is a measurement, it met its own blocks: give every trial its own cache_salt.",
                )
            )
        if self._silent:
            (line, message), count = self._silent[0], self._counts[Notice.SILENT_REASONING]
            sentences.append(
                (
                    Notice.SILENT_REASONING,
                    f"{count:,} requests carry reasoning (first: message {message} of line {line}), and this template "
                    "prints none of it: it is dropped in silence.",
                )
            )
        if self._template_clock:
            sentences.append(
                (
                    Notice.TEMPLATE_CLOCK,
                    "The template prints today's date, so every prefix breaks at midnight, and these prompts were "
                    "rendered with the date of this run.",
                )
            )
        if self._other_models:
            named = ", ".join(f"{name!r} ({count:,})" for name, count in self._other_models.most_common(3))
            sentences.append(
                (
                    Notice.OTHER_MODELS,
                    f"Only requests to {served_name!r} are linted; left out: {named}. --served-name chooses others.",
                )
            )
        differing = self._usage.get(UsageProblem.COUNT_DIFFERS)
        if differing is not None and differing[2] * 2 > self._requests:
            sentences.append(
                (
                    Notice.OTHER_LOG,
                    f"{differing[2]:,} of {self._requests:,} prompts have another number of tokens than the server "
                    "reports: this log is of another model or template, and no number here holds for it.",
                )
            )
        return [Note(notice=notice, sentence=sentence) for notice, sentence in sentences]


def _example(item: LintedRequest, tokens: int, broken: FirstBreak | None, detail: str) -> Example:
    stored = sent = None
    if broken is not None and item.against is not None:
        stored = Side(
            line=item.against,
            place=broken.stored.words(),
            token_ids=broken.stored_ids,
            text=broken.stored_text,
        )
        sent = Side(
            line=item.line, place=broken.sent.words(), token_ids=broken.sent_ids, text=broken.sent_text
        )
    return Example(
        line=item.line,
        tokens=tokens,
        detail=detail,
        position=None if broken is None else broken.position,
        lead="" if broken is None else broken.lead,
        stored=stored,
        sent=sent,
    )


def _kind_of_place(broken: FirstBreak) -> str:
    """Equal for breaks of one kind: the role and not the index, which grows with a conversation."""
    role = broken.sent.role
    segment = broken.sent.segment.value
    return f"{role} message" if segment == "message" and role else segment


def _saved(seconds: Seconds, miss: Miss, tokens: int) -> float:
    uncached = miss.prompt_tokens - miss.cached_tokens
    return seconds(miss.cached_tokens, uncached) - seconds(miss.cached_tokens + tokens, uncached - tokens)


def _first(lines: list[int], line: int) -> list[int]:
    return lines if len(lines) >= _EXAMPLES else [*lines, line]
