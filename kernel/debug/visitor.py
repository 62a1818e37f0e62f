"""Who has come in by the hatch, as one who can be asked: lines from another terminal of this user."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from .asking import Withdrawn
from .desk import Desk, still_waits
from .dialog import PROMPT
from .letters import Complete, End, Letter, Line, Out, Question, Wire, Words
from .words import Quit, WordError, read

_TICK = 0.5
"""Seconds after which it is looked whether the mesh is still there, where nobody says so."""


class Visitor:
    """A terminal at the other end of a wire, attached to one mesh.

    What it sends is received on a thread of its own; who asks does so on another.
    """

    is_beside = True

    def __init__(self, wire: Wire, desk: Desk) -> None:
        self._wire = wire
        self._desk = desk
        self._lines: SimpleQueue[Line | None] = SimpleQueue()  # None: something has happened
        self._number = 0
        self.is_there = True
        self.wants_to_leave = False
        """Was the last line that it typed one that leaves the debugger?"""
        threading.Thread(target=self._receive, name="meshbook-guest-lines", daemon=True).start()

    @property
    def can_ask(self) -> bool:
        return self.is_there

    def ask(self, prompt: str, is_secret: bool = False) -> str:
        """Wait for a line. Raises `Withdrawn` where who is asked for has gone, `EOFError` where the visitor has."""
        asked = self._desk.stops.focused()
        self._number += 1
        self._wire.send(Question(self._number, prompt, is_secret))
        while True:
            line = self._lines.get()
            if line is not None and line.question == self._number:
                self.wants_to_leave = prompt.endswith(PROMPT) and _leaves(line.text)
                return line.text
            if not self.is_there:
                raise EOFError
            if asked is None or not still_waits(self._desk, asked):
                self._wire.send(Question(0))
                raise Withdrawn

    def show(self, text: str) -> None:
        if text:
            self._wire.send(Out(text if text.endswith("\n") else f"{text}\n"))

    def end(self, text: str, *, is_fault: bool = False) -> None:
        """Say goodbye."""
        self._wire.send(End(text, is_fault))

    def rest(self, is_news: Callable[[], bool]) -> None:
        """Until there is news, or the visitor has gone, for a moment at most."""
        while self.is_there and not is_news():
            try:
                self._lines.get(timeout=_TICK)
            except Empty:
                return

    def wake(self) -> None:
        """Something has happened on the mesh."""
        self._lines.put(None)

    def _receive(self) -> None:
        try:
            while (letter := self._wire.recv_from_terminal()) is not None:
                self._take(letter)
        except ValueError as error:
            self.end(str(error), is_fault=True)
        self.is_there = False
        self.wake()

    def _take(self, letter: Letter) -> None:
        if isinstance(letter, Line):
            self._lines.put(letter)
        elif isinstance(letter, Complete):
            stop = self._desk.stops.focused()
            words = self._desk.completions(stop, letter.prefix) if stop is not None else []
            self._wire.send(Words(letter.prefix, tuple(words)))


def _leaves(line: str) -> bool:
    try:
        return isinstance(read(line), Quit)
    except WordError:
        return False
