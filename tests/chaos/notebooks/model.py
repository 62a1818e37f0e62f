"""What a notebook must know of its meshes: who lives, what each rank has in its namespace, what ran. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from meshbook.kernel.sources.effects import definitions_of, is_setup

from .cells import Body, Namespace, Ran, held, run


class Push(NamedTuple):
    """A value that ranks were given."""

    name: str
    value: object
    ranks: tuple[int, ...]


@dataclass
class Entry:
    """A cell that ran, and whether that went well on all its ranks."""

    body: Body
    ranks: tuple[int, ...]
    went_well: bool = True

    @property
    def source(self) -> str:
        return self.body.text


@dataclass
class Counters:
    """Actors on some ranks, each of which counts from `start`."""

    start: int
    axes: list[str]
    """Along which they can be sliced."""
    counts: dict[int, int]
    """By rank of the mesh."""

    def add(self, number: int, ranks: Iterable[int]) -> list[int]:
        for rank in ranks:
            self.counts[rank] += number
        return [self.counts[rank] for rank in ranks]


class Tensor(NamedTuple):
    """A distributed tensor."""

    value: int
    """Of its sum, on each rank."""
    lives_on: Collection[int]


@dataclass
class Grid:
    """A mesh."""

    name: str
    axes: dict[str, int]
    names: dict[int, Namespace] = field(default_factory=dict[int, Namespace])
    """Of each rank that lives."""
    failed: set[int] = field(default_factory=set[int])
    journal: list[Entry | Push] = field(default_factory=list["Entry | Push"])
    is_journal_known: bool = True
    can_be_script: bool = True
    """Not where functions of the notebook were called, of which a script only says so, nor with groups of a cell's."""
    counters: dict[str, Counters] = field(default_factory=dict[str, Counters])
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])

    def __post_init__(self) -> None:
        for rank in self.everyone:
            self._begin(rank)

    @property
    def everyone(self) -> list[int]:
        return list(range(len(self.places)))

    @property
    def places(self) -> list[dict[str, int]]:
        """The coordinates of each rank."""
        sizes = [range(size) for size in self.axes.values()]
        return [dict(zip(self.axes, place, strict=True)) for place in itertools.product(*sizes)]

    def at(self, place: Mapping[str, int]) -> list[int]:
        """The ranks at these coordinates."""
        return [rank for rank in self.everyone if place.items() <= self.places[rank].items()]

    @property
    def alive(self) -> set[int]:
        return set(self.names)

    @property
    def dead(self) -> set[int]:
        return set(self.everyone) - self.alive

    def held(self) -> dict[int, dict[str, str]]:
        """The variables of each rank that lives."""
        return {rank: held(self.names[rank]) for rank in sorted(self.names)}

    def run(self, body: Body, ranks: Collection[int], *, is_noted: bool = True) -> dict[int, Ran]:
        """A cell runs on some ranks; on those that have died before it does not."""
        alive = self.alive & set(ranks)
        ran = {rank: body.run(self.names[rank], alive) for rank in sorted(alive)}
        for rank, what in ran.items():
            if what.has_died:
                self.die(rank)
        self.failed = {rank for rank in ranks if rank not in ran or ran[rank].error}
        if is_noted:
            self._note(Entry(body, tuple(sorted(ranks)), not self.failed))
        return ran

    def push(self, name: str, value: object, ranks: Iterable[int]) -> None:
        chosen = tuple(sorted(ranks))
        for rank in self.alive & set(chosen):
            self.names[rank][name] = value
        self.journal.append(Push(name, value, chosen))

    def die(self, rank: int) -> None:
        del self.names[rank]
        self._lose({rank})

    def _lose(self, ranks: Collection[int]) -> None:
        """What these have is gone."""
        for name, tensor in self.tensors.items():
            if not {*ranks}.isdisjoint(tensor.lives_on):
                self.tensors[name] = tensor._replace(lives_on=())

    def restart(self, ranks: Collection[int], replay: str) -> None:
        """Ranks get new processes, and what sets them up."""
        for rank in ranks:
            self._begin(rank)
        self._lose(ranks)
        self.failed -= set(ranks)
        for each in self.counters.values():
            each.counts |= dict.fromkeys(set(ranks) & set(each.counts), each.start)
        for step in self.journal if replay == "auto" else ():
            for rank in sorted(set(step.ranks) & set(ranks)):
                _replay(step, self.names[rank])

    def scripted(self) -> dict[int, dict[str, str]] | None:
        """What ranks hold at the end of a script of what ran on them; None if it fails."""
        script = Grid(self.name, self.axes)
        for step in self.journal:
            if isinstance(step, Push):
                script.push(*step)
            elif step.went_well:
                script.run(step.body, step.ranks, is_noted=False)
                if script.failed:
                    return None
        return script.held()

    def resize(self, axes: dict[str, int]) -> None:
        """Ranks that stay keep what they have; new ones have nothing."""
        kept = {tuple(self.places[rank].values()): (rank in self.failed, self.names[rank]) for rank in self.alive}
        self.axes = axes
        self.names, self.failed = {}, set()
        for rank, place in enumerate(self.places):
            self._begin(rank)
            has_failed, names = kept.get(tuple(place.values()), (False, {}))
            names |= self.names[rank]
            self.names[rank] = names
            self.failed |= {rank} if has_failed else set()
        self.is_journal_known = False
        self.counters, self.tensors = {}, {}

    def _begin(self, rank: int) -> None:
        place = self.places[rank]
        self.names[rank] = {"rank": rank, "world_size": len(self.places), "coord": place}

    def _note(self, entry: Entry) -> None:
        same = (entry.source, entry.ranks)
        self.journal = [note for note in self.journal if isinstance(note, Push) or (note.source, note.ranks) != same]
        self.journal.append(entry)


def _replay(step: Entry | Push, names: Namespace) -> None:
    if isinstance(step, Push):
        names[step.name] = step.value
        return
    source = step.source if step.went_well and is_setup(step.source) else definitions_of(step.source)
    run("\n".join(line for line in source.splitlines() if not line.startswith("await ")), "", names)


class Selection(NamedTuple):
    """A selector, and whom it means while all live."""

    text: str
    ranks: frozenset[int]
    are_named: bool = False
    """One by one: dead ones are not left out then."""

    def __str__(self) -> str:
        return repr(self.text)

    def on(self, grid: Grid) -> set[int]:
        """The ranks that it means; empty where it is refused."""
        return set(self.ranks) if self.are_named else set(self.ranks) & grid.alive


def named(ranks: Collection[int]) -> Selection:
    """A selector that names ranks one by one."""
    return Selection(",".join(map(str, ranks)), frozenset(ranks), True)


@dataclass
class Notebook:
    """The meshes of a notebook by name, the last one that came up last."""

    grids: dict[str, Grid] = field(default_factory=dict[str, Grid])
    current: str = ""
    slice: Selection | None = None

    def use(self, name: str, slice: Selection | None = None) -> None:
        self.current, self.slice = name, slice

    def remove(self, name: str) -> None:
        del self.grids[name]
        if self.current == name:
            self.current, self.slice = next(reversed(self.grids), ""), None
