"""An actor that lives in this process, and what its driver needs to know of it.

A driver takes the messages of its actor in order and runs its endpoints one at a time. A sync actor has a thread of its
own, so that it may block on other actors; an async actor has a thread with an event loop. (The actor that runs cells
has the main thread: `mailbox`.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from time import perf_counter
from typing import Any

from ..actor import GIVEN_PORT, KEPT, WITH_PORT, Actor, endpoints_of, is_careful, kind_of, plain_name
from ..groups.models import begin_steps
from ..limits import check_size
from ..scope import Context, Instance, enter
from ..shape import Point
from ..wire import codec
from ..wire.messages import Call, Reply
from . import log_names
from .async_driver import AsyncDriver
from .driver import Driver
from .failure import RemoteFailure, describe
from .intake import Jobs
from .place import nearest
from .strikes import Strike
from .sync_driver import SyncDriver
from .turns import AnswerTo, Found, Job, Turn, Work, fatal, run_of
from .unlooped import without_loop

CANCEL_SECONDS = 1.0
"""What an async actor still awaits so long after it was ended is cancelled."""


class Resident:
    """An actor that lives in this process, with what its driver needs to know of it."""

    def __init__(
        self,
        instance: Instance,
        cls: type[Actor],
        make: Callable[[], Actor],
        make_port: Callable[[Call, AnswerTo], Any],
        on_dead: Callable[[Resident], None],
        jobs: Jobs,
        begin_run: Callable[[int], int],
        flush: Callable[[int], bool],
        settle: Callable[[], None],
    ) -> None:
        self.instance = instance
        self._make: Callable[[], Actor] | None = make
        self._is_careful = is_careful(cls)
        self.is_async = kind_of(cls) == "async"
        self._make_port = make_port
        self._ports: list[Any] = []
        self._most_ports = 16
        self._context = Context(instance, instance.rank)  # of the last message: the next is as a rule in the same view
        self.on_dead = on_dead
        self.begin_run = begin_run
        self.flush = flush
        self.settle = settle
        self.actor: Actor | None = None
        self._found: dict[str, Found] = {}
        self.failure: RemoteFailure | None = None
        """Why it is dead; None while it lives."""
        self._has_left = False  # what it has raised last is kept
        self.is_clean = False
        """Whether `__cleanup__` has been called."""
        instance.on_kill = self._abort
        instance.is_in_logs = True
        log_names.install()
        self.driver: Driver = AsyncDriver(self) if self.is_async else SyncDriver(self, jobs)
        self.put: Callable[[Job | Callable[[], Any]], None] = self.driver.put
        """Takes a message, or something to be done between two messages."""

    def begin_creation(self, point: Point, run: int) -> int:
        """On the thread of its driver: how much was said before."""
        self.settle()
        self._let_go_of_error()
        enter(Context(self.instance, point))
        return self.begin_run(run)

    def maker(self) -> Callable[[], Actor]:
        """What makes the actor, once: it holds the constructor's arguments, which nobody else is to keep."""
        make, self._make = self._make, None
        assert make is not None
        return make

    def conclude_creation(self, actor: Actor | None, error: BaseException | None, said: int) -> None:
        """It is made, or cannot be: then every call to this actor will tell why."""
        self.actor = actor
        if error is not None:
            self.leave_behind(error)
            self.die(fatal(describe(error), self))
        self.flush(said)

    def let_go(self) -> None:
        """It has cleaned up: the memory that its actor holds, of a GPU too, may be wanted for the next one."""
        self.actor = None
        self._found.clear()
        if self.failure is None:
            self._let_go_of_error()

    def strikes(self) -> list[Strike]:
        """Interrupts of all that it works on; what waits is refused. For `strike_all`, on any thread."""
        return [] if self._is_careful else self.driver.strikes()

    def title_of(self, work: Work) -> str:
        """What runs for it, as `trainer.step`."""
        return f"{self.instance.name}.{work if isinstance(work, str) else plain_name(work.call.endpoint)}"

    def find(self, wire_name: str) -> Found:
        """What a call of this name runs."""
        found = self._found.get(wire_name)
        if found is None:
            found = self._look_up(wire_name)
            if found.is_declared:  # a plain method may be another one at the next call
                self._found[wire_name] = found
        return found

    def _look_up(self, wire_name: str) -> Found:
        assert self.actor is not None
        name = plain_name(wire_name)
        declared = endpoints_of(type(self.actor)).get(name)
        has_given_port, is_kept = wire_name.endswith(GIVEN_PORT), wire_name.endswith(KEPT)
        if declared is None:
            wants_port = wire_name.endswith(WITH_PORT)
            return Found(self._plain(name), wants_port, has_given_port, is_kept, is_declared=False)
        wants_port = declared.explicit_response_port and not has_given_port
        return Found(declared.method.__get__(self.actor), wants_port, has_given_port, is_kept, is_declared=True)

    def _plain(self, name: str) -> Callable[..., Any]:
        """A method that is no endpoint, but was called as one."""
        method = getattr(self.actor, name)
        if not inspect.iscoroutinefunction(method):
            return without_loop(method) if self.is_async else method
        if not self.is_async:
            raise TypeError(
                f"{self.instance.name}.{name} is an async def method, but its actor's endpoints are all def, "
                "so it has no event loop to run on"
            )
        return method

    def die(self, failure: RemoteFailure) -> None:
        """The actor has failed for good: whoever calls it from now on is told why."""
        if self.failure is None:
            self.failure = failure
            self.on_dead(self)
            self.driver.wither()

    def refuse(self, job: Job, why: RemoteFailure | None = None) -> None:
        """Answer a message that comes too late, or whose work was cut short."""
        if job.call.wants_reply:
            job.answer(Reply(job.call.seq, False), codec.encode(why or self._why_gone()))

    def open_port(self, job: Job) -> Any:
        """A port to answer a call through, whenever the actor wants; when it ends, what is open is answered for it."""
        if len(self._ports) >= self._most_ports:
            self._ports = [port for port in self._ports if not port.is_used]
            self._most_ports = 16 + 2 * len(self._ports)  # to look at all of them for each call would take long
        self._ports.append(self._make_port(job.call, job.answer))
        return self._ports[-1]

    def close_ports(self) -> None:
        """The actor will not answer any more."""
        for port in self._ports:
            port.refuse(self._why_gone())
        self._ports.clear()

    def _why_gone(self) -> RemoteFailure:
        stopped = RemoteFailure("Stopped", "the actor has status: stopped, before it answered this", "")
        return self.failure or fatal(stopped, self)

    def begin_turn(self, job: Job) -> Turn:
        """The calling thread or task begins to work on a message."""
        if self._context.message_rank is not job.point:
            self._context = Context(self.instance, job.point)
        enter(self._context)
        self.instance.turn += 1
        if self._has_left:
            self._let_go_of_error()
        begin_steps()
        return Turn(job, self.begin_run(run_of(job.call)), perf_counter())

    def leave_behind(self, error: BaseException) -> None:
        """Keep what its code has raised for a debugger, if there is one here."""
        place = nearest()
        if place is not None and place.remains is not None and isinstance(error, Exception):
            self._has_left = True
            place.remains.keep(self.instance.name, error)

    def _let_go_of_error(self) -> None:
        self._has_left = False
        place = nearest()
        if place is not None and place.remains is not None:
            place.remains.let_go(self.instance.name)

    def reply(self, turn: Turn, result: object, error: BaseException | None) -> None:
        """Answer with the result, or with the error: an ordinary one leaves the actor alive."""
        ok = error is None
        try:
            value = describe(error) if error is not None else result
            payload = codec.quick((value,), value) or check_size((value,), lambda: codec.encode(value), "an answer")
        except BaseException as unfit:  # noqa: BLE001 - the rim: so does what a __reduce__ of the user's raises
            ok, payload = False, codec.encode(describe(unfit))
        job, talked = turn.job, self.flush(turn.said)
        try:
            job.answer(Reply(job.call.seq, ok, perf_counter() - turn.started, talked), payload)
        except MemoryError as too_much:
            job.answer(Reply(job.call.seq, False, 0.0, talked), codec.encode(describe(too_much)))

    def _abort(self, reason: str) -> None:
        failure = fatal(RemoteFailure("Aborted", reason, ""), self)
        self.put(lambda: self.die(failure))  # between two messages, on the actor's own thread
