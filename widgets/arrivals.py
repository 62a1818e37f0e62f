"""The table of a running cell: who has answered, who still works and what it said last.

It is a display that is published again, at most twice a second, and becomes the result when the cell ends: so the
saved notebook has one table, and no kernel is needed to read it. A live widget would need one; and since equal ranks
are one row here, a thousand of them are no more to send than eight.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ..kernel.failures.story import without_escapes
from ..kernel.run import Progress, Run
from ..kernel.values.rows import clipped, seconds_text
from ..runtime.ranges import ranks_text
from .sheet import SheetRow, sheet_html
from .stage import CountedStage

APPEARS_AFTER: Final = 0.5
"""Seconds that a cell runs without a table: most are done by then."""

PERIOD: Final = 0.5

STILL_AFTER: Final = 3.0
"""Seconds at one line after which a working rank is shown with it."""

MOST_LINES: Final = 64
"""So many working ranks have their last lines shown; of more, what they have in common."""

_MOST_ROWS: Final = 24
_WIDE: Final = 100

_NOTHING: Final = {"text/plain": "", "text/html": ""}
"""What is left where a table stood that moved down: front-ends know no way to take a display back."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Ranks of which there is the same to say."""

    ranks: tuple[int, ...]
    state: str
    line: str = ""
    time: str = ""


class Arrivals:
    """Shows how far a run is, on the stage of its cell. Called at each look at the run, with the time."""

    def __init__(
        self,
        stage: CountedStage,
        run: Run,
        held: Callable[[], Collection[int]] = frozenset,
        queued: Callable[[], Mapping[int, str]] = dict[int, str],
    ) -> None:
        """`held` gives the ranks that are stopped in a debugger, `queued` those that wait behind another cell."""
        self._stage = stage
        self._run = run
        self._held = held
        self._queued = queued
        self._display_id = uuid.uuid4().hex
        self._shown = float("-inf")
        self._mark = -1
        """How much had been put on the stage when the table came; negative before."""

    def __call__(self, now: float) -> None:
        elapsed = now - self._run.started
        if elapsed >= APPEARS_AFTER and now - self._shown >= PERIOD and len(self._run.ranks) > 1:
            self._shown = now
            self._show(self._bundle(elapsed))

    def settle(self, result: Mapping[str, object] | None) -> None:
        """The cell has ended: show its result, if it has one, instead of the table; below what came after the table."""
        if self._mark < 0:
            if result is not None:
                self._stage.display(result)
            return
        has_moved = self._stage.num_put > self._mark
        here = _NOTHING if has_moved or result is None else result
        self._stage.display(here, display_id=self._display_id, update=True)
        if has_moved and result is not None:
            self._stage.display(result)

    def _show(self, bundle: Mapping[str, object]) -> None:
        is_there = self._mark >= 0
        self._stage.display(bundle, display_id=self._display_id, update=is_there)
        if not is_there:
            self._mark = self._stage.num_put

    def _bundle(self, elapsed: float) -> dict[str, object]:
        run = self._run
        owing = run.owing
        lines = {rank: self._last_line(rank) for rank in owing} if len(owing) <= MOST_LINES else {}
        seconds, places = run.progress.seconds.copy(), self._places(owing)
        ended = ends(run.progress)
        rows = standings(run.ranks, owing, ended, seconds, lines, elapsed, self._held(), self._queued(), places)
        title = f"{len(run.ranks) - len(owing):,} of {len(run.ranks):,} ranks done · {elapsed:.1f} s"
        return {"text/plain": title, "text/html": _html(title, rows)}

    def _places(self, owing: Sequence[int]) -> dict[int, str]:
        """Where ranks are that do not move."""
        still = {rank: self._run.sightings.still(rank) for rank in owing}
        return {rank: place for rank, (place, seconds) in still.items() if place and seconds >= STILL_AFTER}

    def _last_line(self, rank: int) -> str:
        """What a rank has said last in this run, from memory; of a line that is rewritten, how it stands."""
        said = self._run.roster.logs[rank].tail("stdout", 1, self._run.call)
        return without_escapes(said).rstrip("\r\n").rpartition("\r")[2].strip()


def ends(progress: Progress) -> dict[int, tuple[str, str]]:
    """Of the ranks with which it did not go well: what became of them, and why where there is no outcome."""
    ended: dict[int, tuple[str, str]] = dict.fromkeys(progress.failed.copy(), ("failed", ""))
    for rank, why in progress.lost.copy().items():
        what = "lost" if rank in progress.gone else "failed" if rank in progress.unclear else "not done"
        ended[rank] = what, why.partition("\n")[0]
    return ended


def standings(
    ranks: Sequence[int],
    owing: Sequence[int],
    ended: Mapping[int, tuple[str, str]],
    seconds: Mapping[int, float],
    lines: Mapping[int, str],
    elapsed: float,
    held: Collection[int] = (),
    behind: Mapping[int, str] = MappingProxyType({}),
    places: Mapping[int, str] = MappingProxyType({}),
) -> list[Standing]:
    """The ranks of a run, folded: how some `ended`, those that work or are `held`, those that are done.

    Those that are `behind` a cell have not begun. Of those that do not move, `places` are the lines of code.

    Example:
        >>> ended, said, places = {0: ("failed", "")}, {3: "step 7"}, {2: "cell 5 line 3"}
        >>> for standing in standings(range(4), [2, 3], ended, {0: 0.1, 1: 1.2}, said, 2.5, places=places):
        ...     print(standing.ranks, standing.state, standing.line or standing.time)
        (0,) failed 0.10 s
        (2,) works at cell 5 line 3 2.5 s
        (3,) works step 7
        (1,) done 1.20 s
    """
    working = set(owing)
    groups: dict[tuple[int, str, str], list[int]] = {}
    for rank in ranks:
        groups.setdefault(_key(rank, working, ended, lines, held, behind, places), []).append(rank)
    standing: list[Standing] = []
    for (order, state, line), members in sorted(groups.items(), key=lambda item: (item[0][0], item[1][0])):
        times = [seconds[rank] for rank in members if rank in seconds]
        time = f"{elapsed:.1f} s" if order == 1 else seconds_text(min(times), max(times)) if times else ""
        standing.append(Standing(tuple(members), state, line, time))
    return standing


def _key(
    rank: int,
    working: set[int],
    ended: Mapping[int, tuple[str, str]],
    lines: Mapping[int, str],
    held: Collection[int],
    behind: Mapping[int, str],
    places: Mapping[int, str],
) -> tuple[int, str, str]:
    if rank in ended:
        return 0, *ended[rank]
    if rank in working and rank in behind:
        return 1, "waits", f"behind {behind[rank]}"
    state = "stopped" if rank in held else f"works at {places[rank]}" if rank in places else "works"
    return (1, state, lines.get(rank, "")) if rank in working else (2, "done", "")


def _html(title: str, standing: Sequence[Standing]) -> str:
    rows = [_row(each) for each in standing[:_MOST_ROWS]]
    hidden = sum(len(each.ranks) for each in standing[_MOST_ROWS:])
    remarks = [f"and {hidden:,} more ranks"] if hidden else []
    return sheet_html("ranks of the running cell", title, ("ranks", "state", "last line", "time"), rows, remarks)


def _row(standing: Standing) -> SheetRow:
    is_bad = standing.state in ("failed", "lost", "not done")
    cells = [clipped(ranks_text(standing.ranks), 40), standing.state, clipped(standing.line, _WIDE), standing.time]
    return SheetRow(cells, "✗" if is_bad else "", standing.state)
