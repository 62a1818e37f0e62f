"""The actors of random families. They import nothing of the tests but the names of what they tell."""

from __future__ import annotations

import os
import sys
from typing import Any

from meshbook.runtime import Actor, MeshFailure, Port, context, endpoint, this_host, this_proc

from .model import Verdict


class Kin(Actor):
    """What both kinds have: a count, meshes and processes of their own, and a port for what they are told."""

    def __init__(self, name: str, verdict: Verdict, port: Port[Any]) -> None:
        self.name = name
        self.verdict = verdict
        self.port = port
        self.place = context().actor_instance.rank.rank
        self.total = 0
        self.meshes: dict[str, Any] = {}
        self.procs: dict[str, Any] = {}

    def once_more(self) -> int:
        self.total += 1
        return self.total

    def heard(self, failure: MeshFailure) -> bool:
        self.port.send(("told", self.name, self.place, failure.mesh_name, failure.ranks[0]))
        if self.verdict == "raise":
            raise RuntimeError("the hook itself failed")
        return self.verdict == "handle"

    def tidied(self) -> None:
        self.port.send(("cleaned", self.name, self.place))


class Relative(Kin):
    """Its endpoints block."""

    @endpoint
    def count(self) -> int:
        return self.once_more()

    @endpoint
    def who(self) -> int:
        return self.place

    @endpoint
    def relay(self, mesh: Any) -> list[int]:
        """Ask another mesh who it is."""
        return mesh.who.call().get(20).values()

    @endpoint
    def hire(self, cls: Any, name: str, verdict: Verdict, procs: Any) -> Any:
        """Spawn a mesh on these processes, or in this very one; it is this actor's own."""
        mesh = (this_proc() if procs is None else procs).spawn(name, cls, name, verdict, self.port)
        mesh.initialized.get(20)
        self.meshes[name] = mesh
        return mesh

    @endpoint
    def found(self, name: str) -> Any:
        """Start two processes, which are this actor's own."""
        self.procs[name] = procs = this_host().spawn_procs({"r": 2})
        procs.initialized.get(20)
        return procs

    @endpoint
    def fire(self, name: str) -> None:
        self.meshes.pop(name).stop().get(20)

    @endpoint
    def close(self, name: str) -> None:
        self.procs.pop(name).stop().get(20)

    @endpoint
    def fail(self) -> None:
        raise ValueError("as it was told to")

    @endpoint
    def leave(self) -> None:
        sys.exit(3)

    @endpoint
    def die(self) -> None:
        os._exit(5)

    def __supervise__(self, failure: MeshFailure) -> bool:
        return self.heard(failure)

    def __cleanup__(self, exc: Exception | None) -> None:
        self.tidied()


class AsyncRelative(Kin):
    """Its endpoints await."""

    @endpoint
    async def count(self) -> int:
        return self.once_more()

    @endpoint
    async def who(self) -> int:
        return self.place

    @endpoint
    async def relay(self, mesh: Any) -> list[int]:
        return (await mesh.who.call()).values()

    @endpoint
    async def hire(self, cls: Any, name: str, verdict: Verdict, procs: Any) -> Any:
        mesh = (this_proc() if procs is None else procs).spawn(name, cls, name, verdict, self.port)
        await mesh.initialized
        self.meshes[name] = mesh
        return mesh

    @endpoint
    async def found(self, name: str) -> Any:
        self.procs[name] = procs = this_host().spawn_procs({"r": 2})
        await procs.initialized
        return procs

    @endpoint
    async def fire(self, name: str) -> None:
        await self.meshes.pop(name).stop()

    @endpoint
    async def close(self, name: str) -> None:
        await self.procs.pop(name).stop()

    @endpoint
    async def fail(self) -> None:
        raise ValueError("as it was told to")

    @endpoint
    async def leave(self) -> None:
        sys.exit(3)

    @endpoint
    async def die(self) -> None:
        os._exit(5)

    async def __supervise__(self, failure: MeshFailure) -> bool:
        return self.heard(failure)

    async def __cleanup__(self, exc: Exception | None) -> None:
        self.tidied()
