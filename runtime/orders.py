"""What meshes ask of their ranks: an actor to be made, an endpoint to be called. A fleet makes messages of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .wire.codec import Encoded
from .wire.messages import Call, Spawn, View

BOOTSTRAP = "__bootstrap__"
"""The name of the actor whose constructor runs the bootstrap of a process."""


@dataclass(frozen=True, slots=True)
class Birth:
    """An actor that is to be made; also what it takes to make it again, on a rank that was restarted."""

    ranks: tuple[int, ...]
    actor: int
    name: str
    view: View
    payload: Encoded
    owner: tuple[int, int, int] = (0, 0, 0)
    on_main: bool = False
    """Does it live on the main thread, where cells run?"""
    class_name: str = ""

    @property
    def is_everywhere(self) -> bool:
        """Does every rank of the mesh have it, also one that comes later: what runs cells, or the bootstrap?"""
        return self.on_main or self.name == BOOTSTRAP

    def message(self, seq: int) -> Spawn:
        """It, as the call `seq`."""
        return Spawn(seq, self.actor, self.name, self.view, self.owner)


class Order(NamedTuple):
    """A call of an endpoint. Without a view, actors find themselves in the one in which they were made."""

    actor: int
    endpoint: str
    payload: Encoded
    view: View | None = None
    on_main: bool = False

    def message(self, seq: int) -> Call:
        """It, as the call `seq`."""
        return Call(seq, self.actor, self.endpoint, self.view)

    def broadcast(self, seq: int) -> Call:
        """It, as the call `seq` that nobody answers."""
        return Call(seq, self.actor, self.endpoint, self.view, False)
