"""Which operation comes next in a family: by chance, and by what the model says is there. A seed gives one story."""

from __future__ import annotations

from collections.abc import Sequence

from ..chooser import Chooser, Operation
from .model import Member, Model, Verdict

MOST_MEMBERS = 14
MOST_PROCS = 4

VERDICTS: tuple[Verdict, ...] = ("handle", "handle", "none", "raise")


class Choice(Chooser):
    """Chooses operations for `model`, which others change as these are done."""

    def __init__(self, seed: int, model: Model, *, can_die: bool = True) -> None:
        super().__init__(seed)
        self._model = model
        self._number = 0
        self._kinds = {
            self._spawn: 3,
            self._hire: 8,
            self._found: 2,
            self._fire: 2,
            self._close: 1,
            self._fail: 4,
            self._leave: 1,
            self._die: 2 if can_die else 0,
            self._raise: 1,
            self._relay: 3,
        }

    def _name(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"

    @property
    def _living(self) -> list[str]:
        return [name for name, procs in self._model.procs.items() if procs.alive]

    def _spawn(self) -> Operation | None:
        if not self._living:
            return Operation("start", (self._name("procs"),))
        return self._new_mesh(None, self._place())

    def _hire(self) -> Operation | None:
        owner = self._one(self._model.members)
        if owner is None:
            return None
        name, rank = self._model.host(owner)
        is_here = self._happens(0.3)
        return self._new_mesh(owner, (name, (rank,)) if is_here else self._place(), is_here)

    def _new_mesh(
        self, owner: Member | None, place: tuple[str, Sequence[int]], is_here: bool = False
    ) -> Operation | None:
        if len(self._model.members) >= MOST_MEMBERS:
            return None
        is_async = self._happens(0.5)
        verdict = self._random.choice(VERDICTS)
        return Operation("spawn", (self._name("m"), owner, is_async, verdict, *place, is_here))

    def _place(self) -> tuple[str, Sequence[int]]:
        """Living ranks of some processes: one of them, or both."""
        name = self._random.choice(self._living)
        alive = sorted(self._model.procs[name].alive)
        return name, tuple(alive if self._happens(0.5) else [self._random.choice(alive)])

    def _found(self) -> Operation | None:
        owner = self._one(self._model.members)
        return Operation("start", (self._name("procs"), owner)) if len(self._living) < MOST_PROCS else None

    def _fire(self) -> Operation | None:
        name = self._one(
            [name for name, mesh in self._model.meshes.items() if self._has_owner(mesh.owner) and mesh.alive]
        )
        return Operation("fire", (name,)) if name is not None else None

    def _close(self) -> Operation | None:
        name = self._one([name for name in self._living if self._has_owner(self._model.procs[name].owner)])
        return Operation("close_procs", (name,)) if name is not None else None

    def _has_owner(self, owner: Member | None) -> bool:
        return owner is None or self._model.is_alive(owner)

    def _fail(self) -> Operation | None:
        members = self._model.members
        together = 1 if self._happens(0.6) else self._random.randint(2, 4)
        return Operation("fail", (self._random.sample(members, together),)) if len(members) >= together else None

    def _leave(self) -> Operation | None:
        member = self._one(self._model.members)
        return member and Operation("leave", (member,))

    def _die(self) -> Operation | None:
        member = self._one(self._model.members)
        return member and Operation("die", (member,))

    def _raise(self) -> Operation | None:
        member = self._one(self._model.members)
        return member and Operation("raise_", (member,))

    def _relay(self) -> Operation | None:
        member, mesh = self._one(self._model.members), self._one(list(self._model.meshes))
        is_possible = member is not None and mesh is not None and member.mesh != mesh
        return Operation("relay", (member, mesh)) if is_possible else None
