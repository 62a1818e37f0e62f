"""Drivers: each actor has one, which takes its messages in order and runs its endpoints one at a time.

A sync actor has a thread of its own, so that it may block on other actors; an async actor has a thread with an event
loop. (The actor that runs cells has the main thread: `mailbox`.)
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import Any

from ..actor import GIVEN_PORT, WITH_PORT, Actor, endpoints_of, plain_name
from ..cores import take_share
from ..limits import check_size
from ..scope import SERIAL, Context, Instance, enter
from ..shape import Point
from ..wire import codec
from ..wire.messages import Call, Reply
from . import log_names, stacks
from .cleanup import PATIENCE, already_gone, awaited, clean_up, cleaner, log_unclean, owned_by
from .failure import RemoteFailure, describe
from .intake import Jobs
from .turns import AnswerTo, Found, Job, Turn, conclude, fatal, prepare, run_of
from .unlooped import without_loop

CANCEL_SECONDS = 1.0
"""What an async actor still awaits so long after it was ended is cancelled."""


class Resident:
    """An actor that lives in this process, with what its driver needs to know of it."""

    def __init__(
        self,
        instance: Instance,
        make: Callable[[], Actor],
        is_async: bool,
        make_port: Callable[[Call, AnswerTo], Any],
        on_dead: Callable[[Resident], None],
        jobs: Jobs,
        begin_run: Callable[[int], int],
        flush: Callable[[int], bool],
        settle: Callable[[], None],
    ) -> None:
        self.instance = instance
        self._make: Callable[[], Actor] | None = make  # until it is made: it holds the constructor's arguments
        self.is_async = is_async
        self._make_port = make_port
        self._ports: list[Any] = []
        self._context = Context(instance, instance.rank)  # of the last message: the next is as a rule in the same view
        self.on_dead = on_dead
        self.begin_run = begin_run
        self.flush = flush
        self.settle = settle
        self.actor: Actor | None = None
        self._found: dict[str, Found] = {}
        self.failure: RemoteFailure | None = None
        """Why it is dead; None while it lives."""
        self.is_clean = False
        """Whether `__cleanup__` has been called."""
        instance.on_kill = self._abort
        instance.is_in_logs = True
        log_names.install()
        self._driver: _Sync | _Async = _Async(self) if is_async else _Sync(self, jobs)
        self.put: Callable[[Job | Callable[[], Any]], None] = self._driver.put
        """Takes a message, or something to be done between two messages."""
        self.put_first: Callable[[Callable[[], Any]], None] = self._driver.put_first
        """Takes something to be done before all messages that wait."""

    def begin(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        """Start the driver; it makes the actor first, in this run, and tells how that went."""
        self._driver.start(on_made, point, run)

    def create(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        """Make the actor, on the thread of its driver."""
        self.settle()
        enter(Context(self.instance, point))
        said = self.begin_run(run)
        assert self._make is not None
        try:
            self.actor = self._make()
        except BaseException as error:  # noqa: BLE001 - the rim: every call to this actor will tell it
            self.die(fatal(describe(error), self))
        self._make = None
        self.flush(said)
        on_made(self.failure)

    def end(self, then: Callable[[], None]) -> None:
        """Stop after what is queued; `then` is called when `__cleanup__` has run."""
        self._driver.end(then)

    def let_go(self) -> None:
        """It has cleaned up: the memory that its actor holds, of a GPU too, may be wanted for the next one."""
        self.actor = None
        self._found.clear()

    def cancel(self) -> None:
        """It was to end, and has had its time: what is queued is refused, and what it awaits is cancelled."""
        self._driver.cancel()

    def leave(self) -> None:
        """It still works on what cannot be cancelled: what is queued is refused, and nobody waits for its end any more.

        It keeps its thread. `__cleanup__` runs if the constructor or endpoint ever returns, for as long as it takes.
        """
        self._driver.leave()

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
        has_given_port = wire_name.endswith(GIVEN_PORT)
        if declared is None:
            wants_port = wire_name.endswith(WITH_PORT)
            return Found(self._plain(name), wants_port, has_given_port, is_declared=False)
        wants_port = declared.explicit_response_port and not has_given_port
        return Found(declared.method.__get__(self.actor), wants_port, has_given_port, is_declared=True)

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
            self._driver.wither()

    def refuse(self, job: Job) -> None:
        """Answer a message that comes too late, or whose work was cut short."""
        if job.call.wants_reply:
            job.answer(Reply(job.call.seq, False), codec.encode(self._why_gone()))

    def open_port(self, job: Job) -> Any:
        """A port to answer a call through, whenever the actor wants; when it ends, what is open is answered for it."""
        self._ports = [port for port in self._ports if not port.is_used]
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
        return Turn(job, self.begin_run(run_of(job.call)), time.perf_counter())

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
            job.answer(Reply(job.call.seq, ok, time.perf_counter() - turn.started, talked), payload)
        except MemoryError as too_much:
            job.answer(Reply(job.call.seq, False, 0.0, talked), codec.encode(describe(too_much)))

    def _abort(self, reason: str) -> None:
        failure = fatal(RemoteFailure("Aborted", reason, ""), self)
        self.put(lambda: self.die(failure))  # between two messages, on the actor's own thread


class _Sync:
    """One thread that runs constructor, endpoints and hooks."""

    def __init__(self, resident: Resident, jobs: Jobs) -> None:
        self._resident = resident
        self._queue = jobs
        self.put: Callable[[Job | Callable[[], Any] | None], None] = jobs.put
        self._urgent: deque[Callable[[], Any]] = deque()
        self._ends: list[Callable[[], None]] = []
        self._is_working = False  # on a constructor or an endpoint
        self._is_cut = False

    def put_first(self, work: Callable[[], Any]) -> None:
        self._urgent.append(work)
        self.put(_nothing)  # for who waits for a message

    def wither(self) -> None:
        clean_up(self._resident)

    def start(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        threading.Thread(
            target=self._run,
            args=(on_made, point, run),
            name=f"meshbook-actor-{self._resident.instance.name}",
            daemon=True,
        ).start()

    def end(self, then: Callable[[], None]) -> None:
        self._ends.append(then)
        self.put(None)

    def cancel(self) -> None:
        """What it works on cannot be."""

    def leave(self) -> None:
        if self._is_working:
            self._is_cut = True
            self._refuse_queued()
            self._tell_end()

    def _refuse_queued(self) -> None:
        others: list[Any] = []
        with contextlib.suppress(Empty):
            while True:
                job = self._queue.get_nowait()
                if isinstance(job, Job):
                    self._resident.refuse(job)
                else:
                    others.append(job)
        for other in others:
            self.put(other)

    def _tell_end(self) -> None:
        with contextlib.suppress(IndexError):  # another thread has told it
            self._ends.pop()()

    def _run(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        resident = self._resident
        take_share()
        self._is_working = True
        resident.create(on_made, point, run)
        self._is_working = False
        while (job := self._queue.get()) is not None:
            while self._urgent:
                enter(Context(resident.instance, resident.instance.rank))
                self._urgent.popleft()()
            if isinstance(job, Job):
                self._serve(job)
            else:
                enter(Context(resident.instance, resident.instance.rank))
                job()
        enter(Context(resident.instance, resident.instance.rank))
        clean_up(resident)
        self._tell_end()

    def _serve(self, job: Job) -> None:
        resident = self._resident
        if resident.failure is not None or self._is_cut:
            resident.refuse(job)
            return
        self._is_working = True
        turn = resident.begin_turn(job)
        result, error = None, None
        port = None
        try:
            method, args, kwargs, port = prepare(resident, job)
            result = method(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - the rim: it travels to the caller, or to the owner
            error = raised
        conclude(resident, turn, result, error, port)
        error = None  # its traceback has this frame, and all that the user's frames hold: a circle
        self._is_working = False


class _Async:
    """One thread with an event loop: endpoints are awaited one after the other, concurrent ones become tasks."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._loop = asyncio.new_event_loop()
        self._queue: asyncio.Queue[bool] = asyncio.Queue()  # for each job one True, then a False: the end
        self._waiting: deque[Job] = deque()  # any thread may refuse them, while the loop hears nothing
        self._tasks: set[asyncio.Task[None]] = set()
        self._withering: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[Any] | None = None  # while it awaits an endpoint that is not concurrent
        self._is_cut = False
        self._ends: list[Callable[[], None]] = []

    def put(self, job: Job | Callable[[], Any]) -> None:
        if isinstance(job, Job):
            self._waiting.append(job)
            self._loop.call_soon_threadsafe(self._queue.put_nowait, True)
        else:
            self.put_first(job)

    def put_first(self, work: Callable[[], Any]) -> None:
        # A hook may run in the middle of an endpoint's await, as in Monarch.
        self._loop.call_soon_threadsafe(self._start, work)

    def wither(self) -> None:
        """Begin to clean up, once; on the loop."""
        if self._withering is None:
            self._withering = self._loop.create_task(self._clean_up(asyncio.current_task()))

    def start(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        threading.Thread(
            target=self._run,
            args=(on_made, point, run),
            name=f"meshbook-actor-{self._resident.instance.name}",
            daemon=True,
        ).start()

    def end(self, then: Callable[[], None]) -> None:
        self._ends.append(then)
        self._loop.call_soon_threadsafe(self._queue.put_nowait, False)

    def cancel(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended, and closed its loop
            self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        if self._serving is None:
            return
        self._is_cut = True
        self._refuse_queued()
        self._serving.cancel()

    def leave(self) -> None:
        if self._withering is None:
            self._refuse_queued()
            self._tell_end()

    def _refuse_queued(self) -> None:
        with contextlib.suppress(IndexError):  # that was the last one
            while True:
                self._resident.refuse(self._waiting.popleft())

    def _tell_end(self) -> None:
        with contextlib.suppress(IndexError):  # another thread has told it
            self._ends.pop()()

    def _run(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        take_share()
        asyncio.set_event_loop(self._loop)
        stacks.loops[threading.get_ident()] = self._loop
        life = self._loop.create_task(self._live(on_made, point, run))
        try:
            while not life.done():
                self._live_on(life)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            del stacks.loops[threading.get_ident()]
            self._loop.close()
            self._tell_end()

    def _live_on(self, life: asyncio.Task[None]) -> None:
        try:
            self._loop.run_until_complete(life)
        except BaseException as error:
            if life.done():
                raise
            # A task or callback of the user's own has called sys.exit(), which ends the loop at once, not its tasks.
            self._loop.call_soon(self._resident.die, fatal(describe(error), self._resident))

    async def _live(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        resident = self._resident
        resident.create(on_made, point, run)
        task = asyncio.current_task()
        assert task is not None
        task.set_name(SERIAL)
        while await self._queue.get():
            try:
                job = self._waiting.popleft()
            except IndexError:
                continue  # it was refused
            if is_concurrent(resident, job.call.endpoint):
                self._start(lambda job=job: self._serve(job))
            else:
                self._serving = task
                await self._serve(job)
                self._serving = None
        enter(Context(resident.instance, resident.instance.rank))
        self.wither()
        assert self._withering is not None
        await self._withering

    async def _clean_up(self, cause: asyncio.Task[Any] | None) -> None:
        """Cancel what runs besides the task that brought the end; then owned meshes stop, then the hook runs."""
        tasks = [task for task in self._tasks if task is not cause]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for mesh in owned_by(self._resident.instance):
            with already_gone():
                await asyncio.wait_for(awaited(mesh.stop()), PATIENCE)
        self._resident.close_ports()
        hook = cleaner(self._resident)
        try:
            outcome = without_loop(hook)()
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as error:  # noqa: BLE001 - the rim: nobody is left to hear of it but the log
            log_unclean(self._resident, error)
        self._resident.let_go()

    def _start(self, work: Callable[[], Any]) -> None:
        async def run() -> None:
            enter(Context(self._resident.instance, self._resident.instance.rank))
            outcome = work()
            if inspect.isawaitable(outcome):
                await outcome

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, job: Job) -> None:
        resident = self._resident
        if resident.failure is not None:
            resident.refuse(job)
            return
        turn = resident.begin_turn(job)
        result, error = None, None
        port = None
        try:
            method, args, kwargs, port = prepare(resident, job)
            result = method(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError as cancelled:
            if self._withering is not None:
                resident.refuse(job)
                raise
            if self._is_cut and (task := asyncio.current_task()) is self._serving and task is not None:
                task.uncancel()
                resident.refuse(job)
                return
            error = cancelled  # of something that the endpoint waited for: its own affair, and not the driver's end
        except BaseException as raised:  # noqa: BLE001 - the rim: it travels to the caller, or to the owner
            error = raised
        conclude(resident, turn, result, error, port)
        error = None  # as above


def is_concurrent(resident: Resident, name: str) -> bool:
    found = endpoints_of(type(resident.actor)).get(plain_name(name)) if resident.actor is not None else None
    return found is not None and found.is_concurrent


def _nothing() -> None: ...
