"""The last rows of a stream that moves its cursor up, as nested progress bars do. Pure.

tqdm draws an inner bar with a newline, the bar, and the escapes for so many rows up. So a row is finished only when the
cursor is further below it than it has ever gone back up. rich hides the cursor while it draws, and goes up to its first
row before it draws anew: then all from that row on may change.
"""

from __future__ import annotations

import re

_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_BEGIN = re.compile(r"\x1b\[(?:\d*A|\?25l)")
_PIECE = re.compile(r"(\n|\r|\x1b\[\d*[AK]|\x1b\[\?25[lh])")
_PARTIAL = re.compile(r"\x1b(?:\[\??\d*)?\Z")
_TRACELESS = re.compile(r"\x1b(?:\[(?:\d*K|\?25[lh])|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
"""Codes that erase or hide the cursor, and those of the operating system: titles, and the links of rich's logging."""

_LONGEST_CODE = 8

_MOST = 100
"""Rows that may still change, at most: who hides the cursor may never go up."""


def needs_screen(text: str) -> bool:
    """Does text go back to rows above, or say that it will?"""
    return "\x1b[" in text and _BEGIN.search(text) is not None


def parted(text: str) -> tuple[str, str]:
    """Text, and what at its end may be the beginning of a code.

    Example:
        >>> parted("50%\\x1b[2")
        ('50%', '\\x1b[2')
    """
    found = _PARTIAL.search(text, max(0, len(text) - _LONGEST_CODE)) if "\x1b" in text[-_LONGEST_CODE:] else None
    return (text[: found.start()], found[0]) if found else (text, "")


def erased(line: str) -> str:
    """What a terminal leaves of a line in which a whole line is erased; codes that leave no trace are taken out.

    Example:
        >>> erased("old\\x1b[2Knew"), erased("\\x1b[Kdone\\x1b[K\\x1b[?25h")
        ('new', 'done')
        >>> erased("see \\x1b]8;id=7;file:///train.py\\x1b\\\\train.py\\x1b]8;;\\x1b\\\\:3")
        'see train.py:3'
    """
    return _TRACELESS.sub("", line.rpartition("\x1b[2K")[2]) if "\x1b" in line else line


class Screen:
    """Rows that may still change. `write` gives those that cannot any more.

    Example:
        >>> screen = Screen("outer 0%", now=0.0)
        >>> screen.write("\\n\\rinner 10%\\x1b[A"), screen.write("\\n\\rinner 20%\\x1b[A"), screen.text()
        ([], [], 'outer 0%\\ninner 20%')
        >>> screen.write("\\router 100%\\n\\r         \\r"), screen.write("done\\n"), screen.write("next\\n")
        ([], ['outer 100%'], ['done', 'next'])
    """

    is_rewritten = True
    is_empty = False

    def __init__(self, first: str, now: float) -> None:
        self.since = now
        self.rows = [first]
        self._at = 0
        self._reach = 1
        self._climbed = 0  # rows, in one go
        self._has_returned = False
        self._newlines = 0  # since the cursor last went up
        self._top: int | None = None  # while the cursor is hidden, the row from which all is drawn anew
        self._was_shown = False

    @property
    def is_over(self) -> bool:
        """Has the stream gone on as an ordinary one?"""
        return self._was_shown or (self._top is None and self._newlines > self._reach + 1)

    @property
    def is_left(self) -> bool:
        """Does the cursor stand on a blank row below all that is drawn?"""
        return any(row.strip() for row in self.rows[: self._at]) and not any(
            row.strip() for row in self.rows[self._at :]
        )

    def write(self, text: str) -> list[str]:
        """Take text, no code of which is cut in two; the rows that are finished, without blank ones (an erased bar)."""
        for piece in _PIECE.split(text):
            self._take(piece)
        count = self._num_done()
        done, self.rows, self._at = self.rows[:count], self.rows[count:], self._at - count
        if self._top is not None:
            self._top = max(self._top - count, 0)
        return [row for row in done if row.strip()]

    def _num_done(self) -> int:
        """How many rows cannot change any more."""
        if self.is_over:
            return self._at
        top = self._at - self._reach if self._top is None else self._top
        return max(top, self._at - _MOST, 0)

    def _take(self, piece: str) -> None:
        if piece.startswith("\x1b[") and _PIECE.fullmatch(piece):
            self._obey(piece)
        elif piece:
            if self._climbed and self._top is not None:
                self._top = self._at  # it has come to where it draws from, and not only part of the way
            self._climbed = 0
            self._put(piece)

    def _put(self, piece: str) -> None:
        if piece == "\n":
            self._newlines += 1
            self._at += 1
            self._has_returned = False
            if self._at == len(self.rows):
                self.rows.append("")
        elif piece == "\r":
            self._has_returned = True
        else:
            self.rows[self._at] = piece if self._has_returned else self.rows[self._at] + piece
            self._has_returned = False

    def _obey(self, code: str) -> None:
        if code == _HIDE:
            self._top, self._was_shown = self._at, False
        elif code == _SHOW:
            self._top, self._was_shown = None, self._top is not None
        elif code.endswith("A"):
            self._go_up(int(code[2:-1] or 1))
        elif code == "\x1b[2K" or self._has_returned:
            self.rows[self._at] = ""

    def _go_up(self, count: int) -> None:
        self._newlines = 0
        self._has_returned = True  # nobody goes up to write behind what stands there
        self._climbed += count
        missing = max(count - self._at, 0)  # told already: they stand above
        self.rows[:0] = [""] * missing
        self._at += missing - count
        self._reach = max(self._reach, self._climbed)

    def text(self) -> str:
        """The rows that are not blank."""
        return "\n".join(row.rstrip() for row in self.rows if row.strip())

    def raw(self) -> str:
        return self.text()

    def take(self) -> str:
        """The same; nothing is kept."""
        text, self.rows, self._at = self.text(), [""], 0
        return text
