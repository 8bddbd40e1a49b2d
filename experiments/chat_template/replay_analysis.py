"""What the records of the study `chat-template-replay` say: exact tokens by arm, and what broke first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.chat_template.arms import FAULT, is_family
from experiments.chat_template.names import LOST, TOOL_ROLE
from experiments.chat_template.tables import of_arm
from experiments.framework import Analysis, Arm, Stack, StackedFigure, Table, TrialRecord
from experiments.framework.analysis import Cell, arms_that_ran
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.measured import agreement
from experiments.framework.statistics import mean_of
from experiments.prefix_cache.workload import CAUSE_WORDS
from experiments.tool_calling.names import REFUSED
from serving.prefix import Cause


def analyse_replay(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """Tables, figures and a conclusion, every sentence of it computed; arms without a record are left out."""
    ran = arms_that_ran(arms, records)
    own, foreign = [arm for arm in ran if not is_family(arm)], [arm for arm in ran if is_family(arm)]
    return Analysis(
        conclusion=" ".join(_conclusion(own, foreign, records)),
        tables=(
            _cost_table(ran, records),
            _break_table(ran, records),
            *_lost_table(ran, records),
            *_refused_table(ran, records),
        ),
        figures=tuple(_figures(own, foreign, records)),
    )


def mean(records: Sequence[TrialRecord], arm: str, measure: str) -> float:
    """The mean over an arm's conversations; what a record does not have is nothing."""
    values = [record.measures.get(measure) for record in of_arm(records, arm)]
    return float(np.mean([value if isinstance(value, int | float) else 0 for value in values]))


def refusal(records: Sequence[TrialRecord], arm: Arm) -> str | None:
    """The template's words, where it would not take the whole conversation."""
    words = (record.measures.get(REFUSED) for record in of_arm(records, arm.name))
    return next((str(one) for one in words if one is not None), None)


