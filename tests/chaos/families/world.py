"""Random families on real processes: does an operation, tells the model, and compares what is heard of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from meshbook.runtime import Channel, MeshFailure, SupervisionError

from ..story import Spawn
from ..verdicts import Violation
from .choice import Choice, Operation
from .members import AsyncRelative, Relative
from .model import Member, Model, Outcome, Told, Verdict

PATIENCE = 15.0
"""Seconds until what must be heard is missed; for a machine under load."""


class World:
    """Meshes of actors that own each other, and the model of them: a `Story`."""

    def __init__(self, seed: int, spawn_procs: Spawn, *, can_die: bool = True) -> None:
        self._spawn_procs = spawn_procs
        self.model = Model()
        self._choice = Choice(seed, self.model, can_die=can_die)
        self._port, self._told = Channel[Any].open()
        self._next = self._told.recv()
        self._meshes: dict[str, Any] = {}
        self._procs: dict[str, Any] = {}
        self._counts: Counter[Member] = Counter()
        self._expected = Outcome()
        self._heard_cleaned: Counter[Member] = Counter()
        self._heard_told: Counter[Told] = Counter()

    def on_fault(self, failure: MeshFailure) -> None:
        """What the client is told, who owns what nobody else does: the hook for faults that nobody has handled."""
        self._port.send(("told", "", 0, failure.mesh_name, failure.ranks[0]))

    def next(self) -> Operation:
        return self._choice.next()

    def do(self, operation: Operation) -> None:
        """Do it; `Violation` if anything is not as it must be."""
        getattr(self, operation.name)(*operation.args)
        self.check()

    def close(self) -> None:
        """Stop all that is left, the children by their owners."""
        for name, procs in self._procs.items():
            if self.model.procs[name].owner is None and self.model.procs[name].alive:
                self._expect(self.model.stop_procs(name))
                procs.stop().get(20)
        self._hear(until=lambda: not self._missing())
        self._check_nothing_more()

    # What can be done.

    def start(self, name: str, owner: Member | None = None) -> None:
        if owner is None:
            self._procs[name] = self._spawn_procs({"r": 2})
            self._procs[name].initialized.get(20)
        else:
            self._procs[name] = self._at(owner).found.call_one(name).get(20)
        self.model.add_procs(name, owner, 2)

    def spawn(
        self,
        name: str,
        owner: Member | None,
        is_async: bool,
        verdict: Verdict,
        procs: str,
        ranks: Sequence[int],
        is_here: bool,
    ) -> None:
        cls = AsyncRelative if is_async else Relative
        on = self._procs[procs] if len(ranks) == 2 else self._procs[procs].slice(r=ranks[0])
        if owner is None:
            mesh = on.spawn(name, cls, name, verdict, self._port)
            mesh.initialized.get(20)
        else:
            mesh = self._at(owner).hire.call_one(cls, name, verdict, None if is_here else on).get(20)
        self._meshes[name] = mesh
        self.model.add_mesh(name, owner, verdict, procs, tuple(ranks))

    def fire(self, mesh: str) -> None:
        owner = self.model.meshes[mesh].owner
        self._expect(self.model.stop(mesh))
        (self._meshes[mesh].stop() if owner is None else self._at(owner).fire.call_one(mesh)).get(20)

    def close_procs(self, procs: str) -> None:
        owner = self.model.procs[procs].owner
        self._expect(self.model.stop_procs(procs))
        (self._procs[procs].stop() if owner is None else self._at(owner).close.call_one(procs)).get(20)

    def fail(self, members: Sequence[Member]) -> None:
        """By errors that nobody waits for."""
        self._expect(self.model.fail(members))
        for member in members:
            self._at(member).fail.broadcast()

    def leave(self, member: Member) -> None:
        self._expect(self.model.fail([member]))
        _must_fail(self._at(member).leave.call_one(), SupervisionError)

    def die(self, member: Member) -> None:
        self._expect(self.model.die(*self.model.host(member)))
        _must_fail(self._at(member).die.call_one(), SupervisionError)

    def raise_(self, member: Member) -> None:
        """An error for which somebody waits is nobody's end."""
        _must_fail(self._at(member).fail.call_one(), ValueError)

    def relay(self, member: Member, mesh: str) -> None:
        """One asks another mesh, which need not be its own."""
        answer = self._at(member).relay.call_one(self._meshes[mesh])
        if self.model.meshes[mesh].is_whole:
            _same(answer.get(20), list(range(len(self.model.meshes[mesh].ranks))), f"what {member} heard of {mesh}")
        else:
            _must_fail(answer, Exception)

    # What must be true.

    def check(self) -> None:
        """All was heard that had to be, all that should live counts on, and nothing else was heard."""
        self._hear(until=lambda: not self._missing())
        for name, mesh in self.model.meshes.items():
            if mesh.is_whole:
                counts = self._meshes[name].count.call().get(20).values()
            else:
                _must_fail(self._meshes[name].who.call(), SupervisionError)
                counts = [self._at(Member(name, place)).count.call_one().get(20) for place in sorted(mesh.alive)]
            members = [Member(name, place) for place in sorted(mesh.alive)]
            self._counts.update(members)
            _same(counts, [self._counts[member] for member in members], f"the counts of {name}")
        self._check_nothing_more()

    def _expect(self, outcome: Outcome) -> None:
        self._expected.cleaned += outcome.cleaned
        self._expected.must += outcome.must
        self._expected.may += outcome.may

    def _missing(self) -> list[object]:
        cleaned = self._expected.cleaned - self._heard_cleaned
        return [*cleaned.elements(), *(self._expected.must - self._heard_told).elements()]

    def _check_nothing_more(self) -> None:
        self._hear(until=lambda: True)
        if more := self._more():
            raise Violation(f"nobody expected {more}")

    def _more(self) -> list[object]:
        cleaned = self._heard_cleaned - self._expected.cleaned
        return [*cleaned.elements(), *(self._heard_told - self._expected.may).elements()]

    def _hear(self, until: Callable[[], bool]) -> None:
        """Take what has come, and wait for more until that is enough."""
        deadline = time.monotonic() + PATIENCE
        while self._next.done() or not until():
            try:
                self._note(*self._next.get(max(0.0, deadline - time.monotonic())))
            except TimeoutError:
                raise Violation(f"not heard within {PATIENCE:g} s: {self._missing()}; but {self._more()}") from None
            self._next = self._told.recv()

    def _note(self, what: str, mesh: str, place: int, *of: Any) -> None:
        member = Member(mesh, place) if mesh else None
        if what == "told":
            self._heard_told[Told(member, *of)] += 1
        else:
            assert member is not None
            self._heard_cleaned[member] += 1

    def _at(self, member: Member) -> Any:
        mesh = self._meshes[member.mesh]
        return mesh.slice(r=member.place) if len(self.model.meshes[member.mesh].ranks) > 1 else mesh


def _must_fail(answer: Any, kind: type[BaseException]) -> None:
    error = answer.exception(20)
    if not isinstance(error, kind):
        raise Violation(f"{answer} gave {error!r}, not {kind.__name__}") from error


def _same(found: object, right: object, what: str) -> None:
    if found != right:
        raise Violation(f"{what} are {found}, not {right}")
