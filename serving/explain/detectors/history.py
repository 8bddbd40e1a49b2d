"""The history itself: replaced by a summary, edited, or another conversation."""

from __future__ import annotations

import re

from serving.explain.alignment import Edit, first_fragment
from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding, quoted
from serving.explain.detectors.moved import messages, moved
from serving.explain.difference import Change, Difference
from serving.text import common_prefix

_SUMMARY = re.compile(
    r"summar|recap|compact|status|progress|memory|to-?do|\bplan\b|so far|earlier conversation", re.IGNORECASE
)
_HEADING = 120
"""How far into a message its heading may reach."""
_SAME_SHARE = 0.8
_RESULT_CHANGE = (
    "Shorten results rarely and many at once: each time all behind the first of them is computed again. Never word the "
    "replacement anew."
)
_HEAD_CHANGE = "Put what differs between requests behind what is the same in all of them."


def changed_history(difference: Difference) -> Finding | None:
    """Messages were dropped, replaced, changed or inserted; or nothing behind the first difference is common."""
    edit = difference.edit
    if edit is None:
        return None
    finding = moved(difference) or _summarised(difference, edit) or _edited(difference, edit)
    if finding is not None:
        return finding
    place = difference.broken.sent.words()
    return Finding(
        MissCause.BRANCHED,
        f"Other content from {place} on, and nothing behind it is common to both requests.",
    )


def _summarised(difference: Difference, edit: Edit) -> Finding | None:
    gone, come = edit.stored_to - edit.stored_from, edit.sent_to - edit.sent_from
    if edit.resumes and 1 <= come < gone:
        new = f"message {edit.sent_from}" if come == 1 else f"{come} messages"
        return Finding(
            MissCause.REWRITTEN_SUMMARY,
            f"{messages(edit.stored_from, edit.stored_to)} of the earlier request became {new}.",
        )
    change = difference.change
    if change is None or not (edit.resumes or _is_system(difference, change)):
        return None
    shared = common_prefix(change.stored, change.sent)
    heading = change.sent[: max(shared, 1)][-_HEADING:]
    if not _SUMMARY.search(heading) or not change.stored or not change.sent:
        return None
    return Finding(
        MissCause.REWRITTEN_SUMMARY,
        f"Message {change.message_index} begins as before ({heading.splitlines()[-1][:_HEADING]!r}) and was "
        "written anew in place.",
    )


def _edited(difference: Difference, edit: Edit) -> Finding | None:
    gone, come = edit.stored_to - edit.stored_from, edit.sent_to - edit.sent_from
    if edit.resumes and come > gone:
        return Finding(
            MissCause.EDITED_MIDDLE,
            f"{come - gone} message{'s' if come - gone > 1 else ''} inserted before messages that were sent "
            f"already, from message {edit.sent_from} on.",
        )
    change = difference.change
    if change is not None and (edit.resumes or _is_same(difference, change)):
        return Finding(MissCause.EDITED_MIDDLE, _how(change), change=_kept_by(difference, edit, change))
    if edit.resumes:
        return Finding(
            MissCause.EDITED_MIDDLE,
            f"{messages(edit.sent_from, edit.sent_to)} changed, and messages that were sent already follow.",
        )
    return None


def _kept_by(difference: Difference, edit: Edit, change: Change) -> str:
    """What would keep the prefix, where the cause's own advice is of another message."""
    if _is_system(difference, change) and not edit.resumes:
        return _HEAD_CHANGE
    role = difference.sent.messages[change.message_index].get("role")
    return _RESULT_CHANGE if role == "tool" and len(change.sent) < len(change.stored) else ""


def _is_system(difference: Difference, change: Change) -> bool:
    return difference.sent.messages[change.message_index].get("role") in ("system", "developer")


def _is_same(difference: Difference, change: Change) -> bool:
    """Whether both are one message with another text: the result of one call, or mostly the same words.

    Questions to one form ("Summarise this: …") share a beginning and are different questions.
    """
    if difference.sent.messages[change.message_index].get("role") == "tool":
        return True  # `change` compares messages that answer the same call
    if difference.fragment is not None and difference.fragment.extends:
        return True
    shorter = min(len(change.stored), len(change.sent))
    begin = common_prefix(change.stored, change.sent)
    end = common_prefix(change.stored[::-1], change.sent[::-1])
    most = shorter > 0 and min(begin + end, shorter) >= _SAME_SHARE * shorter
    return most and difference.one_conversation


def _how(change: Change) -> str:
    start, was, now, _ = first_fragment(change.stored, change.sent)
    if not now:
        what = f"{quoted(was)} was taken out"
    else:
        what = f"{quoted(was)} became {quoted(now)}" if was else f"{quoted(now)} was put in"
    return (
        f"The {change.field} of message {change.message_index} changed from character {start} on ({what}): it had "
        f"{len(change.stored):,} characters and has {len(change.sent):,}."
    )
