"""Whether the ranks of a mesh are up: a promise, kept when all are and their bootstrap, if any, has run."""

from __future__ import annotations

from typing import Any

from ..future import Future, Promise
from ..wire.reactor import Reactor


class Readiness:
    """What `ProcMesh.initialized` waits for."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.up: Promise[bool] = Promise(reactor)
        """Kept when all ranks have said that they are ready, broken when one did not come up."""
        self._booted = self.up  # a promise of its own where there is a bootstrap

    @property
    def future(self) -> Future[bool]:
        """Done when all ranks are up; fails when one did not come up."""
        return self._booted.future

    def boot(self, done: Future[Any]) -> None:
        """`future` waits for this too: the bootstrap of the processes."""
        ready = self.up.future
        self._booted = Promise[bool](self._reactor)

        def tell(_: object) -> None:
            error = ready.exception() if ready.done() else None
            if error is None and done.done():
                error = done.exception()
            if error is not None:
                self._booted.fail(error)
            elif ready.done() and done.done():
                self._booted.resolve(True)

        ready.add_done_callback(tell)
        done.add_done_callback(tell)
