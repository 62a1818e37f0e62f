"""Clicks that come faster than the ranks: each is answered, whoever is stopped by then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from meshbook.kernel.panel.session import Session

Message = dict[str, Any]


class Adapter:
    """The debugger of a rank, which does as it is told and says nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, command: str, arguments: Message) -> Message:
        self.asked.append(command)
        return {"success": True, "body": {}}


class Who:
    title = label = "rank"

    def hold(self, is_held: bool) -> None: ...
    def is_busy(self) -> bool:
        return True


class Debuggee:
    def __init__(self, number: int) -> None:
        self.number, self.who, self.adapter = number, Who(), Adapter()
        self.stopped: Message = {}
        self.frames: list[Message] = []


async def never(request: Message) -> Message:
    """The notebook's own debugger: it does not answer who lets it go on that is not stopped."""
    if request["command"] == "initialize":
        return {"success": True}
    await asyncio.Event().wait()
    raise AssertionError


async def clicked(*commands: str) -> tuple[list[bool], list[list[str]]]:
    """Press these buttons while three ranks are stopped, of which the first is shown; whether each was answered."""
    session = Session(never, lambda message: None)
    await session.request({"type": "request", "seq": 1, "command": "initialize"})
    ranks: list[Any] = [Debuggee(number) for number in (1, 2, 3)]
    session._debuggees = {each.number: each for each in ranks}
    for each in ranks:
        session._on_event(each.number, {"event": "stopped", "body": {"threadId": 1}})
    answers = [
        await asyncio.wait_for(
            session.request({"type": "request", "seq": 2, "command": command, "arguments": {"threadId": 1}}), 5
        )
        for command in commands
    ]
    return [each["success"] for each in answers], [each.adapter.asked for each in ranks]


@pytest.mark.parametrize(
    ("commands", "asked"),
    [
        (("continue", "continue", "continue"), [["continue"]] * 3),
        (("next", "continue"), [["next"], ["continue"], []]),
        (("next", "next"), [["next"], [], []]),
        (("continue",) * 4, [["continue"]] * 3),
    ],
)
def test_every_click_is_answered(commands: tuple[str, ...], asked: list[list[str]]) -> None:
    answered, told = asyncio.run(clicked(*commands))
    assert all(answered)
    assert told == asked


def test_what_the_notebooks_own_debugger_refuses_has_what_the_panel_reads() -> None:
    """It asks for variables of a frame that has gone on, and draws those of the answer, whatever that says."""

    async def refuses(request: Message) -> Message:
        return {"success": request["command"] == "initialize", "message": "gone", "body": {"error": {"format": "gone"}}}

    async def asked() -> Message:
        session = Session(refuses, lambda message: None)
        await session.request({"type": "request", "seq": 1, "command": "initialize"})
        rank: Any = Debuggee(1)
        session._debuggees = {1: rank}
        request = {"type": "request", "seq": 2, "command": "variables", "arguments": {"variablesReference": 7}}
        return await session.request(request)

    told = asyncio.run(asked())
    assert (told["success"], told["message"], told["body"]["variables"]) == (False, "gone", [])
