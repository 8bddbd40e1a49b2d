from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from serving.client.sse import SseDecoder

_TEXT = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1)


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(_TEXT, min_size=1), st.lists(st.integers(0, 10_000)), st.sampled_from(["\n", "\r\n"]))
def test_any_chunking_gives_the_same_events_each_stamped_by_the_chunk_that_completed_it(texts, cuts, newline):
    wire = "".join(f"data: {text}{newline}{newline}" for text in texts).encode()
    ends, position = [], 0
    for text in texts:
        position += len(f"data: {text}{newline}{newline}".encode())
        ends.append(position)
    decoder, found, received = SseDecoder(), [], 0
    for chunk in _pieces(wire, cuts):
        before, received = received, received + len(chunk)
        for item in decoder.feed(chunk, at_ns=received):
            found.append(item.data)
            # The event's last byte lies in this chunk, and the stamp is this chunk's.
            assert before < ends[len(found) - 1] <= received == item.at_ns
    assert found == texts
    assert decoder.close(0) == []


def test_comments_and_other_fields_are_dropped_and_data_lines_join():
    decoder = SseDecoder()
    items = decoder.feed(b": ping\n\nevent: x\nid: 1\ndata: a\ndata:b\n\n", 5)
    assert [item.data for item in items] == ["a\nb"]


def test_an_event_without_its_closing_blank_line_is_given_at_the_end():
    decoder = SseDecoder()
    assert decoder.feed(b"data: [DONE]\n", 1) == []
    assert [item.data for item in decoder.close(2)] == ["[DONE]"]
