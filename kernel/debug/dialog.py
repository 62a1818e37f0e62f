"""One conversation of a thread of a rank with the notebook: what is written is kept until a line is wanted."""

from __future__ import annotations

import io
from collections.abc import Callable
from queue import SimpleQueue

from ...runtime.ranks import raising
from .events import LEAVE, Kind, Stop, Went

PROMPT = "ipdb> "

MAX_OUT = 1 << 18
"""Characters of one answer of the debugger; of more, the end is left out and said to be."""


class Dialog(io.TextIOBase):
    """The debugger's stdin and stdout.

    A line is wanted with one message, which carries all that was written since the last (one message a line, not one a
    write). It comes through a `SimpleQueue`: the only lock that may be taken in a signal handler.
    """

    def __init__(self, talk: int, kind: Kind, tell: Callable[[Stop | Went], None], rank: Callable[[], int]) -> None:
        self.talk = talk
        self.kind: Kind = kind
        self.thread = ""
        self.place = ""
        self.is_talking = False
        """Is it open: does what its thread asks belong to it?"""
        self.is_asking = False
        self.is_over: Callable[[], bool] = lambda: False
        """Has the user left before this was asked?"""
        self.before_asking: Callable[[], object] = lambda: None
        """What has been printed is to stand before the question: called before it is sent."""
        self._rank = rank
        self._tell = tell
        self._turn = 0
        self._lines: SimpleQueue[tuple[int, str]] = SimpleQueue()
        self._parts: list[str] = []
        self._size = 0
        self.has_left = False
        """Was the conversation ended from outside, or by an interrupt?"""

    def put(self, turn: int, line: str) -> None:
        """A line has come, on any thread."""
        self._lines.put((turn, line))

    def leave(self) -> int:
        """Let what is asked now be answered by nobody; the number of that question."""
        turn = self._turn
        self.put(turn, LEAVE)
        return turn

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if self._size <= MAX_OUT:
            room = MAX_OUT - self._size
            self._parts.append(text if len(text) <= room else f"{text[:room]}\n… the rest is not shown\n")
        self._size += len(text)
        return len(text)

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What `cmd.Cmd` calls after it has written its prompt."""
        return self.ask(self._take_prompt())

    def ask(self, prompt: str, kind: Kind | None = None) -> str:
        """Ask for a line, which comes with its newline; empty when the conversation was ended from outside.

        Raises `KeyboardInterrupt` when the rank is interrupted meanwhile.
        """
        self._turn += 1
        # First this, then a look: who leaves does it the other way round, and one of both sees the other.
        self.is_asking = True
        try:
            if self.is_over():
                self.has_left = True
                return ""
            self.before_asking()
            self._tell(
                Stop(
                    self._rank(),
                    self.talk,
                    self._turn,
                    kind or self.kind,
                    prompt,
                    self.taken(),
                    self.place,
                    self.thread,
                )
            )
            line = self._next_line()
        finally:
            self.is_asking = False
        if line == LEAVE:
            self.has_left = True
            raising.meet()  # an actor that was interrupted is let go to hear of it
            return ""
        return line + "\n"

    def _next_line(self) -> str:
        while True:
            turn, line = self._lines.get()
            if turn == self._turn:  # else it was meant for a question that was answered meanwhile
                return line

    def went(self, *, steps: bool = False) -> None:
        """Tell that the thread goes on, or only `steps`."""
        self._tell(Went(self._rank(), self.talk, self.taken(), steps))

    def taken(self) -> str:
        """What was written; nothing is kept any more."""
        text = "".join(self._parts)
        self._parts.clear()
        self._size = 0
        return text

    def _take_prompt(self) -> str:
        """`cmd.Cmd` writes the prompt as the last thing; after a flood it was not kept."""
        return self._parts.pop() if self._parts and not self._parts[-1].endswith("\n") else PROMPT
