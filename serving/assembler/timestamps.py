"""Times on the messages themselves, as an alternative to the two times in the status bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serving.assembler.items import ContextItem
from serving.assembler.messages import part_id
from serving.assembler.payloads import ToolStep, UserTurn
from serving.assembler.record import Instant


def stamped(history: Sequence[ContextItem], times: Mapping[str, Instant]) -> tuple[ContextItem, ...]:
    """`history` with the given time in front of user texts and tool results; items without one stay as is.

    `times` by item id, or by `part_id(item id, call id)` for one result. The time of a message does not
    change, so neither do its bytes, and a text that carries its own stamp is not stamped again. Stamp last:
    results with different stamps no longer have equal contents, which masking looks for.
    """
    return tuple(_stamped_item(item, times) for item in history)


def _stamped_item(item: ContextItem, times: Mapping[str, Instant]) -> ContextItem:
    match item.payload:
        case UserTurn(text=text):
            changed: UserTurn | ToolStep = item.payload.model_copy(
                update={"text": _stamped_text(text, times.get(item.id))}
            )
        case ToolStep(results=results):
            changed = item.payload.model_copy(
                update={
                    "results": tuple(
                        result.model_copy(
                            update={
                                "content": _stamped_text(
                                    result.content,
                                    times.get(part_id(item.id, result.call_id), times.get(item.id)),
                                )
                            }
                        )
                        for result in results
                    )
                }
            )
        case _:
            return item
    # The size that was given for the item was that of its old text.
    return item if changed == item.payload else item.model_copy(update={"payload": changed, "tokens": None})


def moment_text(moment: Instant) -> str:
    """A time as bars and stamps write it: UTC, whole seconds, `Z`."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _stamped_text(text: str, moment: Instant | None) -> str:
    if moment is None:
        return text
    stamp = f"[{moment_text(moment)}] "
    return text if text.startswith(stamp) else stamp + text
