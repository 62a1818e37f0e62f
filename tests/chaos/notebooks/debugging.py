"""A debugger on the ranks of a random notebook: who stops is asked, given values, let go, interrupted or killed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from tests.magics.front_end import Cell

from ..verdicts import Violation
from .cells import Body, Line, Ran, plain
from .model import Grid, Selection, named
from .reader import PATIENCE, Reader

End = Literal["go on", "leave", "step", "abort", "stop", "kill"]
ENDS: tuple[End, ...] = get_args(End)

SAYINGS = (
    *("p rank", "pp coord", "w", "ll", "u", "args", "whatis rank", "p 1 / 0", "p nothing_like_it", "?ra"),
    *("%who", "%table rank", "%all p rank", "%help", "%frobnicate", "%rank 99", "b", "display rank"),
)
"""Commands that change nothing."""

_SOON = 10.0
"""Seconds within which ranks that were let go end, or the next one asks: less than a step may take, to tell of it."""

_PROMPT = re.compile(r"rank (\d+)\b.*>")


class Command(NamedTuple):
    """A line that is typed at the prompt."""

    text: str
    name: str = ""
    """A variable that it sets, if it does."""
    value: int = 0
    ranks: Collection[int] = ()
    """Whose; of the one that is asked, if there are none here."""


class Debugging(Reader):
    """Operations that stop ranks."""

    def debug(
        self,
        name: str,
        selection: Selection,
        bodies: tuple[Body, Body],
        stops: Sequence[int],
        commands: Sequence[Command],
        end: End,
    ) -> None:
        """A breakpoint between two bodies, commands at its prompt, and how its ranks come away from there."""
        grid, ranks = self._chosen(name, selection)
        stop = Line(f"if rank in {stops}:\n    breakpoint()", "")
        text = Body((*bodies[0].lines, stop, *bodies[1].lines), bodies[1].last).text
        self._source = f"%%on_mesh {selection.text}{self._at(name)} --grace 0.2\n{text}"
        pids = self._kernel.pids(name)
        before = grid.run(Body(bodies[0].lines), ranks, is_noted=False)
        grid.is_journal_known = False
        cell = self._kernel.start(self._source)
        self._kernel.until_stopped(*stops, desk=f"{name}.desk")
        self._come_away(cell, grid, pids, commands, end)
        if end != "stop":
            cell.type({"leave": "q", "step": "n", "abort": "%abort"}.get(end, "c"))
        self._answer(cell, "q" if end == "step" else "c")
        if end in ("abort", "stop"):
            grid.failed = set(stops) if end == "abort" else set()  # the stop button is no failure
            _broken_off(cell)
            return
        after = grid.run(bodies[1], ranks, is_noted=False)
        self._compare(cell.end(PATIENCE), grid, ranks, dict(_joined(before, after)))

    def post_mortem(
        self,
        name: str,
        selection: Selection,
        body: Body,
        failing: Collection[int],
        commands: Sequence[Command],
        end: Literal["leave", "stop", "kill"],
    ) -> None:
        """Some ranks fail, and the frames of their errors are visited afterwards."""
        grid, ranks = self._chosen(name, selection)
        whole = Body((*body.lines, plain(f"if rank in {failing}: 1 / 0")))
        outputs = self._cell(f"%%on_mesh {selection.text}{self._at(name)}\n{whole.text}")
        self._compare(outputs, grid, ranks, grid.run(whole, ranks))
        grid.is_journal_known = False
        self._source = f"%mesh debug --pm{self._at(name)}"
        pids = self._kernel.pids(name)
        cell = self._kernel.start(self._source)
        self._kernel.until_stopped(*failing, desk=f"{name}.desk")
        self._come_away(cell, grid, pids, commands, end)
        if end != "stop":
            cell.type("q")
            self._answer(cell, "q")
        outputs = cell.end(PATIENCE)
        right = "KeyboardInterrupt: `%mesh debug --pm" if end == "stop" else ""
        if not outputs.error.startswith(right) or (outputs.error and not right):
            raise Violation(f"a visit of errors ended with {outputs.error or 'ok'}: {outputs.text}")

    def stop_in_function(
        self, name: str, points: Selection, selection: Selection, function: tuple[str, int], argument: int
    ) -> None:
        """A breakpoint in a function, on some ranks; others, perhaps, call it."""
        grid, stopping = self._chosen(name, points)
        _, ranks = self._chosen(name, selection)
        call, number = function
        define = plain(f"def {call}(x):\n    return x + rank + {number}")
        self._compare(
            self._cell(f"%%on_mesh all{self._at(name)}\n{define.text}"),
            grid,
            grid.alive,
            grid.run(Body((define,)), grid.alive),
        )
        self._ok(f"%mesh break {call} {named(stopping).text}{self._at(name)}")
        says = Body((plain(f"print('said', {call}({argument}))"),), f"{call}(0)")
        self._source = f"%%on_mesh {named(ranks).text}{self._at(name)}\n{says.text}"
        cell = self._kernel.start(self._source)
        stops = ranks & stopping
        if stops:
            self._kernel.until_stopped(*stops, desk=f"{name}.desk")
            self._answer(cell, "c")
        self._compare(cell.end(PATIENCE), grid, ranks, grid.run(says, ranks))
        self._ok(f"%mesh break --clear all{self._at(name)}")

    def _come_away(
        self, cell: Cell, grid: Grid, pids: Mapping[int, int], commands: Sequence[Command], end: str
    ) -> None:
        """Type commands, and do what ends the talk from outside."""
        for command in commands:
            focus = _focus(cell)
            cell.type(command.text)
            for rank in command.ranks or [focus]:
                grid.names[rank] |= {command.name: command.value} if command.name else {}
        focus = _focus(cell)
        if end == "stop":
            self._kernel.interrupt()
        elif end == "kill":
            os.kill(pids[focus], signal.SIGKILL)
            grid.die(focus)
            cell.until("has died in the debugger")

    def _answer(self, cell: Cell, word: str) -> None:
        """Type this whenever something is asked, until the cell ends."""
        while self._kernel.asked_or_idle(cell, _SOON):
            cell.type(word)


def _focus(cell: Cell) -> int:
    """The rank whose prompt comes."""
    prompt = cell.asked(PATIENCE)
    if (match := _PROMPT.search(prompt)) is None:
        raise Violation(f"a prompt of the debugger must name the rank, not {prompt!r}")
    return int(match[1])


def _joined(before: dict[int, Ran], after: dict[int, Ran]) -> Iterator[tuple[int, Ran]]:
    """What ranks said and came to before and after they stopped."""
    for rank, first in before.items():
        second = after.get(rank, Ran((), ("Died", ""), None, True))
        yield rank, second._replace(said=first.said + second.said)


def _broken_off(cell: Cell) -> None:
    outputs = cell.end(PATIENCE)
    if not outputs.error.startswith(("KeyboardInterrupt: ", "MeshError: ")):
        raise Violation(f"a cell that was broken off at a prompt ended with {outputs.error or 'ok'}: {outputs.text}")
