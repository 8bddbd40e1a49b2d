"""What looks like a secret or personal data, in the items of a packet and in the words of its manifest.

A packet may have to hold a customer's address; its manifest never does. Kinds are recorded, values nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeVar

from serving.assembler.items import ContextItem
from serving.assembler.manifest import ContextManifest, RedactionVerdict, SensitiveItem
from serving.assembler.record import Record
from serving.errors import UsageError
from serving.redact import kinds_in, redact


def check_ids(items: Iterable[ContextItem]) -> None:
    """Raise `UsageError` for an id that holds a secret or personal data: ids join manifests, so they stay."""
    for item in items:
        if kinds := _kinds(item.id):
            raise UsageError(
                f"An item id is written into manifests and must tell nothing, but one holds what looks like "
                f"{', '.join(kinds)}; use an opaque id."
            )


def sensitive_items(items: Iterable[ContextItem]) -> tuple[SensitiveItem, ...]:
    """The items in whose content something was found."""
    found = ((item.id, _kinds(item.content_json)) for item in items)
    return tuple(SensitiveItem(item_id=item_id, kinds=kinds) for item_id, kinds in found if kinds)


def without_secrets(manifest: ContextManifest, sensitive: tuple[SensitiveItem, ...]) -> ContextManifest:
    """The manifest with its verdict, and without what its own words should not tell."""
    taken_out: set[str] = set()

    def clean(text: str) -> str:
        if not _kinds(text):
            return text
        cleaned = redact(text)
        taken_out.update(cleaned.removed)
        return cleaned.text

    cleaned = _cleaned(manifest, ("request_id", "run_id", "step_id", "tenant", "surface"), clean)
    update: dict[str, object] = {
        "selected": tuple(_cleaned(item, _WORDS_OF_ITEMS, clean) for item in manifest.selected),
        "dropped": tuple(_cleaned(item, _WORDS_OF_ITEMS, clean) for item in manifest.dropped),
        "missing": tuple(_cleaned(gap, ("source",), clean) for gap in manifest.missing),
    }
    if manifest.retrieval is not None:
        filters = tuple((name, clean(value)) for name, value in manifest.retrieval.filters)
        update["retrieval"] = manifest.retrieval.model_copy(update={"filters": filters})
    update["redaction"] = RedactionVerdict(sensitive=sensitive, taken_out=tuple(sorted(taken_out)))
    return cleaned.model_copy(update=update)


_WORDS_OF_ITEMS: Final = ("owner", "source", "version")

_R = TypeVar("_R", bound=Record)


def _cleaned(record: _R, fields: Sequence[str], clean: Callable[[str], str]) -> _R:
    words = {name: getattr(record, name) for name in fields}
    changed = {name: new for name, old in words.items() if old is not None and (new := clean(old)) != old}
    return record.model_copy(update=changed) if changed else record


@lru_cache(maxsize=16_384)
def _kinds(text: str) -> tuple[str, ...]:
    # The same item is looked at in every call of a run.
    return kinds_in(text)
