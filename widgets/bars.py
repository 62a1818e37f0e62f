"""Progress bars of ranks: lines that are rewritten in place, one updating line a rank, equal ones folded.

Lines that no newline has ended yet stand together in one display, a *block*, that is published again when they change.
A line that ends stays in its block in its last state. What else is written stands below, and bars that begin after
that are in a block of their own: so the order of the page is the order of things.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ..kernel.output.fold import FoldedGap
from ..kernel.output.in_step import in_step
from ..kernel.output.lines import Stream
from ..kernel.output.stamps import unstamped
from ..kernel.output.weave import FoldedLine
from .gutter import gutter
from .stage import Stage

PERIOD = 0.2
"""Seconds between two publications of a block that changes."""

MOST_ROWS = 40
"""Lines of one block that are shown: the last ones."""

_LONGEST = 1_000
"""Characters of a line that may be a bar, or one of those drawn together; a longer one is told when it ends."""

Key = tuple[int, Stream]


def _may_be_bar(text: str) -> bool:
    return bool(text.strip()) and all(len(line) <= _LONGEST for line in text.split("\n"))


@dataclass(slots=True, eq=False)
class _Row:
    """One line of a rank in a block."""

    key: Key
    turn: int
    """How many lines the rank has above it in the block."""
    text: str
    has_ended: bool = False


@dataclass(slots=True, eq=False)
class _Block:
    """One display of lines."""

    display_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    rows: list[_Row] = field(default_factory=list[_Row])
    turns: dict[Key, int] = field(default_factory=dict[Key, int])
    shown: str | None = None

    @property
    def moves(self) -> bool:
        return not all(row.has_ended for row in self.rows)

    def begin(self, key: Key, text: str) -> None:
        self.turns[key] = turn = self.turns.get(key, -1) + 1
        self.rows.append(_Row(key, turn, text))

    def text(self, width: int) -> str:
        """The rows, equal ones of one turn as one; while they move, also those in step, as the last of them is."""
        below = f"\n{'':>{width}} │ "  # of bars in bars
        lines = [
            f"{gutter([row.key[0] for row in rows]):>{width}} │ {rows[0].text.replace(chr(10), below)}"
            for rows in self._groups()
        ]
        num_more = len(lines) - MOST_ROWS
        above = [f"{'…':>{width}} ┆ {num_more:,} more lines: `%mesh logs` has all"] if num_more > 0 else []
        return "\n".join(above + lines[-MOST_ROWS:])

    def _groups(self) -> Iterator[list[_Row]]:
        rows = sorted(self.rows, key=lambda row: (row.turn, row.key))
        for _, each in groupby(rows, key=lambda row: row.turn):
            of_turn = list(each)
            ended: dict[str, list[_Row]] = {}
            for row in of_turn:
                if row.has_ended:
                    ended.setdefault(unstamped(row.text), []).append(row)
            moving = [row for row in of_turn if not row.has_ended]
            groups = [*ended.values(), *([moving[i] for i in group] for group in in_step([row.text for row in moving]))]
            yield from sorted(groups, key=lambda group: min(row.key for row in group))


class Bars:
    """The blocks of one cell: give it the unfinished lines (`draw`) and, before that, those that end (`settle`)."""

    def __init__(self, stage: Stage, width: int) -> None:
        self._stage = stage
        self._width = width
        self._homes: dict[Key, tuple[_Block, _Row]] = {}  # of lines that have not ended
        self._last: _Block | None = None
        self._former: _Block | None = None  # below which only some ranks have said something
        self._spoken: set[int] = set()
        self._changed: dict[str, _Block] = {}
        self._drawn = float("-inf")

    def is_due(self, now: float) -> bool:
        return now - self._drawn >= PERIOD

    def draw(self, unfinished: Mapping[Key, str], now: float) -> None:
        """Show the state of these lines: what stands here and is not among them stays as it is."""
        self._drawn = now
        self.begin(unfinished)
        self._publish()

    def begin(self, unfinished: Mapping[Key, str]) -> None:
        """The same, without showing it before it is due, or before something else is."""
        for key, text in unfinished.items():
            if key in self._homes:
                self._change(key, text)
            elif _may_be_bar(text):
                self._begin(key, text)

    def settle(self, lines: Sequence[FoldedLine | FoldedGap]) -> list[FoldedLine | FoldedGap]:
        """Take those that are the ends of lines shown here; the others are returned."""
        if not self._homes:
            return list(lines)
        return [rest for line in lines if (rest := self._settled(line)) is not None]

    def step_aside(self, ranks: Collection[int] | None = None) -> None:
        """These ranks, or somebody, write something below: lines of theirs that begin later stand below that."""
        if self._last is not None:
            self._publish()
            self._former, self._last = self._last, None
            self._spoken.clear()
        if ranks is None:
            self._former = None
        else:
            self._spoken.update(ranks)

    def finish(self) -> None:
        """No line ends here any more: of those that went over the budget the last state would mislead."""
        for key in list(self._homes):
            self._drop(key)
        self._publish()

    def _begin(self, key: Key, text: str) -> None:
        block = self._home_of(key[0])
        block.begin(key, text)
        self._homes[key] = (block, block.rows[-1])
        self._changed[block.display_id] = block

    def _home_of(self, rank: int) -> _Block:
        former = self._former
        if self._last is None and former is not None and former.moves and rank not in self._spoken:
            return former  # it is later than the others, with which it is to be one
        self._last = self._last or _Block()
        return self._last

    def _change(self, key: Key, text: str) -> None:
        block, row = self._homes[key]
        if not _may_be_bar(text):
            self._drop(key)  # erased, or no bar after all
        elif row.text != text:
            row.text = text
            self._changed[block.display_id] = block

    def _drop(self, key: Key) -> None:
        block, row = self._homes.pop(key)
        block.rows.remove(row)
        self._changed[block.display_id] = block

    def _settled(self, line: FoldedLine | FoldedGap) -> FoldedLine | FoldedGap | None:
        if isinstance(line, FoldedGap):
            return line
        others = [rank for rank in line.ranks if not self._end(rank, line)]
        return line._replace(ranks=tuple(others)) if others else None

    def _end(self, rank: int, line: FoldedLine) -> bool:
        """Let a line end here, if it stands here."""
        key: Key = (rank, line.stream)
        if key not in self._homes:
            return False
        if not _may_be_bar(line.text):
            self._drop(key)
            return not line.text.strip()
        self._change(key, line.text)
        block, row = self._homes.pop(key)
        row.has_ended = True
        self._changed[block.display_id] = block  # it may have been told with others
        return True

    def _publish(self) -> None:
        for block in self._changed.values():
            text = block.text(self._width)
            if text != block.shown:
                update, block.shown = block.shown is not None, text
                self._stage.display({"text/plain": text}, {}, block.display_id, update=update)
        self._changed.clear()
