"""A running cell's output, live: what ranks print beside a gutter that says who, and what they show."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from ..kernel.outcome import Display, Outcome
from ..kernel.output.fold import FoldedGap, LineFolder
from ..kernel.output.spread import MOST_ALONE
from ..kernel.output.weave import FoldedLine
from ..kernel.ranks.comms import CommMessage
from ..kernel.run import Progress, Said
from ..kernel.values.rows import error_line, root_cause_text
from ..kernel.values.summary import readable
from ..runtime.wire.tape import Text
from .bars import Bars
from .displays import WINDOW, Displays, NamedPlaces
from .gutter import gutter
from .stage import Stage, StreamName

EVERYTHING = math.inf
"""A time by which nothing waits any more. (`now + WINDOW - now` is, by rounding, often less than `WINDOW`.)"""

MANY_WINDOW = 0.1
"""Seconds that a line waits for its like where there are many ranks: the more there are, the less they are in step."""

BUDGET = 48_000
"""Bytes of printed lines that one cell puts into the notebook."""

_MARGIN = 15
"""Bytes that a notebook's file needs for a line beside its text and the ranks: the rule, quotes, indentation."""


_MOST_DEATHS = 4
"""Ranks whose end is told in full while others still work; all are in the story at the end."""


class Live:
    """Folds what ranks say and puts it on a stage. Time is an argument."""

    _is_late_full = False
    _has_spread = False
    _num_deaths = 0  # that were told

    def __init__(
        self,
        stage: Stage,
        ranks: Sequence[int],
        budget: int = BUDGET,
        is_quiet: bool = False,
        tail: int | None = None,
        on_comm: Callable[[int, CommMessage], object] | None = None,
        named: NamedPlaces | None = None,
    ) -> None:
        """`named` outlives a cell: what one has shown another may update."""
        self._stage = stage
        self._ranks = tuple(ranks)
        self._budget = budget
        self._on_comm = on_comm
        self._width = max(3, len(gutter(ranks)))
        self._displays = Displays(stage, self._ranks, self._width, {} if named is None else named, self._before_display)
        self._is_quiet = is_quiet or tail is not None  # collect now, tell at the end
        self._held: list[Said] = []
        self._last_lines = LastLines(tail) if tail is not None else None

    @cached_property
    def _folder(self) -> LineFolder:
        """Made when something is printed: most cells print nothing."""
        window = WINDOW if len(self._ranks) <= MOST_ALONE else MANY_WINDOW
        return LineFolder(self._ranks, window, self._budget, self._width + _MARGIN, spreads=self._budget <= BUDGET)

    @cached_property
    def _late(self) -> LineFolder:
        """Keeps a line until its rank has finished it."""
        return LineFolder(self._ranks, 0.0, BUDGET, self._width + _MARGIN, spreads=True)

    @cached_property
    def _bars(self) -> Bars | None:
        """Progress bars, drawn while they run; None where only their last states can be told."""
        return Bars(self._stage, self._width) if self._stage.can_update else None

    def _tell_due(self, now: float) -> None:
        """Tell the lines that are due, and let bars begin where they stand among them."""
        if "_folder" not in vars(self):
            return
        if self._bars is None:
            self._tell(self._folder.poll(now))
            return
        self._bars.begin(self._folder.overtaken())
        while lines := self._folder.poll(now, stops_at_bars=True):
            self._tell(lines)
            self._bars.begin(self._folder.overtaken())

    def update(self, said: Iterable[Said], now: float) -> None:
        """Take what came, tell what is due."""
        self._take(said, now)
        if not self._is_quiet:
            self._tell_due(now)
            self._displays.tell(now)
            self._draw_bars(now)

    def catch_up(self, said: Iterable[Said], now: float) -> None:
        """Tell all that came but unfinished lines, and wait for no equal ones: the user is asked something now."""
        self.update(said, now)
        if not self._is_quiet:
            self._tell_due(EVERYTHING)
            self._displays.finish(now)

    def _take(self, said: Iterable[Said], now: float) -> None:
        for rank, item in said:
            if isinstance(item, CommMessage):
                self._take_comm(rank, item)
            elif self._is_quiet and (self._last_lines is None or isinstance(item, Display)):
                self._held.append((rank, item))
            elif isinstance(item, Display):
                self._displays.take(rank, item, now)
            else:
                self._hear(rank, item, now)
                self._feed(rank, item, now)

    def finish(self, now: float) -> None:
        """Tell all that is left."""
        self._is_quiet = False
        held, self._held = self._held, []
        self._take(held, now)
        self._displays.finish(now)
        if self._last_lines is not None:
            for rank, text in self._last_lines.take():
                self._folder.feed(rank, text.stream, text.text, now)
        self._tell_due(EVERYTHING)
        if "_folder" in vars(self):
            self._tell(self._folder.finish(now))
            if self._bars is not None:
                self._bars.finish()

    def _draw_bars(self, now: float) -> None:
        if "_folder" in vars(self) and self._bars is not None and self._bars.is_due(now):
            self._bars.draw(self._folder.unfinished(now), now)

    def tell_failures(self, progress: Progress, owing: Sequence[int]) -> None:
        """Say that ranks failed while others still work."""
        ranks = gutter(progress.failed)
        words = f"{_first_words(progress)}{_still_working(owing)}"
        self._write(f"{ranks:>{self._width}} ✗ {words}\n", "stderr")

    def note(self, ranks: Sequence[int], mark: str, line: str) -> None:
        """A line about ranks that they did not say themselves."""
        self._write(f"{gutter(ranks):>{self._width}} {mark} {line}\n", "stderr")

    def tell_deaths(self, lost: Mapping[int, str], owing: Sequence[int]) -> None:
        """Say how ranks ended while others still work: a line each with its facts, then its last words."""
        in_full = max(_MOST_DEATHS - self._num_deaths, 0)
        self._num_deaths += len(lost)
        self._write("".join(_death_lines(lost, _still_working(owing), self._width, in_full)), "stderr")

    def late(self, said: Iterable[Said], now: float, is_last: bool = False) -> float | None:
        """Tell what came after the end: whole lines, at once; of very many the first, and that there are more.

        Pictures that change all the time are kept back for a moment, but not if this `is_last`.
        """
        for rank, item in said:
            if isinstance(item, CommMessage):
                self._take_comm(rank, item)
            elif isinstance(item, Display):
                self._tell(self._late.poll(now))
                self._displays.take(rank, item, now)
            else:
                self._hear(rank, item, now)
                self._late.feed(rank, item.stream, item.text, now)
        self._tell(self._late.poll(now))
        kept_back = self._displays.late(now, is_last)
        if self._late.is_full and not self._is_late_full:
            self._is_late_full = True
            self._write(full_line(self._width))
        return kept_back

    def _hear(self, rank: int, text: Text, now: float) -> None:
        if "\n" in text.text:  # what has none is a bar, which moves where it stands, or is told with its line
            self._displays.speaks(rank, now)

    def _feed(self, rank: int, text: Text, now: float) -> None:
        if self._last_lines is not None:
            self._last_lines.add(rank, text)
        else:
            self._folder.feed(rank, text.stream, text.text, now)

    def _tell(self, lines: Sequence[FoldedLine | FoldedGap]) -> None:
        if lines and self._bars is not None:
            lines = self._bars.settle(lines)
        ranks = {rank for line in lines if isinstance(line, FoldedLine) for rank in line.ranks}
        for stream, text in blocks(lines, self._width):
            self._write(text, stream, ranks)
        if not self._has_spread and are_spread(lines):
            self._has_spread = True
            self._write(spread_line(self._width))

    def _write(self, text: str, stream: StreamName = "stdout", ranks: Collection[int] | None = None) -> None:
        self._step_aside(ranks)
        self._stage.write(text, stream)

    def _before_display(self) -> None:
        """What ranks have said before stands before."""
        self._tell_due(EVERYTHING)
        if "_late" in vars(self):
            self._tell(self._late.poll(EVERYTHING))
        self._step_aside()

    def _step_aside(self, ranks: Collection[int] | None = None) -> None:
        """What bars there are is to stand below what comes now, of these ranks or of nobody in particular."""
        if "_bars" in vars(self) and self._bars is not None:
            self._bars.step_aside(ranks)

    def _take_comm(self, rank: int, message: CommMessage) -> None:
        if self._on_comm is not None:
            self._on_comm(rank, message)


