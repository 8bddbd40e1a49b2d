"""The table of a template collection: published templates beside their patched twins, as Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from serving.chat.survey import CONVENTIONS, Habit, Kept, Probe, TemplateSurvey, Twins, conclusion
from serving.models.template_collection import TemplateCollection

_SIGNS = {Kept.ALL: "●", Kept.PROMPT: "◐", Kept.PART: "○", Kept.REFUSED: "×", None: "·"}
_LEGEND = (
    "● turn n, its output included, begins turn n + 1; ◐ only its prompt does; ○ not even its prompt does; "
    "× the template refuses the conversation; · does not apply. `○→●`: published → training twin."
)
_SHORT = {
    Probe.PLAIN_TURNS: "plain",
    Probe.TOOL_LOOP: "loop",
    Probe.PARALLEL_TOOLS: "parallel",
    Probe.USER_AFTER_LOOP: "user after loop",
    Probe.THINKING_OFF: "off",
    Probe.THINKING_OFF_LOOP: "off, loop",
    Probe.ECHOED: "echoed",
    Probe.ECHOED_LOOP: "echoed, loop",
    Probe.ECHOED_AFTER_LOOP: "echoed, user after loop",
    Probe.LEFT_OUT: "left out",
    Probe.LEFT_OUT_LOOP: "left out, loop",
    Probe.DEVELOPER: "developer",
    Probe.LATE_SYSTEM: "late system",
    Probe.TOOL_ADDED: "tool added",
}


def as_markdown(collection: TemplateCollection, pairs: Sequence[Twins]) -> str:
    """The page: what was done, what came out, the table, and who has which habit."""
    lines = [
        "# What chat templates keep of one turn in the next",
        "",
        f"Written by `ctxlab template --trl --into …` from {collection.origin} (SHA-256 `{collection.sha256}`): "
        f"{len(collection.sources)} files. The collection, and the training twins that patch templates to keep "
        "their prefix, are the work of [TRL](https://github.com/huggingface/trl) (Hugging Face, Apache-2.0); "
        "its README names the patches.",
        "",
        conclusion(pairs),
        "",
        "## Conventions",
        "",
        *(f"- {sentence}" for sentence in CONVENTIONS),
        "- Without the models' tokenizers the proofs are over text: where a text begins another and ends at an "
        "added token, so do its ids.",
        "",
        "## Published → training twin",
        "",
        _LEGEND,
        "",
        f"| template | {' | '.join(_SHORT[probe] for probe in Probe)} | the twin restores |",
        f"|---|{':-:|' * len(Probe)}---|",
        *map(_row, pairs),
        "",
        "## Habits",
        "",
        "| habit | published | templates |",
        "|---|--:|---|",
        *_habit_rows([pair.published for pair in pairs]),
        "",
        "## Spellings that change a result",
        "",
        "| spelling | then | templates (probes) |",
        "|---|---|---|",
        *_spelling_rows([pair.published for pair in pairs]),
        "",
    ]
    return "\n".join(lines)


def as_document(collection: TemplateCollection, pairs: Sequence[Twins]) -> str:
    """Everything behind the page, proofs with their quotes among it: JSON, one template a line."""
    head = {"origin": collection.origin, "sha256": collection.sha256, "conclusion": conclusion(pairs)}
    surveys = [s for pair in pairs for s in (pair.published, pair.patched) if s is not None]
    rows = ",\n".join(
        json.dumps(survey.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)
        for survey in surveys
    )
    return json.dumps(head, ensure_ascii=False)[:-1] + f', "templates": [\n{rows}\n]}}\n'


def _row(pair: Twins) -> str:
    cells = []
    for probe in Probe:
        published = _SIGNS[pair.published.probes[probe].kept]
        patched = published if pair.patched is None else _SIGNS[pair.patched.probes[probe].kept]
        cells.append(published if published == patched else f"{published}→{patched}")
    restored = ", ".join(_SHORT[probe] for probe in pair.restored())
    if pair.patched is None:
        restored = "no twin"
    return f"| {pair.published.name} | {' | '.join(cells)} | {restored or '–'} |"


def _habit_rows(published: Sequence[TemplateSurvey]) -> Iterator[str]:
    for habit in Habit:
        names = [s.name for s in published if any(finding.habit is habit for finding in s.findings)]
        listed = "all but " + ", ".join(s.name for s in published if s.name not in names)
        shown = ", ".join(names) if len(names) < len(published) * 0.7 else listed
        yield f"| {habit} | {len(names)} | {shown or '–'} |"


def _spelling_rows(published: Sequence[TemplateSurvey]) -> Iterator[str]:
    rows: dict[tuple[str, str], list[str]] = {}
    for survey in published:
        for deviation in survey.deviations:
            key = (deviation.spelling.value, deviation.kept.value)
            rows.setdefault(key, []).append(f"{survey.name} ({len(deviation.probes)})")
    for (spelling, kept), names in rows.items():
        yield f"| {spelling} | {kept} | {', '.join(names)} |"
