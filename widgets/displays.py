"""What the ranks of a cell show: equal displays once, each rank's in its order, pictures and tables side by side."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

import msgspec

from ..kernel.outcome import Display
from ..kernel.values.mime import unpacked
from .exhibit import can_hang
from .gutter import gutter
from .slots import Slots
from .stage import Stage
from .wall import Wall, num_fitting

WINDOW = 0.05
"""Seconds that a line or a display waits for its equals from other ranks."""

_PICTURE_WINDOW = 0.3
"""Seconds that pictures wait for one more from another rank: to draw one takes a tenth of a second or more."""

_LONGEST_WAIT = 1.0
"""Seconds that the first of them waits at most."""

_MOST_WALLS = 4
"""Places whose pictures can change: a picture is too large to keep all that there were."""

_MOST_DISPLAYS = 10_000
"""That may be updated by their names still: of more the oldest are forgotten."""

_MOST_BYTES = 64_000_000
"""Of pictures that may be: to draw one of them those beside it are needed."""

NamedPlaces = dict[tuple[int, str], Wall | str]
"""Where ranks show what has a name of its own, by rank and name: beside other pictures, or as a display of this id."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A display that may still find its equals."""

    ranks: list[int]
    display: Display
    since: float
    latest: float
    """When the last of its ranks has shown it."""
    can_hang: bool
    """Is it a picture or a table, beside which those of other ranks may stand?"""
    depth: int = 0
    """More than that of all that one of its ranks has shown before it."""
    has_later: bool = False
    """Whether one of its ranks has shown something since."""

    def comes_after(self, before: _Waiting) -> bool:
        """Let it stand behind another one; False where it cannot, as others stand behind it."""
        if self.depth <= before.depth:
            if self.has_later:
                return False
            self.depth = before.depth + 1
        before.has_later = True
        return True


