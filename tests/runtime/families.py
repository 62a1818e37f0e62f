"""Actors that own others, and actors that clean up, for the tests of supervision. They import nothing of pytest."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from meshbook.runtime import (
    Actor,
    Channel,
    MeshFailure,
    Port,
    concurrent_endpoint,
    current_rank,
    endpoint,
    node,
    this_host,
    this_proc,
)

IMPATIENCE = 1.2
"""Seconds, more than `resident.CANCEL_SECONDS`: actors are first asked to end, then left."""


def hurry() -> None:
    """A bootstrap for ranks that wait so long, and not longer, for actors that do not end."""
    node.PATIENCE = IMPATIENCE


class Owner(Actor):
    """Has meshes of its own, and an opinion on their failures: `verdict` is what its hook does."""

    def __init__(self, verdict: str = "none", told: Port[Any] | None = None) -> None:
        self.verdict = verdict
        self.told = told
        self.seen: list[str] = []

    @endpoint
    def adopt(self, cls: Any, *args: Any, procs: Any = None) -> Any:
        """Spawn actors in this very process, or on `procs`; they are its own."""
        self.kids = (procs or this_proc()).spawn("kid", cls, *args)
        self.kids.initialized.get(10)
        return self.kids

    @endpoint
    def add(self) -> list[int]:
        return self.kids.add.call().get(10).values()

    @endpoint
    def adopt_procs(self, cls: Any, *args: Any) -> Any:
        """Start processes, and actors on them."""
        self.procs = this_host().spawn_procs({"k": 2})
        self.kids = self.procs.spawn("kid", cls, *args)
        self.kids.initialized.get(20)
        return self.kids

    @endpoint
    def fail(self) -> None:
        raise ValueError("unfit")

    @endpoint
    def dismiss(self) -> None:
        self.procs.stop("dismissed").get(10)

    @endpoint
    def reports(self) -> list[str]:
        return self.seen

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.seen.append(failure.report())
        if self.told is not None:
            self.told.send((failure.mesh_name, failure.report(), str(failure), dict(current_rank())))
        if self.verdict == "raise":
            raise RuntimeError("the hook itself failed")
        if self.verdict == "exit":
            raise SystemExit(3)
        return self.verdict == "handle"


class AsyncOwner(Actor):
    """The same with async endpoints, and an async hook."""

    def __init__(self, verdict: str, told: Port[Any]) -> None:
        self.verdict = verdict
        self.told = told

    @endpoint
    async def adopt(self, cls: Any, *args: Any) -> Any:
        mesh = this_proc().spawn("kid", cls, *args)
        await mesh.initialized
        return mesh

    @endpoint
    async def ok(self) -> str:
        return "ok"

    async def __supervise__(self, failure: MeshFailure) -> bool:
        await asyncio.sleep(0)
        self.told.send((failure.mesh_name, failure.report(), str(failure), dict(current_rank())))
        if self.verdict == "raise":
            raise RuntimeError("the hook itself failed")
        if self.verdict == "exit":
            raise SystemExit(3)
        return self.verdict == "handle"


class Tidy(Actor):
    """Says when it was cleaned up, and why."""

    def __init__(self, port: Port[Any], name: str = "tidy") -> None:
        self.port = port
        self.name = name

    @endpoint
    def ok(self) -> str:
        return "ok"

    @endpoint
    def fail(self) -> None:
        raise ValueError("untidy")

    @endpoint
    def hold(self, started: Port[Port[str]]) -> str:
        port, receiver = Channel[str].open()
        started.send(port)
        return receiver.recv().get(20)

    @endpoint
    def adopt(self, procs: Any, name: str) -> None:
        procs.spawn(name, Tidy, self.port, name).initialized.get(10)

    def __cleanup__(self, exc: Exception | None) -> None:
        self.port.send((self.name, exc if exc is None else str(exc)))
        if self.name == "untidy":
            raise OSError("cannot clean up")


class AsyncTidy(Actor):
    def __init__(self, port: Port[Any], is_clean: bool = True) -> None:
        self.port = port
        self.is_clean = is_clean

    @endpoint
    async def fail(self) -> None:
        raise ValueError("untidy")

    @endpoint
    async def brood(self, started: Port[str]) -> None:
        started.send("brooding")
        await asyncio.Event().wait()

    @concurrent_endpoint
    async def linger(self, started: Port[str]) -> None:
        started.send("lingering")
        try:
            await asyncio.Event().wait()
        finally:
            self.port.send(("cancelled", None))

    async def __cleanup__(self, exc: Exception | None) -> None:
        await asyncio.sleep(0)
        self.port.send(("tidy", exc if exc is None else str(exc)))
        if not self.is_clean:
            raise OSError("cannot clean up")


class Filial(Actor):
    """Has hooks that ask those of its parents first, which are those of all actors."""

    def __init__(self, port: Port[Any]) -> None:
        self.port = port

    @endpoint
    def adopt(self, cls: Any) -> Any:
        return this_proc().spawn("kid", cls)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.port.send(("supervise", super().__supervise__(failure)))
        return True

    def __cleanup__(self, exc: Exception | None) -> None:
        self.port.send(("cleanup", super().__cleanup__(exc)))


class AsyncFilial(Actor):
    def __init__(self, port: Port[Any]) -> None:
        self.port = port

    @endpoint
    async def adopt(self, cls: Any) -> Any:
        return this_proc().spawn("kid", cls)

    async def __supervise__(self, failure: MeshFailure) -> bool:
        self.port.send(("supervise", super().__supervise__(failure)))
        return True

    async def __cleanup__(self, exc: Exception | None) -> None:
        self.port.send(("cleanup", super().__cleanup__(exc)))


class Busy(Actor):
    """Notes in which order it comes to what waits for it."""

    def __init__(self) -> None:
        self.notes: list[object] = []

    @endpoint
    def hold(self, started: Port[Port[str]]) -> None:
        port, receiver = Channel[str].open()
        started.send(port)
        self.notes.append(receiver.recv().get(20))

    @endpoint
    def adopt(self, cls: Any) -> Any:
        return this_proc().spawn("kid", cls)

    @endpoint
    def note(self, what: object) -> None:
        self.notes.append(what)

    @endpoint
    def read(self) -> list[object]:
        return self.notes

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.notes.append("failure")
        return True


def _wait_at(gate: str, told: Port[str]) -> None:
    """In a system call that nothing cancels, until the test opens the other end of this named pipe."""
    told.send("waits")
    open(gate).close()


class Held(Actor):
    def __init__(self, told: Port[str], gate: str, is_held: bool) -> None:
        self.told, self.gate = told, gate
        if is_held:
            _wait_at(gate, told)

    @endpoint
    def hold(self) -> None:
        _wait_at(self.gate, self.told)

    @endpoint
    def ok(self) -> str:
        return "ok"

    def __cleanup__(self, exc: Exception | None) -> None:
        self.told.send("clean")


class AsyncHeld(Actor):
    def __init__(self, told: Port[str], gate: str, is_held: bool) -> None:
        self.told, self.gate = told, gate
        if is_held:
            _wait_at(gate, told)

    @endpoint
    async def hold(self) -> None:
        _wait_at(self.gate, self.told)

    @endpoint
    async def ok(self) -> str:
        return "ok"

    async def __cleanup__(self, exc: Exception | None) -> None:
        self.told.send("clean")


class Leaver(Actor):
    @endpoint
    def ok(self) -> str:
        return "ok"

    def __cleanup__(self, exc: Exception | None) -> None:
        raise SystemExit(3)


class Unpicklable:
    def __reduce__(self) -> str:
        raise SystemExit(3)


class Quitter(Actor):
    @endpoint
    def answer(self) -> Any:
        return Unpicklable()

    @endpoint
    def ok(self) -> str:
        return "ok"


class AsyncQuitter(Actor):
    @endpoint
    async def answer(self) -> Any:
        return Unpicklable()

    @endpoint
    async def ok(self) -> str:
        return "ok"

    @endpoint
    async def quit(self) -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 3)