def _conclusion(own: Sequence[Arm], foreign: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[str]:
    yield agreement([call for record in records for call in record.calls], "requests")
    named = {arm.name: arm for arm in own}
    if TOOL_ROLE in named:
        lost, twin = (mean(records, TOOL_ROLE, name) for name in ("lost_tokens", "twin_tokens"))
        yield (
            f"{named[TOOL_ROLE].title}: {lost:.0f} of the {twin:.0f} tokens are lost that an append-only conversation "
            "of the same lengths reuses."
        )
        yield from _against_base(own, records)
    if {TOOL_ROLE, NULL_REBUILD} <= named.keys():
        same = mean(records, TOOL_ROLE, "cached_tokens") == mean(records, NULL_REBUILD, "cached_tokens")
        yield f"Rebuilt from a stored copy, it reuses {'as many' if same else 'another number of'} tokens."
    yield from _about_families(foreign, records)


def _against_base(own: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[str]:
    base = mean(records, TOOL_ROLE, "lost_tokens")
    losses = [
        (arm.title, mean(records, arm.name, "lost_tokens"))
        for arm in own
        if arm.name not in (TOOL_ROLE, NULL_REBUILD) and refusal(records, arm) is None
    ]
    losses.sort(key=lambda pair: -pair[1])
    for words, chosen in (
        ("lose more", [pair for pair in losses if pair[1] > base]),
        ("lose as much", [pair for pair in losses if pair[1] == base]),
        ("lose less", [pair for pair in losses if pair[1] < base]),
    ):
        if chosen:
            parts = ", ".join(f"“{title}” {lost:.0f}" for title, lost in chosen)
            yield f"These {words}: {parts}."


def _about_families(foreign: Sequence[Arm], records: Sequence[TrialRecord]) -> Iterator[str]:
    for late, words in ((False, "the conversation"), (True, "a late system message")):
        chosen = [arm for arm in foreign if bool(arm.factors.get(FAULT)) is late]
        if not chosen:
            continue
        refused = [_family(arm) for arm in chosen if refusal(records, arm) is not None]
        taken = [arm for arm in chosen if refusal(records, arm) is None]
        whole = [_family(arm) for arm in taken if mean(records, arm.name, "lost_tokens") == 0]
        yield (
            f"Of {len(chosen)} other families' templates {len(refused)} refuse {words}{_named(refused)} and "
            f"{len(whole)} lose nothing over it{_named(whole)}."
        )


def _family(arm: Arm) -> str:
    return str(arm.factors["render.template"])


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _cost_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        prompt, cached, twin, lost, computed = (
            mean(records, arm.name, f"{name}_tokens")
            for name in ("prompt", "cached", "twin", "lost", "uncached")
        )
        waited = mean_of(records, arm.name, "ttft_s")
        rows.append(
            (
                arm.title,
                mean(records, arm.name, "model_calls"),
                prompt,
                computed,
                cached / prompt if prompt else None,
                twin / prompt if prompt else None,
                lost,
                mean(records, arm.name, "kept_all"),
                mean(records, arm.name, "kept_prompt"),
                None if waited is None else waited.estimate,
            )
        )
    return Table(
        title="Cost of the conversation",
        columns=(
            "arm",
            "calls",
            "prompt tokens",
            "tokens computed",
            "cached share",
            "of its append-only twin",
            "tokens lost",
            "extend prompt and answer",
            "extend the prompt alone",
            "sum of TTFT, s",
        ),
        rows=tuple(rows),
        note="Means over conversations (other families' templates: of the first one alone), model calls only. Lost: "
        "what an append-only conversation of the same lengths reuses in whole blocks, and this one computes. A "
        "refused arm counts the calls before the refusal.",
    )


def _break_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        broken = [
            record for record in of_arm(records, arm.name) if record.measures.get("first_break") is not None
        ]
        first = broken[0].measures if broken else {}
        rows.append(
            (
                arm.title,
                arm.why,
                first.get("first_break", "none: every call extends what was stored"),
                first.get("stored_there", ""),
                first.get("sent_instead", ""),
            )
        )
    return Table(
        title="What broke first",
        columns=("arm", "what it does", "first broken place", "stored there", "sent instead"),
        rows=tuple(rows),
        note="Of the first conversation in which a request leaves what is stored; found by comparing token ids.",
    )


def _lost_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> tuple[Table, ...]:
    causes = _lost_causes(arms, records)
    if not causes:
        return ()
    rows: list[tuple[Cell, ...]] = [
        (arm.title, *(mean(records, arm.name, f"{LOST}{cause}") for cause in causes)) for arm in arms
    ]
    return (
        Table(
            title="Avoidable tokens by named cause",
            columns=("arm", *causes),
            rows=tuple(rows),
            note="Positions where the nearest stored request holds other ids, by the cause that the lab proves; "
            "without the rounding to blocks, so the sums differ a little from the tokens lost.",
        ),
    )


def _lost_causes(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> list[str]:
    names = {arm.name for arm in arms}
    measures = (record.measures for record in records if record.arm in names)
    return sorted({name.removeprefix(LOST) for own in measures for name in own if name.startswith(LOST)})


def _refused_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> tuple[Table, ...]:
    rows: list[tuple[Cell, ...]] = [
        (arm.title, mean(records, arm.name, "model_calls"), words)
        for arm in arms
        if (words := refusal(records, arm)) is not None
    ]
    if not rows:
        return ()
    return (
        Table(
            title="Refused",
            columns=("arm", "calls before", "the template's words"),
            rows=tuple(rows),
        ),
    )


def _figures(
    own: Sequence[Arm], foreign: Sequence[Arm], records: Sequence[TrialRecord]
) -> Iterator[StackedFigure]:
    for name, arms, title in (
        ("tokens-by-cause", own, "Where the prompt tokens of one conversation went"),
        ("families-by-cause", foreign, "The same conversation in other families' templates"),
    ):
        if not arms:
            continue
        causes = [
            cause for cause in Cause if any(mean(records, arm.name, f"cause_{cause.value}") for arm in arms)
        ]
        yield StackedFigure(
            name=name,
            title=title,
            axis="prompt tokens of a replayed conversation (mean over conversations)",
            parts=("reused from the cache", *(CAUSE_WORDS[cause] for cause in causes)),
            stacks=tuple(
                Stack(
                    label=arm.title,
                    values=(
                        mean(records, arm.name, "cached_tokens"),
                        *(mean(records, arm.name, f"cause_{cause.value}") for cause in causes),
                    ),
                )
                for arm in arms
            ),
            caption="The first part costs almost nothing; all others are computed. They add up to the prompt tokens.",
        )
    causes_lost = _lost_causes(own, records)
    if causes_lost:
        yield StackedFigure(
            name="lost-by-cause",
            title="Avoidable tokens of one conversation, by named cause",
            axis="tokens",
            parts=tuple(causes_lost),
            stacks=tuple(
                Stack(
                    label=arm.title,
                    values=tuple(mean(records, arm.name, f"{LOST}{cause}") for cause in causes_lost),
                )
                for arm in own
            ),
            caption="Arms without a bar lose nothing that another way of sending would have kept.",
        )
