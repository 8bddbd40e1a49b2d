"""The TODO list of a run: the model writes the texts, code gives ids and keeps the status."""

from __future__ import annotations

import threading
from typing import Final

from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.directory import Nothing
from experiments.agent.tools.outcome import Failure, Reply, ToolError
from experiments.agent.tools.tool import ALL_STAGES, Postcondition, Tool, tool
from serving.assembler import TodoItem, TodoStatus

MAX_ITEMS: Final = 100
MAX_TEXT: Final = 300


class TodoList:
    """What is to be done, in the order in which it was added; threads may share it."""

    def __init__(self, items: tuple[TodoItem, ...] = ()) -> None:
        self._items = items
        self.changing = threading.Lock()

    @property
    def items(self) -> tuple[TodoItem, ...]:
        """As `BarState.todo` takes them."""
        return self._items

    def add(self, text: str) -> TodoItem:
        """A new item at the end; raises `ToolError` for an empty or long text, or a full list."""
        line = " ".join(text.split())
        if not line or len(line) > MAX_TEXT or len(self._items) >= MAX_ITEMS:
            raise ToolError(
                f"A TODO list takes up to {MAX_ITEMS} texts of 1 to {MAX_TEXT} characters; this would be number "
                f"{len(self._items) + 1}, of {len(line):,} characters.",
                Failure.LIMIT,
            )
        item = TodoItem(id=self._free_id(), text=line)
        self._items = (*self._items, item)
        return item

    def complete(self, item_id: str) -> TodoItem:
        """Mark an item as done, which it may be already; raises `ToolError` for an unknown id."""
        item = self.get(item_id)
        if item is None:
            known = ", ".join(item.id for item in self._items) or "none"
            raise ToolError(
                f"There is no TODO item {item_id[:40]!r}; the ids are: {known}.", Failure.NOT_FOUND
            )
        done = item.model_copy(update={"status": TodoStatus.COMPLETED})
        self._items = tuple(done if item.id == item_id else item for item in self._items)
        return done

    def get(self, item_id: str) -> TodoItem | None:
        return next((item for item in self._items if item.id == item_id), None)

    def _free_id(self) -> str:
        number = len(self._items) + 1
        while self.get(str(number)) is not None:
            number += 1
        return str(number)


class AddTodo(Arguments):
    """What is to be done."""

    text: str


class OneTodo(Arguments):
    """An item by its id."""

    id: str


def todo_tools(todo: TodoList) -> tuple[Tool, ...]:
    """`add_todo`, `complete_todo` and `list_todos`: notes of the agent's own, so they are offered at every stage."""

    def add(asked: AddTodo) -> Reply:
        item = todo.add(asked.text)
        return Reply(f"Added as {item.id}.", {"id": item.id, "items": len(todo.items)})

    def complete(asked: OneTodo) -> Reply:
        todo.complete(asked.id)
        left = sum(item.status is not TodoStatus.COMPLETED for item in todo.items)
        return Reply(f"{asked.id} is done; {left} left.", {"id": asked.id, "left": left})

    def tell(_: Nothing) -> Reply:
        lines = [
            f"[{'x' if item.status is TodoStatus.COMPLETED else ' '}] {item.id}: {item.text}"
            for item in todo.items
        ]
        return Reply("\n".join(lines) or "The list is empty.", {"items": len(lines)})

    def added(asked: AddTodo) -> bool:
        return bool(todo.items) and todo.items[-1].text == " ".join(asked.text.split())

    def completed(asked: OneTodo) -> bool:
        item = todo.get(asked.id)
        return item is not None and item.status is TodoStatus.COMPLETED

    return (
        tool(
            "add_todo",
            "Add an item to the TODO list.",
            AddTodo,
            add,
            effect="The list has one more item.",
            idempotent=False,
            failures=(Failure.LIMIT,),
            stages=ALL_STAGES,
            ensures=Postcondition("the item stands at the end of the list", added),
            alone=todo.changing,
        ),
        tool(
            "complete_todo",
            "Mark a TODO item as done.",
            OneTodo,
            complete,
            effect="The item is done.",
            failures=(Failure.NOT_FOUND,),
            stages=ALL_STAGES,
            ensures=Postcondition("the item is done", completed),
            alone=todo.changing,
        ),
        tool("list_todos", "Show the TODO list.", Nothing, tell, stages=ALL_STAGES),
    )
