"""What must come of a failure among actors that own others: a model without processes, sockets or clocks.

Failures spread at once to several sides, in no order: a child may be stopped by its owner before it hears of a death
itself. The model lives an event through in several orders. Where these part in what stays, the event is `Unclear`, and
is not done; where they part only in who is told on the way, each of these is allowed.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from random import Random
from typing import Literal, NamedTuple

from ..verdicts import Unclear

Verdict = Literal["handle", "none", "raise"]
"""What `__supervise__` of a member does with a failure: only who handles it lives on."""

ORDERS = 64
"""Orders in which an event is lived through."""


class Member(NamedTuple):
    """One actor: the name of its mesh, and its place in that."""

    mesh: str
    place: int


class Told(NamedTuple):
    """Somebody, or the client (None), is told of the failure of a mesh of its own."""

    owner: Member | None
    mesh: str
    rank: int
    """Of the processes on which it was spawned."""


@dataclass(slots=True)
class Procs:
    """Processes, and who has spawned them: None is the client."""

    owner: Member | None
    alive: set[int]


@dataclass(slots=True)
class Mesh:
    """Actors: on which ranks of which processes they are, and which of them live."""

    owner: Member | None
    verdict: Verdict
    procs: str
    ranks: tuple[int, ...]
    alive: set[int]

    @property
    def is_whole(self) -> bool:
        return len(self.alive) == len(self.ranks)


@dataclass(slots=True)
class Outcome:
    """What is heard of an event."""

    cleaned: Counter[Member] = field(default_factory=Counter[Member])
    """Whose `__cleanup__` runs."""
    must: Counter[Told] = field(default_factory=Counter[Told])
    """Who is told in every order ..."""
    may: Counter[Told] = field(default_factory=Counter[Told])
    """... and in some."""


Deed = tuple[str, *tuple[object, ...]]


@dataclass(slots=True)
class Model:
    """All meshes and processes, as they should be.

    Example:
        >>> model = Model()
        >>> model.add_procs("p", None, 2)
        >>> model.add_mesh("top", None, "handle", "p", (0, 1))
        >>> model.add_mesh("kid", Member("top", 0), "none", "p", (1,))
        >>> outcome = model.fail([Member("kid", 0)])
        >>> outcome.must, model.is_alive(Member("top", 0)), model.is_alive(Member("kid", 0))
        (Counter({Told(owner=Member(mesh='top', place=0), mesh='kid', rank=1): 1}), True, False)
    """

    procs: dict[str, Procs] = field(default_factory=dict[str, Procs])
    meshes: dict[str, Mesh] = field(default_factory=dict[str, Mesh])
    """In the order in which they were spawned."""

    def add_procs(self, name: str, owner: Member | None, num_ranks: int) -> None:
        self.procs[name] = Procs(owner, set(range(num_ranks)))

    def add_mesh(self, name: str, owner: Member | None, verdict: Verdict, procs: str, ranks: tuple[int, ...]) -> None:
        self.meshes[name] = Mesh(owner, verdict, procs, ranks, set(range(len(ranks))))

    def is_alive(self, member: Member) -> bool:
        return member.place in self.meshes[member.mesh].alive

    @property
    def members(self) -> list[Member]:
        """All that live."""
        return [Member(name, place) for name, mesh in self.meshes.items() for place in sorted(mesh.alive)]

    def fail(self, members: Sequence[Member]) -> Outcome:
        """They fail at the same time, each by an error of its own.

        Raises:
            Unclear: and nothing has changed.
        """
        return self._live_through([("fail", member) for member in members])

    def stop(self, mesh: str) -> Outcome:
        """It is stopped by its owner."""
        return self._live_through([("stop", member) for member in self._members_of(mesh)])

    def stop_procs(self, procs: str) -> Outcome:
        """They are stopped by their owner."""
        return self._live_through([("stop procs", procs)])

    def die(self, procs: str, rank: int) -> Outcome:
        """A process ends, with all actors that are there."""
        return self._live_through([("die", procs, rank)])

    def host(self, member: Member) -> tuple[str, int]:
        """The processes, and the rank of them, where this actor is."""
        mesh = self.meshes[member.mesh]
        return mesh.procs, mesh.ranks[member.place]

    def tale_of(self, member: Member) -> Told:
        """What its owner is told of its failure."""
        return Told(self.meshes[member.mesh].owner, member.mesh, self.host(member)[1])

    def guests(self, procs: str, rank: int | None = None) -> list[Member]:
        """The living actors on these processes, or on this rank of them."""
        hosts = [(member, *self.host(member)) for member in self.members]
        return [member for member, its, at in hosts if its == procs and rank in (None, at)]

    def _members_of(self, mesh: str) -> list[Member]:
        return [Member(mesh, place) for place in sorted(self.meshes[mesh].alive)]

    def _live_through(self, first: Sequence[Deed]) -> Outcome:
        lives = [_Life(copy.deepcopy(self), Random(order)) for order in range(ORDERS)]
        ends = [life.run(first) for life in lives]
        model, outcome = lives[0].model, ends[0]
        clients = [Counter({told: n for told, n in end.may.items() if told.owner is None}) for end in ends]
        for life, end, client in zip(lives, ends, clients, strict=True):
            if life.model != model or end.cleaned != outcome.cleaned or client != clients[0]:
                raise Unclear
        self.procs, self.meshes = model.procs, model.meshes
        tolds = [end.may for end in ends]
        return Outcome(outcome.cleaned, reduce(lambda a, b: a & b, tolds), reduce(lambda a, b: a | b, tolds))


class _Life:
    """One order in which an event spreads: what is to happen still stands in a heap, from which any may be next."""

    def __init__(self, model: Model, random: Random) -> None:
        self.model = model
        self._random = random
        self._heap: list[Deed] = []
        self._outcome = Outcome()

    def run(self, first: Sequence[Deed]) -> Outcome:
        self._heap.extend(first)
        while self._heap:
            match self._heap.pop(self._random.randrange(len(self._heap))):
                case ("fail", Member() as member):
                    self._fail(member)
                case ("stop", Member() as member):
                    self._end(member)
                case ("stop procs", str(procs)):
                    self._heap += [("stop", member) for member in self.model.guests(procs)]
                    self.model.procs[procs].alive.clear()
                case ("die", str(procs), int(rank)):
                    self._die(procs, rank)
                case ("tell", Told() as told):
                    self._tell(told)
                case deed:
                    raise AssertionError(deed)
        return self._outcome

    def _fail(self, member: Member) -> None:
        if self._end(member):
            self._heap.append(("tell", self.model.tale_of(member)))

    def _end(self, member: Member) -> bool:
        """It ends, after all that it owns; whether it lived."""
        if not self.model.is_alive(member):
            return False
        self.model.meshes[member.mesh].alive.discard(member.place)
        self._outcome.cleaned[member] += 1
        self._heap += self._ends_of_its_own(member)
        return True

    def _ends_of_its_own(self, member: Member) -> Iterator[Deed]:
        for name, mesh in self.model.meshes.items():
            if mesh.owner == member:
                yield from (("stop", Member(name, place)) for place in mesh.alive)
        for name, procs in self.model.procs.items():
            if procs.owner == member and procs.alive:
                yield ("stop procs", name)

    def _die(self, procs: str, rank: int) -> None:
        """All there are gone at once, uncleaned; each owner hears of it once, in the name of its first mesh there."""
        gone = self.model.guests(procs, rank)
        self.model.procs[procs].alive.discard(rank)
        for member in gone:
            self.model.meshes[member.mesh].alive.discard(member.place)
        owners: set[Member | None] = set(gone)  # those hear nothing any more
        for member in gone:
            owner = self.model.meshes[member.mesh].owner
            if owner not in owners:
                self._heap.append(("tell", self.model.tale_of(member)))
                owners.add(owner)
            self._heap += self._ends_of_its_own(member)

    def _tell(self, told: Told) -> None:
        owner = told.owner
        if owner is None:
            self._outcome.may[told] += 1
        elif self.model.is_alive(owner):
            self._outcome.may[told] += 1
            if self.model.meshes[owner.mesh].verdict != "handle":
                self._heap.append(("fail", owner))