class Displays:
    """Holds displays until it is their turn, and knows where each stands. Time is an argument."""

    def __init__(
        self,
        stage: Stage,
        ranks: Sequence[int],
        width: int,
        named: NamedPlaces,
        before: Callable[[], None],
    ) -> None:
        """`width` is that of the gutter; `before` is called when something new is to be put on the stage."""
        self._stage = stage
        self._ranks = frozenset(ranks)
        self._width = width
        self._before = before
        self._named = named
        self._waiting: dict[bytes, _Waiting] = {}
        self._last_of: dict[int, _Waiting] = {}  # by rank, those of them that it has shown last
        self._slots = Slots() if len(ranks) > 1 and stage.can_update else None
        self._walls: list[Wall] = []  # pictures may still come to them
        self._updated: list[Wall] = []  # by name, and to be drawn anew
        self._gutters: dict[str, str] = {}  # by place, above pictures

    def take(self, rank: int, display: Display, now: float) -> None:
        """A rank shows something, changes it, or clears what it has shown."""
        if display.is_clear:
            self._clear(rank, display, now)
        elif display.is_update:
            self._update(rank, display, now)
        else:
            self._wait_for_equals(rank, display, now)

    def speaks(self, rank: int, now: float) -> None:
        """A rank has printed something: what it has shown before stands before, and what it shows next behind."""
        self._flush_of(rank, now)
        for wall in self._walls:
            wall.pass_by([rank])

    def tell(self, now: float) -> None:
        """Show what has waited long enough."""
        if self._waiting:
            self._show_all(self._take_due(now), now)
        for wall in [*self._walls, *self._updated]:
            if wall.is_due(now):
                self._draw(wall, now)

    def flush(self, now: float) -> None:
        """Show all that waits."""
        if self._waiting:
            due, self._waiting = list(self._waiting.values()), {}
            self._last_of.clear()
            self._show_all(due, now)

    def _flush_of(self, rank: int, now: float) -> None:
        if any(rank in waiting.ranks for waiting in self._waiting.values()):
            self.flush(now)

    def finish(self, now: float) -> None:
        """Show all that waits, and all that has changed."""
        self.flush(now)
        for wall in [*self._walls, *self._updated]:
            if wall.has_changed:
                self._draw(wall, now)
        self._walls.clear()
        self._updated.clear()

    def late(self, now: float, is_last: bool) -> float | None:
        """The same after the end of the cell, but what changes all the time waits; for how many seconds, if it does."""
        self.flush(now)
        waits = [] if is_last else [wall.wait(now) for wall in [*self._walls, *self._updated] if wall.has_changed]
        if max(waits, default=0.0) <= 0.0:
            return self.finish(now)
        self.tell(now)
        return max(waits)

    def _wait_for_equals(self, rank: int, display: Display, now: float) -> None:
        # One that can be updated does not wait for equals: its rank may later make it differ.
        unique = (rank, display.number) if display.display_id else None
        key = msgspec.msgpack.encode((display.mime, unique))
        waiting = self._waiting.get(key) or self._begin(key, display, now)
        before = self._last_of.get(rank)
        if rank in waiting.ranks or (before is not None and not waiting.comes_after(before)):
            self.flush(now)
            waiting = self._begin(key, display, now)
        waiting.ranks.append(rank)
        waiting.latest = now
        self._last_of[rank] = waiting

    def _begin(self, key: bytes, display: Display, now: float) -> _Waiting:
        hangs = self._slots is not None and can_hang(display.mime, display.metadata)
        self._waiting[key] = waiting = _Waiting([], display, now, now, hangs)
        return waiting

    def _take_due(self, now: float) -> list[_Waiting]:
        """Those whose time has come, with what their ranks have shown before them."""
        due: dict[bytes, _Waiting] = {}
        ranks = set[int]()
        is_due = self._judge(now)
        for key, waiting in sorted(self._waiting.items(), key=lambda item: -item[1].depth):
            if is_due(waiting) or not ranks.isdisjoint(waiting.ranks):
                due[key] = waiting
                ranks.update(waiting.ranks)
        for key in due:
            del self._waiting[key]
        if due:
            told = {id(waiting) for waiting in due.values()}
            self._last_of = {rank: last for rank, last in self._last_of.items() if id(last) not in told}
        return list(due.values())

    def _judge(self, now: float) -> Callable[[_Waiting], bool]:
        """Who waits no longer. Pictures go together: when one of them is due, and when each rank has shown one."""
        hanging = {waiting for waiting in self._waiting.values() if waiting.can_hang and not self._home_of(waiting)}
        have_all = self._ranks.issubset(rank for waiting in hanging for rank in waiting.ranks)
        first = min((waiting.since for waiting in hanging), default=now)
        latest = max((waiting.latest for waiting in hanging), default=now)
        are_due = have_all or now - latest >= _PICTURE_WINDOW or now - first >= _LONGEST_WAIT

        def is_due(waiting: _Waiting) -> bool:
            if waiting in hanging:
                return are_due
            return len(waiting.ranks) == len(self._ranks) or now - waiting.since >= WINDOW

        return is_due

    def _home_of(self, waiting: _Waiting) -> Wall | None:
        """Where this picture hangs, if that is known already."""
        return next((wall for wall in self._walls if wall.takes(waiting.ranks)), None)

    def _show_all(self, due: list[_Waiting], now: float) -> None:
        due.sort(key=lambda waiting: (waiting.depth, min(waiting.ranks)))
        for _, level in groupby(due, key=lambda waiting: waiting.depth):
            self._show_level(list(level), now)

    def _show_level(self, level: list[_Waiting], now: float) -> None:
        """Displays of different ranks, each of which shows one of them."""
        new = list[_Waiting]()
        for waiting in level:
            if not waiting.can_hang:
                self._show(waiting)
            elif home := self._home_of(waiting):
                self._join(home, waiting)
            else:
                new.append(waiting)
        while new:
            count = num_fitting(waiting.display for waiting in new)
            self._open_wall(new[:count], now)
            new = new[count:]

    def _open_wall(self, pictures: Sequence[_Waiting], now: float) -> None:
        """A new place for pictures, or one that just these ranks have cleared."""
        assert self._slots is not None
        ranks = [rank for waiting in pictures for rank in waiting.ranks]
        place, is_again = self._slots.place(ranks)
        self._empty(ranks)
        self._walls.append(wall := Wall(place))
        if is_again:
            wall.pass_by(self._ranks)  # others may have said something below
        for waiting in pictures:
            self._hang(wall, waiting)
        self._draw(wall, now, is_again)
        for older in self._walls[:-_MOST_WALLS]:
            if older.has_changed:
                self._draw(older, now)
        del self._walls[:-_MOST_WALLS]
        self._forget_oldest()

    def _leave(self, place: str) -> None:
        """Something else stands there from now on."""
        self._walls = [wall for wall in self._walls if wall.place != place]
        self._updated = [wall for wall in self._updated if wall.place != place]
        for key in [key for key, home in self._named.items() if isinstance(home, Wall) and home.place == place]:
            del self._named[key]

    def _join(self, wall: Wall, waiting: _Waiting) -> None:
        assert self._slots is not None
        self._hang(wall, waiting)
        self._slots.join(wall.place, waiting.ranks)
        self._empty(waiting.ranks)

    def _hang(self, wall: Wall, waiting: _Waiting) -> None:
        for above in takewhile(lambda above: above is not wall, self._walls):
            above.pass_by(waiting.ranks)
        wall.put(waiting.ranks, waiting.display)
        if waiting.display.display_id:
            self._remember(waiting.ranks[0], waiting.display.display_id, wall)

    def _draw(self, wall: Wall, now: float, is_again: bool = True) -> None:
        if not is_again:
            self._before()
        if not is_again or wall.place in self._gutters:  # else a cell before has shown it, and has said whose it is
            self._say_above(wall.place, self._gutter(wall.ranks))
        data, metadata = wall.drawn(now)
        self._stage.display(data, metadata, wall.place, update=is_again)

    def _say_above(self, place: str, who: str) -> None:
        """Whose pictures these are stands in a display of its own: more may come."""
        if self._gutters.get(place) != who:
            is_new = place not in self._gutters
            self._stage.display({"text/plain": who}, {}, f"{place}-ranks", update=not is_new)
            self._gutters[place] = who

    def _gutter(self, ranks: Collection[int]) -> str:
        return f"{gutter(ranks):>{self._width}} │"

    def _show(self, waiting: _Waiting) -> None:
        display = waiting.display
        for wall in self._walls:
            wall.pass_by(waiting.ranks)
        place, is_again = self._slots.place(waiting.ranks) if self._slots else (None, False)
        if is_again and place is not None:
            self._leave(place)
            if place in self._gutters:
                self._say_above(place, self._gutter(waiting.ranks))
        display_id = place
        if display.display_id:
            former = self._named.get((waiting.ranks[0], display.display_id))
            display_id = former if isinstance(former, str) else place or uuid.uuid4().hex
            self._remember(waiting.ranks[0], display.display_id, display_id)
        self._empty(waiting.ranks)
        if not is_again:
            self._before()
            if len(self._ranks) > 1:
                self._stage.write(f"{self._gutter(waiting.ranks)}\n")
        self._stage.display(unpacked(display.mime), display.metadata, display_id, update=is_again)

    def _remember(self, rank: int, name: str, home: Wall | str) -> None:
        self._named[rank, name] = home
        if len(self._named) > _MOST_DISPLAYS:
            del self._named[next(iter(self._named))]

    def _forget_oldest(self) -> None:
        """Of pictures that can be updated by name, so that no more memory is held for them than may be."""
        sizes: dict[Wall, int] = {}
        for key, home in reversed(list(self._named.items())):
            if isinstance(home, Wall):
                sizes[home] = home.size
                if sum(sizes.values()) > _MOST_BYTES:
                    del self._named[key]

    def _empty(self, ranks: Sequence[int]) -> None:
        for place in self._slots.to_empty(ranks) if self._slots else ():
            self._leave(place)
            if place in self._gutters:
                self._say_above(place, "")
            self._stage.display({"text/plain": ""}, {}, place, update=True)

    def _update(self, rank: int, display: Display, now: float) -> None:
        self._flush_of(rank, now)
        home = self._named.get((rank, display.display_id or ""))
        if isinstance(home, Wall):
            home.put([rank], display)
            if home not in self._updated:
                self._updated.append(home)
        elif home is not None:
            self._stage.display(unpacked(display.mime), display.metadata, home, update=True)

    def _clear(self, rank: int, display: Display, now: float) -> None:
        self._flush_of(rank, now)
        waits = bool(display.metadata.get("wait"))
        if len(self._ranks) == 1:
            self._before()
            self._stage.clear(waits)
        elif self._slots is not None:  # one rank cannot wipe what the others said
            self._slots.clear(rank)
            for wall in self._walls:
                wall.clear(rank)
            if not waits:
                self._empty([rank])
