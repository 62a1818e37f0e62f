"""The cell that awaits: it is looked after until its end, or until the extension is unloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from meshbook.magics import awaiting
from meshbook.magics.awaiting import AwaitingCell


class Events:
    """The events of a shell."""

    def __init__(self) -> None:
        self.heard: dict[str, list[Callable[..., object]]] = {}

    def register(self, name: str, call: Callable[..., object]) -> None:
        self.heard.setdefault(name, []).append(call)

    def unregister(self, name: str, call: Callable[..., object]) -> None:
        self.heard[name].remove(call)

    def happens(self, name: str) -> None:
        for call in self.heard[name]:
            call()


class Shell:
    def __init__(self) -> None:
        self.events = Events()


@pytest.mark.parametrize("how", ["ends", "unloads"])
def test_a_cell_is_looked_after_until_it_ends_or_unloads_us(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(awaiting, "TICK", 0)
    shell, looks = Shell(), list[bool]()
    cell = AwaitingCell(shell, lambda: looks.append(True))

    async def run() -> tuple[int, int]:
        cell.load()
        shell.events.happens("pre_run_cell")
        for _ in range(4):
            await asyncio.sleep(0)
        before = len(looks)
        if how == "ends":
            shell.events.happens("post_run_cell")
        else:
            cell.unload()
        for _ in range(4):
            await asyncio.sleep(0)
        return before, len(looks)

    before, after = asyncio.run(run())
    assert before > 1
    assert after == before


def test_after_stop_was_pressed_at_a_question_the_cell_asks_nothing_more() -> None:
    shell, told = Shell(), list[str]()
    cell = AwaitingCell(shell, lambda: None)
    cell.load()

    def ask() -> None:
        told.append("asked")
        raise KeyboardInterrupt

    async def run() -> None:
        shell.events.happens("pre_run_cell")
        for _ in range(2):  # the second rank stops while the first one's question is there
            cell.call(ask, lambda: told.append("let go"))
        await asyncio.sleep(10)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert told == ["asked", "let go", "let go"]