class LastLines:
    """Keeps the last lines that each rank printed, for a cell that shows no more.

    Example:
        >>> kept = LastLines(1)
        >>> kept.add(0, Text(1, "stdout", "one\\ntwo\\n"))
        >>> [(rank, text.text) for rank, text in kept.take()]
        [(0, 'two\\n')]
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._texts: dict[int, deque[Text]] = {}

    def add(self, rank: int, text: Text) -> None:
        """Take a piece of text; what is no longer among the last lines is dropped."""
        kept = self._texts.setdefault(rank, deque())
        lines = [line for line in re.split(r"(?<=\n)", text.text) if line]
        if lines and kept and not kept[-1].text.endswith("\n") and kept[-1].stream == text.stream:
            lines[0] = kept.pop().text + lines[0]
        kept.extend(Text(text.run, text.stream, _as_seen(line)) for line in lines[-self._count :])
        while len(kept) > self._count:
            kept.popleft()

    def take(self) -> list[tuple[int, Text]]:
        """All that is kept, rank by rank; nothing is kept any more."""
        texts, self._texts = self._texts, {}
        return [(rank, text) for rank, kept in texts.items() for text in kept]


def _as_seen(line: str) -> str:
    """What is to be seen of a line that was written over, as bars of progress are.

    Example:
        >>> _as_seen("1/3\\r2/3\\r3/3\\n"), _as_seen("1/3\\r"), _as_seen("text\\r\\n")
        ('3/3\\n', '1/3\\r', 'text\\r\\n')
    """
    body = line.rstrip("\r\n")
    return body.rpartition("\r")[2] + line[len(body) :]


def _still_working(owing: Sequence[int]) -> str:
    return f"; {gutter(owing)} still {'work' if len(owing) > 1 else 'works'}" if owing else ""


def _death_lines(lost: Mapping[int, str], others: str, width: int, in_full: int) -> Iterator[str]:
    for count, (rank, why) in enumerate(sorted(lost.items())):
        if count == in_full:
            more = f"{len(lost) - count:,} more rank{'s' * (len(lost) - count > 1)}"
            yield f"{'…':>{width}} ✗ and {more}: {gutter(sorted(lost)[count:])}{others if not count else ''}\n"
            return
        end, *words = why.splitlines()
        yield f"{rank:>{width}} ✗ {end}{others if not count else ''}\n"
        yield from (f"{'':>{width}} ┆ {line.strip()}\n" for line in words)


def _first_words(progress: Progress) -> str:
    """What the lowest of the ranks that failed failed with, in one line, and that others failed with something else."""
    told: dict[str, None] = {}
    for rank in sorted(progress.failed):
        failure = msgspec.msgpack.decode(progress.outcomes[rank], type=Outcome).failure
        assert failure is not None
        line = error_line(failure.type_name, failure.message)
        file, _, number = failure.place.rpartition(" line ")
        says_where = not file or line.endswith(f"({file}, line {number})")  # as syntax errors do
        told[(line if says_where else f"{line} ({failure.place})") + root_cause_text(failure.message)] = None
    first, *others = told
    return f"{first}, and {len(others)} other{'s' * (len(others) > 1)}" if others else first


def blocks(
    lines: Sequence[FoldedLine | FoldedGap],
    width: int,
    advice: str = "`%mesh logs` has all",
    who: Callable[[Sequence[int]], str] = gutter,
) -> list[tuple[StreamName, str]]:
    """Lines with their gutter, neighbours of one stream joined: a message each would be dear."""
    joined: list[tuple[StreamName, list[str]]] = []
    for line in lines:
        stream: StreamName = "stdout" if isinstance(line, FoldedGap) or line.is_bar else line.stream
        if not joined or joined[-1][0] != stream:
            joined.append((stream, []))
        joined[-1][1].append(_line(line, width, advice, who))
    return [(stream, "".join(texts)) for stream, texts in joined]


def gap_text(gap: FoldedGap) -> str:
    """What is left out.

    Example:
        >>> gap_text(FoldedGap(4594, 233_000, 2)), gap_text(FoldedGap(0, 984_000, 1))
        ('4,594 more lines of 2 ranks (228 KB)', 'the beginning of this line')
    """
    if not gap.lines:
        return "the beginning of this line"  # how long it was is not known of one that is too long to be held
    of = f" of {gap.num_ranks:,} ranks" if gap.num_ranks > 1 else ""
    return f"{gap.lines:,} more lines{of} ({readable(gap.bytes)})"


def full_line(width: int) -> str:
    """What is told once, where it never ends: all that comes from now on is in the logs alone."""
    return f"{'…':>{width}} ┆ more is not shown here: `%mesh logs` has all\n"


def are_spread(lines: Iterable[FoldedLine | FoldedGap]) -> bool:
    """Is one of them told with the numbers of many ranks?"""
    return any(isinstance(line, FoldedLine) and line.is_spread for line in lines)


def spread_line(width: int) -> str:
    """What is told once, below the first such line."""
    return f"{'…':>{width}} ┆ a…b: from the least to the most of what ranks say here; `%mesh logs` has each line\n"


def _line(line: FoldedLine | FoldedGap, width: int, advice: str, who: Callable[[Sequence[int]], str]) -> str:
    if isinstance(line, FoldedGap):
        return f"{'…':>{width}} ┆ {gap_text(line)}: {advice}\n"
    return f"{who(line.ranks):>{width}} │ {line.text}\n"
