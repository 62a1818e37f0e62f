"""The last rows of a stream that moves its cursor up, as nested progress bars do. Pure.

tqdm draws an inner bar with a newline, the bar, and the escape for one row up. So a row is finished only when the
cursor is further below it than it has ever gone back up.
"""

from __future__ import annotations

import re

UP = "\x1b[A"
"""One row up, as tqdm writes it: what tells a stream of this kind."""

_PIECE = re.compile(r"(\n|\r|\x1b\[\d*A)")
_PARTIAL = re.compile(r"\x1b(?:\[\d*)?\Z")


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

    def __init__(self, first: str, now: float) -> None:
        self.since = now
        self.rows = [first]
        self._at = 0
        self._reach = 1
        self._has_returned = False
        self._newlines = 0  # since the cursor last went up
        self._carried = ""

    @property
    def is_over(self) -> bool:
        """Has the stream gone on as an ordinary one?"""
        return self._newlines > self._reach + 1

    @property
    def is_left(self) -> bool:
        """Does the cursor stand on a blank row below all that is drawn?"""
        return any(row.strip() for row in self.rows[: self._at]) and not any(
            row.strip() for row in self.rows[self._at :]
        )

    def write(self, text: str) -> list[str]:
        """Take text; the rows that are finished, without those that are blank (an erased bar)."""
        text = self._carried + text
        partial = _PARTIAL.search(text)
        self._carried = partial[0] if partial else ""
        for piece in _PIECE.split(text[: partial.start()] if partial else text):
            self._take(piece)
        count = max(self._at - (0 if self.is_over else self._reach), 0)
        done, self.rows, self._at = self.rows[:count], self.rows[count:], self._at - count
        return [row for row in done if row.strip()]

    def _take(self, piece: str) -> None:
        if piece == "\n":
            self._newlines += 1
            self._at += 1
            self._has_returned = False
            if self._at == len(self.rows):
                self.rows.append("")
        elif piece == "\r":
            self._has_returned = True
        elif piece.startswith("\x1b["):
            self._go_up(int(piece[2:-1] or 1))
        elif piece:
            self.rows[self._at] = piece if self._has_returned else self.rows[self._at] + piece
            self._has_returned = False

    def _go_up(self, count: int) -> None:
        self._newlines = 0
        self._has_returned = True  # nobody goes up to write behind what stands there
        missing = max(count - self._at, 0)  # told already: they stand above
        self.rows[:0] = [""] * missing
        self._at += missing - count
        self._reach = max(self._reach, count)

    def text(self) -> str:
        """The rows that are not blank."""
        return "\n".join(row.rstrip() for row in self.rows if row.strip())

    def raw(self) -> str:
        return self.text()

    def take(self) -> str:
        """The same; nothing is kept."""
        text, self.rows, self._at = self.text(), [""], 0
        return text
