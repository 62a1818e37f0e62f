"""The tape of a rank's output: bytes of its pipe in, events with their run and stream out.

A rank writes text and, between the text, *marks* that say what the text belongs to:

    ESC ] mb ; TOKEN ; KIND ; VALUE BEL

`TOKEN` is drawn by the controller for each rank, so a program that prints such a sequence prints text.
The kinds:

- `run`, value R: from here on the pipe belongs to run R (0: to none)
- `err`, `out`: what follows is stderr text, stdout text
- `show`, value D: the display message number D has its place here
- `end`, value R: the main thread's output of run R is all in this pipe
- `aside`, value R ... `back`: a piece from elsewhere (a thread that run R left behind, a forked child);
  after it the pipe is where it was

The form is that of a terminal's OSC sequence, which terminals that do not know it swallow.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

Stream = Literal["stdout", "stderr"]
Kind = Literal["run", "err", "out", "show", "end", "aside", "back"]

_REST = re.compile(rb"(run|err|out|show|end|aside|back);(\d{0,18})\a")
_REST_BEGUN = re.compile(rb"[a-z]{0,5}(;\d{0,18})?")
_ESC = 0x1B


class Text(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A piece of output, in order; never empty."""

    run: int
    stream: Stream
    text: str


class Shown(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The place of display message `number` in the text."""

    run: int
    number: int


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """All that the main thread wrote in `run` has come through this pipe."""

    run: int


Event = Text | Shown | Ended


def mark(token: str, kind: Kind, value: int | None = None) -> bytes:
    r"""The bytes of one mark.

    >>> mark("0123456789abcdef", "run", 7)
    b'\x1b]mb;0123456789abcdef;run;7\x07'
    """
    return f"\x1b]mb;{token};{kind};{'' if value is None else value}\a".encode()


class _Place(NamedTuple):
    """Where on the tape we are: whose text comes now."""

    run: int
    stream: Stream
    is_aside: bool = False


class Tape:
    r"""Reads the pipe of one rank, in pieces cut anywhere: inside a mark, inside a code point.

    `source` is the pipe: "out" carries Python's stdout and stderr, "err" what was written to fd 2 directly.

    >>> tape = Tape("feed", "out")
    >>> tape.feed(b"\x1b]mb;feed;run;3\x07loss ")
    [Text(run=3, stream='stdout', text='loss ')]
    >>> tape.feed(b"0.5\x1b]mb;fe"), tape.feed(b"ed;end;3\x07")
    ([Text(run=3, stream='stdout', text='0.5')], [Ended(run=3)])
    """

    def __init__(self, token: str, source: Literal["out", "err"]) -> None:
        self._prefix = b"\x1b]mb;%b;" % token.encode()
        self._home: Stream = "stdout" if source == "out" else "stderr"
        self._main = self._place = _Place(0, self._home)
        self._held = b""  # at most the beginning of one mark
        self._tails: dict[_Place, bytes] = {}  # at most the beginning of one code point each
        self.ended = 0
        """The run whose end came last."""

    def feed(self, data: bytes | memoryview) -> list[Event]:
        """The events that `data` completes. Bytes that are not UTF-8 become U+FFFD."""
        data = self._held + data
        prefix = self._prefix
        events: list[Event] = []
        start = look = 0
        while (at := data.find(prefix, look)) >= 0:
            found = _REST.match(data, at + len(prefix))
            if found is not None:
                if start < at:
                    self._text(data[start:at], events)
                self._mark(found[1], int(found[2] or 0), events)
                start = look = found.end()
            elif _REST_BEGUN.fullmatch(data, at + len(prefix)):
                break
            else:
                look = at + 1
        else:
            at = self._prefix_begun(data, start)
        self._text(data[start:at], events)
        self._held = data[at:]
        return events

    def begin(self, asked: Sequence[int]) -> None:
        """The rank has been asked for these runs: what comes without a mark from here on belongs to the first of them.

        Not where the tape is at one of them already: it may be ahead of the answers.
        """
        if asked and self._main.run not in asked:
            self._main = _Place(asked[0], self._home)
            if not self._place.is_aside:
                self._place = self._main

    def close(self) -> list[Event]:
        """What was held back for a continuation, once the pipe has reached its end."""
        events: list[Event] = []
        self._text(self._held, events)
        self._held = b""
        self._settle(events, [*self._tails])
        return events

    def _prefix_begun(self, data: bytes, start: int) -> int:
        """Where the mark begins in whose prefix `data` breaks off; the end of `data` where there is none."""
        at = data.rfind(_ESC, max(start, len(data) - len(self._prefix) + 1))
        return at if at >= 0 and self._prefix.startswith(data[at:]) else len(data)

    def _text(self, data: bytes, events: list[Event]) -> None:
        place = self._place
        if self._tails:
            data = self._tails.pop(place, b"") + data
        text, used = codecs.utf_8_decode(data, "replace", False)
        if used < len(data):
            self._tails[place] = data[used:]
        if text:
            events.append(Text(place.run, place.stream, text))

    def _mark(self, kind: bytes, value: int, events: list[Event]) -> None:
        place = self._place
        match kind:
            case b"run":
                self._settle(events, [tail for tail in self._tails if not tail.is_aside])
                self._main = self._place = _Place(value, self._home)
            case b"err" | b"out":
                self._move("stderr" if kind == b"err" else "stdout")
            case b"show":
                events.append(Shown(place.run, value))
            case b"end":
                self._settle(events, [tail for tail in self._tails if not tail.is_aside])
                events.append(Ended(value))
                self.ended = value
            case b"aside":
                self._place = _Place(value, self._home, is_aside=True)
            case _:
                self._place = self._main

    def _move(self, stream: Stream) -> None:
        self._place = _Place(self._place.run, stream, self._place.is_aside)
        if not self._place.is_aside:
            self._main = self._place

    def _settle(self, events: list[Event], places: list[_Place]) -> None:
        """Gives up waiting for the rest of code points that were begun at `places`."""
        for place in places:
            text = self._tails.pop(place).decode("utf-8", "replace")
            events.append(Text(place.run, place.stream, text))
