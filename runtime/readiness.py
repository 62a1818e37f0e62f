"""Whether the ranks of a mesh are up: a promise, kept when all are and their bootstrap, if any, has run."""

from __future__ import annotations

from typing import Any

from .future import Future, Promise
from .wire.reactor import Reactor


class Readiness:
    """What `ProcMesh.initialized` waits for."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._ready: Promise[bool] = Promise(reactor)
        self._booted = self._ready  # a promise of its own where there is a bootstrap

    @property
    def future(self) -> Future[bool]:
        """Done when all ranks are up; fails when one did not come up."""
        return self._booted.future

    @property
    def is_known(self) -> bool:
        """Whether all came up, or one did not: nothing changes that any more."""
        return self._ready.is_there

    def resolve(self) -> None:
        """All ranks said that they are ready."""
        self._ready.resolve(True)

    def fail(self, error: Exception) -> None:
        """A rank did not come up."""
        self._ready.fail(error)

    def boot(self, done: Future[Any]) -> None:
        """`future` waits for this too: the bootstrap of the processes."""
        ready = self._ready
        self._booted = Promise[bool](self._reactor)

        def tell(_: object) -> None:
            error = ready.future.exception() if ready.future.done() else None
            if error is None and done.done():
                error = done.exception()
            if error is not None:
                self._booted.fail(error)
            elif ready.future.done() and done.done():
                self._booted.resolve(True)

        ready.future.add_done_callback(tell)
        done.add_done_callback(tell)
