"""Who may read one text and who another: a summary is shown to everyone who could read all that it covers."""

from __future__ import annotations

from serving.assembler.items import Scope


def at_least_as_wide(wide: Scope, narrow: Scope) -> bool:
    """Whether everyone who may read what has the scope `narrow` may read what has the scope `wide`."""
    return (
        not wide.lookup_failed
        and wide.tenant in (None, narrow.tenant)
        and (wide.readers is None or (narrow.readers is not None and narrow.readers <= wide.readers))
        and wide.classification <= narrow.classification
        and all(
            facet in narrow.applies_to and narrow.applies_to[facet] <= values
            for facet, values in wide.applies_to.items()
        )
        and (
            wide.effective_from is None
            or (narrow.effective_from is not None and wide.effective_from <= narrow.effective_from)
        )
        and (
            wide.effective_until is None
            or (narrow.effective_until is not None and narrow.effective_until <= wide.effective_until)
        )
    )
