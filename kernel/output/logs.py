"""Reading the logs of ranks: lines with their run and stream, the last ones or those that come, cell by cell."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.system.crash import is_our_frame
from ...runtime.wire.log import Mark, Piece, RankLog
from ...runtime.wire.tape import Stream
from .lines import STREAM, Cutter


class LogLine(NamedTuple):
    """One line of a log, with its end; without one it is not finished."""

    run: int
    stream: Stream
    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Which lines: of these runs, of this stream, those that the pattern finds. None: all."""

    runs: Collection[int] | None = None
    stream: Stream | None = None
    pattern: re.Pattern[str] | None = None

    def has(self, line: LogLine) -> bool:
        return (
            (self.runs is None or line.run in self.runs)
            and self.stream in (None, line.stream)
            and (self.pattern is None or self.pattern.search(line.text) is not None)
        )


class LogReader:
    r"""The chosen lines of one rank's log, in the order in which they ended: those there are, then those that come.

    Of lines that were rewritten in place, bars in bars among them, it tells what a terminal would leave; of the stack
    that a process writes as it ends, no frames of ours.

    Holds one block of the log and the lines it gives.

    Example:
        >>> log = RankLog()
        >>> log.append(1, "stdout", "step 1\nstep 2\nst")
        >>> reader = LogReader(log, Choice())
        >>> [line.text for line in reader.last(1)]
        ['step 2\n']
        >>> log.append(1, "stdout", "ep 3\nend")
        >>> [line.text for line in reader.news()], [line.text for line in reader.rest()]
        (['step 3\n'], ['end'])
        >>> log.close()
    """

    def __init__(self, log: RankLog, choice: Choice) -> None:
        self._log = log
        self._choice = choice
        self._mark = Mark()
        self._cutters: dict[int, Cutter] = {}  # by run

    def last(self, count: int | None) -> list[LogLine]:
        """The last `count` finished lines (None: all) up to now. Raises `ValueError` where the log is closed."""
        num_raw, found = count, deque[LogLine](maxlen=count)
        while True:
            if num_raw is not None and self._choice.pattern is None:
                self._mark = self._log.before_last(num_raw, self._choice.runs, self._choice.stream)
            is_all = self._mark.offset == 0
            found.extend(self.news())
            if is_all or not num_raw or len(found) == count:
                return list(found)
            num_raw *= 8  # of bars in bars a terminal leaves few of many lines
            found.clear()
            self._cutters.clear()

    def news(self) -> Iterator[LogLine]:
        """The lines that have ended since they were asked for. Raises `ValueError` where the log is closed."""
        has_news = False
        while True:
            pieces, mark = self._log.since(self._mark)
            if mark.offset == self._mark.offset:
                break
            has_news = True
            self._mark = mark
            for piece in pieces:
                yield from filter(self._choice.has, self._cut(piece))
        if not has_news:
            for run, cutter in self._cutters.items():
                yield from filter(self._choice.has, _lines(run, cutter.release()))

    def rest(self) -> list[LogLine]:
        """The lines that have not ended; a bar whose newline has come has."""
        texts = [
            LogLine(run, stream, cutter.raw(stream)) for run, cutter in self._cutters.items() for stream in cutter.open
        ]
        return [line for line in texts if line.text and self._choice.has(line)]

    def _cut(self, piece: Piece) -> Iterable[LogLine]:
        run, stream, text = piece
        return _lines(run, self._cutters.setdefault(run, Cutter()).cut(stream, text))


def _lines(run: int, marked: Iterable[str]) -> Iterable[LogLine]:
    return [LogLine(run, STREAM[line[0]], f"{line[1:]}\n") for line in marked if not is_our_frame(line[1:])]


def with_rest(lines: Sequence[LogLine], rest: Iterable[LogLine]) -> list[LogLine]:
    """Finished lines, and those that have not ended where their run was: later ones have begun behind them.

    Example:
        >>> bar, line = LogLine(1, "stderr", "100%"), LogLine(2, "stdout", "done\\n")
        >>> with_rest([line], [bar]) == [bar, line]
        True
    """
    found = list(lines)
    for line in rest:
        place = next((at for at in range(len(found), 0, -1) if found[at - 1].run <= line.run), 0)
        found.insert(place, line)
    return found


@dataclass(frozen=True, slots=True)
class Section:
    """What ranks said in one cell, or, without a title, between cells."""

    title: str
    lines: Mapping[int, Sequence[LogLine]]
    """By rank."""


def sections(lines: Mapping[int, Sequence[LogLine]], titles: Mapping[int, str]) -> list[Section]:
    """The lines of ranks, cell by cell: only what was said in the same cell may be folded.

    `titles` are the names of the cells by run; other runs are calls of actors, and 0 is no call at all.

    Example:
        >>> one, two = LogLine(1, "stdout", "a\\n"), LogLine(2, "stdout", "a\\n")
        >>> [(each.title, list(each.lines)) for each in sections({0: [one, two], 1: [two]}, {1: "cell 4", 2: "cell 5"})]
        [('cell 4', [0]), ('cell 5', [0, 1])]
    """
    by_run: dict[int, dict[int, list[LogLine]]] = {}
    for rank, said in lines.items():
        for line in said:
            by_run.setdefault(line.run, {}).setdefault(rank, []).append(line)
    found: list[tuple[str, dict[int, list[LogLine]]]] = []
    for run in sorted(by_run):
        title = titles.get(run, "")
        if not found or found[-1][0] != title:
            found.append((title, {}))
        for rank, said in by_run[run].items():
            found[-1][1].setdefault(rank, []).extend(said)
    return [Section(title, said) for title, said in found]


def runs_of(cell: str, titles: Mapping[int, str]) -> frozenset[int]:
    """The runs of the cell of this number or label."""
    wanted = {cell, f"cell {cell}"} if cell.isdigit() else {cell}
    return frozenset(run for run, title in titles.items() if title in wanted)
