"""Hosts on which worker loops wait: the loops, and the meshes of hosts of programs that attach to them.

As in Monarch, but for who is heard: both ends prove that they hold the keys of the same user (`engines.worker_key`),
whatever `ca` says.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from .config import seconds_of
from .engines.spec import Site
from .errors import SpawnError
from .future import Future, Promise
from .here import node
from .host import HostMesh, Hosts
from .node import ROOT
from .session import session
from .shape import Shape

if TYPE_CHECKING:
    from .engines.worker_loop import WorkerLoop

TRUST = "trust_all_connections"
"""The one `ca` that Monarch knows as well."""


def attach_to_workers(
    *, private_key: object = None, ca: str, workers: Sequence[str | Future[str]], name: str | None = None
) -> HostMesh:
    """A mesh of the hosts on which worker loops wait at these addresses, with the axis `hosts`; returns at once.

    `initialized` of it is done when all are there, and fails with what is wrong with the first that is not. A loop has
    30 s to answer (`config.configure(host_spawn_ready_timeout=...)`).
    `stop` ends what runs there and leaves the loops waiting, `shutdown` ends them too. When this program ends they wait
    for the next one.

    Raises:
        ValueError: an address is none, or is there twice, or there are none.
        TypeError: an address is no text.
        NotImplementedError: `ca` is not `"trust_all_connections"`, or there is a `private_key`; or this is a rank.

    Example:
        hosts = attach_to_workers(ca="trust_all_connections", workers=["tcp://node1:26600", "tcp://node2:26600"])
        procs = hosts.spawn_procs({"gpus": 8})
    """
    _check_trust(private_key, ca)
    if node().address != ROOT:
        raise NotImplementedError("a rank cannot attach to workers: let the program do it, and pass the HostMesh on")
    if isinstance(workers, str) or not workers:
        raise ValueError(f"workers is a list of addresses, such as ['tcp://node1:26600'], not {workers!r}")
    if strange := [worker for worker in workers if not isinstance(worker, str | Future)]:  # pyright: ignore[reportUnnecessaryIsInstance] - a program may err
        raise TypeError(f"a worker is an address, or a Future of one, not {strange[0]!r}")
    return HostMesh(Shape.row_major({"hosts": len(workers)}), _WorkerHosts(workers))


def run_worker_loop_forever(*, private_key: object = None, ca: str, address: str) -> NoReturn:
    """Wait at this address for programs that attach to it, and start processes for them; ends the process (exit code 0)
    when one of them says `HostMesh.shutdown()`.

    `address` is `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`; `tcp://NAME:PORT@tcp://0.0.0.0:PORT` where others
    dial another name than that it listens at; `tcp://127.0.0.1:fd7` adopts a socket that listens.

    Raises `ValueError` for an address that is none, `OSError` where it cannot be had, `NotImplementedError` as
    `attach_to_workers` does.
    """
    run_worker_loop_until_shutdown(private_key=private_key, ca=ca, address=address)
    raise SystemExit(0)


def run_worker_loop_until_shutdown(*, private_key: object = None, ca: str, address: str) -> None:
    """The same, but returns at the end."""
    loop, end = _loop(private_key, ca, address)
    try:
        loop.serve()
    finally:
        end()


def start_worker_loop_forever(*, private_key: object = None, ca: str, address: str) -> Future[None]:
    """The same beside other code of this process: returns at once, with what is done at the end of the loop."""
    loop, end = _loop(private_key, ca, address)
    promise: Promise[None] = Promise()

    def serve() -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(end)
                loop.serve()
        except BaseException as error:  # noqa: BLE001 - the rim of the thread: who waits for the loop is told
            promise.fail(error)
        else:
            promise.resolve(None)

    threading.Thread(target=serve, name="meshbook-worker-loop", daemon=True).start()
    return promise.future


def _loop(private_key: object, ca: str, address: str) -> tuple[WorkerLoop, Callable[[], None]]:
    """A worker loop on a loop of its own, and what ends both."""
    _check_trust(private_key, ca)
    from .engines.worker_loop import WorkerLoop  # loads zmq, which one machine does without
    from .wire.reactor import Reactor

    reactor = Reactor()
    try:
        loop = WorkerLoop(reactor, address)
    except BaseException:
        reactor.close()
        raise

    def end() -> None:
        loop.close()
        reactor.close()

    return loop, end


def _check_trust(private_key: object, ca: str) -> None:
    if private_key is not None or ca != TRUST:
        raise NotImplementedError(
            f"certificates are not here: say ca={TRUST!r}, and both ends prove that they hold the keys of one user"
        )


class _WorkerHosts(Hosts):
    """Hosts of worker loops, whose addresses may still be on their way."""

    is_elsewhere = True

    def __init__(self, workers: Sequence[str | Future[str]]) -> None:
        super().__init__()
        self._workers = workers
        self._ready: Promise[bool] = Promise(session().reactor)
        if all(isinstance(worker, str) for worker in workers):
            self._engine()  # which says what is wrong with an address
        threading.Thread(target=self._attach, name="meshbook-attach", daemon=True).start()

    @property
    def ready(self) -> Future[bool]:
        return self._ready.future

    def site(self, ranks: Sequence[int]) -> Site:
        addresses = self._addresses()
        return Site(self._engine(), tuple(addresses[rank] for rank in ranks))

    def end(self) -> None:
        super().end()
        if not self._are_told:
            return  # nothing can have been started there
        engine = session().engine(self._engine())
        for roster in list(session().root.rosters.values()):
            if roster.engine is engine:  # an actor has started it, who was given these hosts, or lives there
                roster.stop_all("stopped by client").get()
        session().release(engine)

    def sync(self, folder: str) -> None:
        self._wait()
        session().sync(session().engine(self._engine()), folder, is_default=True)

    def dismiss(self) -> None:
        from .engines.workers import end_loops

        if self._are_told:
            end_loops(session().reactor, self._addresses())

    @property
    def _are_told(self) -> bool:
        """Have all addresses come?"""
        return all(isinstance(worker, str) or (worker.done() and not worker.exception()) for worker in self._workers)

    def _addresses(self) -> list[str]:
        return [worker if isinstance(worker, str) else worker.get() for worker in self._workers]

    def _engine(self) -> str:
        return session().use_workers(self._addresses(), seconds_of("host_spawn_ready_timeout"))

    def _wait(self) -> None:
        session().seats_on(self.site(range(len(self._workers))), len(self._workers))

    def _attach(self) -> None:
        try:
            self._addresses()
            if self.is_down:
                raise SpawnError("these hosts were shut down before their addresses came")
            self._wait()
        except Exception as error:  # noqa: BLE001 - the rim: whoever waits for the hosts is told, whatever it is
            self._ready.fail(error)
        else:
            self._ready.resolve(True)
