from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.agent.tools import TOOL_SPECS
from serving.assembler import ToolPart, ToolSpec, similar_tools
from serving.assembler.lint import ALIKE, _compared, _Features, _sharing

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
NAME, DESCRIPTION, SCHEMA = ToolPart


def tool(name: str, description: str, parameters: object = PATH) -> ToolSpec:
    return ToolSpec.model_validate({"name": name, "description": description, "parameters": parameters})


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        (
            tool("search_incident", "Search open incidents."),
            tool("search_incidents", "Search open incidents."),
            (NAME, DESCRIPTION, SCHEMA),
        ),
        (
            tool("find_client", "Find a customer by e-mail address."),
            tool("lookup_customer", "Find a customer by e-mail address."),
            (DESCRIPTION, SCHEMA),
        ),
        (
            tool("search_doc", "Full text over manuals."),
            tool("search_docs", "Ask the index."),
            (NAME, SCHEMA),
        ),
        (
            tool("list-files", "List the files of a folder."),
            tool("listFiles", "List the files of a folder.", {}),
            (NAME, DESCRIPTION),
        ),
        (tool("stop_job", "", {}), tool("stop_jobs", "", {}), (NAME, SCHEMA)),
    ],
)
def test_a_pair_is_named_with_the_parts_that_agree(
    first: ToolSpec, second: ToolSpec, alike: tuple[ToolPart, ...]
) -> None:
    for handed_in in ((first, second), (second, first)):
        (pair,) = similar_tools(handed_in)
        assert (pair.first, pair.second, pair.alike) == (first.name, second.name, alike)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            tool("read_file", "Read the text file at the given path of the workspace."),
            tool("delete_file", "Delete the text file at the given path of the workspace."),
        ),
        (
            tool("get_user", "Get one user by id.", PATH),
            tool("get_users", "List all users of the tenant.", {}),
        ),
        (tool("ping", "", {}), tool("reboot", "", {})),
        (
            tool("check_api_key_status", "Show whether a key works."),
            tool("search_incidents", "Find incidents."),
        ),
    ],
)
def test_tools_that_do_different_things_are_no_pair(first: ToolSpec, second: ToolSpec) -> None:
    assert similar_tools([first, second]) == ()


def test_arguments_are_compared_at_every_depth_with_their_types() -> None:
    def nested(kind: str) -> dict[str, object]:
        inner = {"type": "object", "properties": {"id": {"type": kind}}}
        return {"type": "object", "properties": {"rows": {"type": "array", "items": inner}}}

    row = tool("put_row", "Put a row.", nested("string"))
    same = similar_tools([row, tool("put_rows", "Keep them.", nested("string"))])
    assert same[0].similarity[SCHEMA] == 1.0
    other = similar_tools([row, tool("put_rows", "Keep them.", nested("integer"))])
    assert other == ()


def test_the_labs_own_tools_are_told_apart() -> None:
    assert similar_tools(TOOL_SPECS) == ()


WORDS = st.lists(
    st.sampled_from(["find", "get", "list", "a", "the", "order", "invoice", "user", "by", "id"]), max_size=6
)
TOOLS = st.lists(
    st.builds(
        lambda number, name, words, arguments: tool(
            f"{'_'.join(name)}_{number}",
            " ".join(words),
            {"properties": {argument: {"type": "string"} for argument in arguments}},
        ),
        st.integers(0, 30),
        WORDS,
        WORDS,
        st.sets(st.sampled_from("abcd")),
    ),
    max_size=12,
    unique_by=lambda made: made.name,
)


@given(tools=TOOLS)
def test_no_pair_is_missed_by_comparing_only_those_that_share_something_rare(tools: list[ToolSpec]) -> None:
    features = sorted((_Features.of(made) for made in tools), key=lambda one: one.name)
    every = [
        found
        for index, first in enumerate(features)
        for second in features[index + 1 :]
        if (found := _compared(first, second)) is not None
    ]
    assert list(similar_tools(tools)) == every
    assert similar_tools(tools[::-1]) == similar_tools(tools)
    for pair in every:
        assert len(pair.alike) >= 2
        assert all(pair.similarity[part] >= round(ALIKE[part], 2) for part in pair.alike)


def test_of_a_thousand_tools_only_those_that_could_be_alike_are_compared() -> None:
    words = [hashlib.sha256(str(number).encode()).hexdigest()[:12] for number in range(1000)]
    tools = [tool(word, f"{word} the file at a path of the workspace") for word in words]
    twin = tool("twin", tools[7].description)
    features = [_Features.of(made) for made in (*tools, twin)]
    assert len(_sharing([one.words for one in features], ALIKE[DESCRIPTION])) == 1
    (pair,) = similar_tools([*tools, twin])
    assert {pair.first, pair.second} == {"twin", words[7]}
