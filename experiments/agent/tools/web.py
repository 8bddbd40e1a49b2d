"""A web search over fixed pages: the same question always finds the same pages in the same order."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.outcome import Clean, Failure, Reply, ToolError, as_it_is
from experiments.agent.tools.pages import PAGES, Page
from experiments.agent.tools.tool import ALL_STAGES, Tool, tool

MAX_QUERY: Final = 300
_SNIPPET: Final = 120
_WORD: Final = re.compile(r"\w+")
_SATURATION, _LENGTH = 1.2, 0.75
"""The usual constants of BM25 (Robertson and Zaragoza 2009, section 3)."""


class Query(Arguments):
    """Words, and how many pages to list at most."""

    query: str
    results: Annotated[int, Field(ge=1, le=10)] = 3


class Address(Arguments):
    """A page that a search has listed."""

    url: str


def web_tools(pages: Sequence[Page] = PAGES, clean: Clean = as_it_is) -> tuple[Tool, ...]:
    """`web_search` and `open_page`, over pages that were cleaned as a whole."""
    pages = tuple(replace(page, title=clean(page.title), text=clean(page.text)) for page in pages)
    by_url = {page.url: page for page in pages}

    def search(asked: Query) -> Reply:
        if len(asked.query) > MAX_QUERY:
            raise ToolError(
                f"A query has at most {MAX_QUERY} characters, not {len(asked.query):,}; use fewer words.",
                Failure.LIMIT,
            )
        found = ranked(asked.query, pages)[: asked.results]
        lines = [f"{page.url}\n  {page.title}: {page.text[:_SNIPPET]}…" for page in found]
        return Reply(
            "\n".join(lines) or "No page has any of these words; try others.",
            {"results": len(found), "first": found[0].url if found else None},
        )

    def read(asked: Address) -> Reply:
        page = by_url.get(asked.url)
        if page is None:
            raise ToolError(
                f"There is no page {asked.url[:200]!r}; open one that web_search lists.", Failure.NOT_FOUND
            )
        return Reply(f"{page.title}\n{page.text}", {"url": page.url})

    return (
        tool("web_search", "Search the web.", Query, search, failures=(Failure.LIMIT,), stages=ALL_STAGES),
        tool(
            "open_page",
            "Read a page by its URL.",
            Address,
            read,
            failures=(Failure.NOT_FOUND,),
            stages=ALL_STAGES,
        ),
    )


def ranked(query: str, pages: Sequence[Page]) -> list[Page]:
    """The pages with a word of the query, best first by BM25 (a title counts twice), then by URL."""
    words = [Counter(_words(f"{page.title} {page.title} {page.text}")) for page in pages]
    lengths = [sum(counts.values()) for counts in words]
    usual = sum(lengths) / max(1, len(lengths))
    scores = [0.0] * len(pages)
    # Sorted, so that the sums have one order and one rounding.
    for word in sorted(set(_words(query))):
        holding = sum(word in counts for counts in words)
        weight = math.log(1 + (len(pages) - holding + 0.5) / (holding + 0.5))
        for index, counts in enumerate(words):
            if times := counts[word]:
                damping = _SATURATION * (1 - _LENGTH + _LENGTH * lengths[index] / usual)
                scores[index] += weight * times * (_SATURATION + 1) / (times + damping)
    order = sorted(range(len(pages)), key=lambda index: (-round(scores[index], 9), pages[index].url))
    return [pages[index] for index in order if scores[index] > 0]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
