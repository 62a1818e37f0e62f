"""What must be true of a mesh after each operation: a model without processes, sockets or clocks.

What an operation leaves open (whether an interrupt came before an assignment or after it) is a set of possible values.
Nothing that is open decides which operation comes next: see `choice`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .operations import Ranks, Replay

UNSET = None
"""The value of a variable that is not there."""

Values = frozenset[int | None]


@dataclass(slots=True)
class Troupe:
    """Actors that count: what each rank's has come to."""

    start: int
    totals: dict[int, int]

    @property
    def ranks(self) -> Ranks:
        return tuple(self.totals)


@dataclass(slots=True)
class Model:
    """A mesh as it should be.

    Example:
        >>> model = Model({"dp": 2})
        >>> model.assign("v = 1", (0, 1), 1)
        >>> model.die([1])
        []
        >>> sorted(model.alive), model.revive([1], "none"), model.v[1]
        ([0], None, frozenset({None}))
    """

    axes: Mapping[str, int]
    alive: set[int] = field(init=False)
    v: dict[int, Values] = field(init=False)
    """What the variable `v` of each rank may be."""
    p: dict[int, tuple[int, int] | None] = field(init=False)
    """What was pushed to each rank: a value and how often it stands there."""
    background: dict[int, Ranks] = field(default_factory=dict)
    """Cells that go on, by number."""
    troupes: dict[str, Troupe] = field(default_factory=dict)
    _cells: dict[tuple[str, Ranks], int] = field(default_factory=dict)  # what assigned, the oldest first
    _pushed: list[tuple[Ranks, tuple[int, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        everyone = self.everyone
        self.alive = set(everyone)
        self.v = dict.fromkeys(everyone, frozenset({UNSET}))
        self.p = dict.fromkeys(everyone)

    @property
    def coords(self) -> dict[int, dict[str, int]]:
        """Where each rank stands."""
        points = itertools.product(*(range(size) for size in self.axes.values()))
        return {rank: dict(zip(self.axes, point, strict=True)) for rank, point in enumerate(points)}

    @property
    def everyone(self) -> Ranks:
        return tuple(self.coords)

    @property
    def dead(self) -> Ranks:
        return tuple(rank for rank in self.everyone if rank not in self.alive)

    @property
    def busy(self) -> set[int]:
        return {rank for ranks in self.background.values() for rank in ranks}

    @property
    def free(self) -> Ranks:
        """The ranks that can be given something to do."""
        return tuple(rank for rank in self.everyone if rank in self.alive and rank not in self.busy)

    def at(self, where: Iterable[tuple[str, int]]) -> Ranks:
        """The ranks at these indices of these axes."""
        wanted = dict(where).items()
        return tuple(rank for rank, coord in self.coords.items() if wanted <= coord.items())

    def line(self, rank: int, axis: str) -> Ranks:
        """The ranks that differ from this one on no other axis."""
        return self.at((name, index) for name, index in self.coords[rank].items() if name != axis)

    def state(self, rank: int) -> str:
        """What `Mesh.states` says of a rank."""
        return "dead" if rank not in self.alive else "busy" if rank in self.busy else "idle"

    def total(self, rank: int, ranks: Ranks, axis: str) -> int:
        """What a rank gets that adds up `rank + 1` over all, or over those on its line along an axis."""
        return sum(other + 1 for other in (self.line(rank, axis) if axis else ranks))

    def assign(self, source: str, ranks: Ranks, value: int, *, is_sure: bool = True) -> None:
        """A cell set the variable; not surely where it was cut off."""
        self._cells.pop((source, ranks), None)
        self._cells[source, ranks] = value
        for rank in ranks:
            self.v[rank] = frozenset({value}) if is_sure else self.v[rank] | {value}

    def saw(self, rank: int, value: int | None) -> bool:
        """A rank told the value of its variable; whether it may be so. From now on it is known."""
        is_right = value in self.v[rank]
        self.v[rank] = frozenset({value})
        return is_right

    def push(self, ranks: Ranks, value: tuple[int, int]) -> None:
        """Ranks were given a value; who comes new gets what was given to its place last."""
        self._pushed.append((ranks, value))
        self.p.update(dict.fromkeys(ranks, value))

    def spawn(self, name: str, ranks: Ranks, start: int) -> None:
        self.troupes[name] = Troupe(start, dict.fromkeys(ranks, start))

    def add(self, name: str, amount: int) -> bool:
        """Actors are called, and count if none is missing: whether that is so."""
        totals = self.troupes[name].totals
        if not self.alive.issuperset(totals):
            return False
        totals.update({rank: total + amount for rank, total in totals.items()})
        return True

    def die(self, ranks: Iterable[int]) -> list[int]:
        """Ranks are gone; the numbers of the cells in the background that this ends."""
        gone = set(ranks)
        self.alive -= gone
        ended = [number for number, members in self.background.items() if gone & set(members)]
        for number in ended:
            del self.background[number]
        return ended

    def revive(self, ranks: Iterable[int], replay: Replay) -> None:
        """Ranks came new: they know what was replayed, and their actors begin again."""
        for rank in ranks:
            self.alive.add(rank)
            told = [value for (_, members), value in self._cells.items() if rank in members] if replay == "auto" else []
            self.v[rank] = frozenset({told[-1] if told else UNSET})
            given = [value for members, value in self._pushed if rank in members] if replay == "auto" else []
            self.p[rank] = given[-1] if given else None
            for troupe in self.troupes.values():
                if rank in troupe.totals:
                    troupe.totals[rank] = troupe.start
