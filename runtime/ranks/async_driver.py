"""The driver of an actor whose endpoints are `async def`: a thread with an event loop, and a task for each call."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..actor import Actor, endpoints_of, plain_name
from ..scope import SERIAL
from ..shape import Point
from ..system.cores import take_share
from . import stacks
from .children import end_child
from .cleanup import PATIENCE, already_gone, cleaner, gone, owned_by, why_over
from .driver import Driver
from .failure import RemoteFailure, describe
from .strikes import AwaitedStrike, Strike, Target
from .turns import CLEANUP, CONSTRUCTOR, INTERRUPTED, Job, Work, conclude, fatal, is_interruptible, prepare
from .unlooped import without_loop

if TYPE_CHECKING:
    from .resident import Resident


CANCELLED = RemoteFailure("CancelledError", "cancelled before it began", "")
"""What a call is told whose task the user's own code has cancelled."""

LEFT_SECONDS = 1.0
"""So long the tasks that an actor leaves behind may take to end."""


class _Doing(NamedTuple):
    """What of the user's a task runs, and when it has begun, by `time.perf_counter`."""

    work: Work
    began: float


class AsyncDriver(Driver):
    """One thread with an event loop: a call begins when the one before it has ended, a concurrent one at once."""

    def __init__(self, resident: Resident) -> None:
        super().__init__(resident)
        self._loop = asyncio.new_event_loop()
        self._queue: asyncio.Queue[bool] = asyncio.Queue()  # for each job one True, then a False: the end
        self._waiting: deque[Job] = deque()  # any thread may refuse them, while the loop hears nothing
        self._hearing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._withering: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[Any] | None = None  # while it awaits an endpoint that is not concurrent
        self._turns: dict[asyncio.Task[Any], _Doing] = {}  # what of the user's they run
        self._strikes: dict[asyncio.Task[Any], AwaitedStrike] = {}

    def put(self, job: Job | Callable[[], Any]) -> None:
        if isinstance(job, Job):
            self._waiting.append(job)
            self._give_turn()
        else:
            with contextlib.suppress(RuntimeError):  # as above
                self._loop.call_soon_threadsafe(self._start, job)

    def _give_turn(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, True)
        except RuntimeError:  # it has ended, and closed its loop
            self._refuse_queued()

    def put_first(self, work: Callable[[], Any]) -> None:
        # A hook may run in the middle of an endpoint's await, as in Monarch, and not in that of another hook: one that
        # makes its mesh again would do so for each rank that has failed.
        self.put(lambda: self._hear(work))

    async def _hear(self, work: Callable[[], Any]) -> None:
        async with self._hearing:
            outcome = work()
            if inspect.isawaitable(outcome):
                await outcome

    def strikes(self) -> list[Strike]:
        self._refuse_queued(INTERRUPTED)
        turns = [(task, doing) for task, doing in list(self._turns.items()) if is_interruptible(doing.work)]
        strikes = {task: self._strike_at(task, doing, self._strikes.get(task)) for task, doing in turns}
        self._strikes.update(strikes)
        for task in list(self._strikes):
            if task not in self._turns:  # it has ended just now
                self._strikes.pop(task, None)
        return list(strikes.values())

    def _strike_at(self, task: asyncio.Task[Any], doing: _Doing, former: AwaitedStrike | None) -> AwaitedStrike:
        work = doing.work

        def is_runner(frame: FrameType) -> bool:
            return frame.f_code in _RUNNERS and frame.f_locals.get("work") is work

        target = Target(self._thread, doing.began, lambda: self._turns.get(task) is doing, is_runner)
        return AwaitedStrike(self._resident.title_of(work), target, task, former)

    def wither(self) -> None:
        """Begin to clean up, once; on the loop."""
        if self._withering is None:
            self._withering = self._loop.create_task(self._clean_up(asyncio.current_task()))

    def _put_end(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, False)
        except RuntimeError:  # it has ended by itself
            self._tell_end()

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
            if self._is_cut:
                self._refuse_running()
                self._resident.close_ports()
            self._tell_end()

    def _refuse_running(self) -> None:
        """Who waits for what was cancelled and goes on all the same is told; an answer of its own comes too late."""
        for doing in list(self._turns.values()):
            if isinstance(doing.work, Job):
                self._resident.refuse(doing.work)

    def _refuse_queued(self, why: RemoteFailure | None = None) -> None:
        kept: list[Job] = []
        with contextlib.suppress(IndexError):  # that was the last one
            while True:
                job = self._waiting.popleft()
                if why is None or is_interruptible(job):
                    self._resident.refuse(job, why)
                else:
                    kept.append(job)
        self._waiting.extendleft(reversed(kept))
        for _ in kept:  # the loop may have looked meanwhile and found none; a turn too many does no harm
            self._give_turn()

    def _run(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        take_share()
        asyncio.set_event_loop(self._loop)
        self._thread = threading.get_ident()
        stacks.loops[self._thread] = self._loop
        life = self._loop.create_task(self._live(on_made, point, run))
        try:
            while not life.done():
                self._live_on(life)
        finally:
            self._end_tasks()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            del stacks.loops[self._thread]
            self._loop.close()
            self._tell_end()

    def _end_tasks(self) -> None:
        """Cancel what its code has left running, so that it may release what it holds."""
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            with contextlib.suppress(SystemExit):  # of one of them, which ends nothing more
                self._loop.run_until_complete(asyncio.wait(left, timeout=LEFT_SECONDS))

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
        said = resident.begin_creation(point, run)
        resident.conclude_creation(*await self._run_users(CONSTRUCTOR, self._construct()), said)
        on_made(resident.failure)
        while await self._next():
            try:
                job = self._waiting.popleft()
            except IndexError:
                continue  # it was refused
            if is_concurrent(resident, job.call.endpoint):
                self._stand_in(self._start(lambda job=job: self._serve(job)), job)
            else:
                # As a task of its own: the user's code may cancel that one, also when the call is over.
                self._serving = self._loop.create_task(self._serve(job), name=SERIAL)
                self._stand_in(self._serving, job)
                await self._end_of(self._serving)
                self._serving = None
        self._enter_end()
        self.wither()
        assert self._withering is not None
        await self._withering

    async def _next(self) -> bool:
        """Whether there is a job, and not the end. User code that cancels all tasks of the loop ends no actor."""
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                return await self._queue.get()

    async def _end_of(self, task: asyncio.Task[None]) -> None:
        """Wait for it; who cancels this wait does not cancel the task."""
        while not task.done():
            ended = self._loop.create_future()
            task.add_done_callback(lambda _, ended=ended: ended.done() or ended.set_result(None))
            with contextlib.suppress(asyncio.CancelledError):
                await ended

    async def _construct(self) -> Actor:
        return self._resident.maker()()

    async def _clean_up(self, cause: asyncio.Task[Any] | None) -> None:
        """Cancel what runs besides the task that brought the end; then owned meshes stop, then the hook runs."""
        self._enter_itself()
        tasks = [task for task in (*self._tasks, self._serving) if task is not None and task is not cause]
        for task in tasks:
            task.cancel()
        if tasks:
            ended, _ = await asyncio.wait(tasks, timeout=PATIENCE)
            for task in ended:
                _ = task.cancelled() or task.exception()  # asyncio would say that nobody has looked
            self._refuse_running()
        why = why_over(self._resident)
        for mesh in owned_by(self._resident.instance):
            with already_gone():
                await asyncio.wait_for(mesh.stop(why), PATIENCE)
        self._resident.close_ports()
        _, error = await self._run_users(CLEANUP, self._run_hook())
        gone(self._resident, error)

    async def _run_hook(self) -> None:
        outcome = without_loop(cleaner(self._resident))()
        if inspect.isawaitable(outcome):
            await outcome

    async def _run_users(self, work: Work, coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
        """Await a constructor or `__cleanup__`: what it gives, or its error."""
        result, error = None, None
        task = asyncio.current_task()
        assert task is not None
        self._turns[task] = _Doing(work, time.perf_counter())
        try:
            result = await coroutine
        except BaseException as raised:  # noqa: BLE001 - the rim: it is the actor's end, or goes to the log
            error = raised
        del self._turns[task]
        try:
            error = self._end_strikes(task, error)[1]
            end_child(error)
            return result, error
        finally:
            error = None  # as in the driver of sync actors

    def _end_strikes(self, task: asyncio.Task[Any], error: BaseException | None) -> tuple[bool, BaseException | None]:
        """What the task ran has ended so: whether it was interrupted, and how that makes it end."""
        is_struck = False
        while (strike := self._strikes.get(task)) is not None:
            is_struck = strike.end() or is_struck
            if strike.has_cancelled() and error is not None:
                error = KeyboardInterrupt("interrupted")
            if self._strikes.get(task) is strike:  # and not one after it
                del self._strikes[task]
        return is_struck, error

    def _stand_in(self, task: asyncio.Task[None], job: Job) -> None:
        """Answer for a task that is cancelled, also one that has not begun: nothing of its own runs then."""

        def refuse(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                is_ending = self._is_cut or self._withering is not None
                self._resident.refuse(job, None if is_ending else CANCELLED)

        task.add_done_callback(refuse)

    def _start(self, work: Callable[[], Any]) -> asyncio.Task[None]:
        async def run() -> None:
            self._enter_itself()
            outcome = work()
            if inspect.isawaitable(outcome):
                await outcome

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, work: Job) -> None:
        resident = self._resident
        if resident.failure is not None:
            resident.refuse(work)
            return
        turn = resident.begin_turn(work)
        result, error = None, None
        port = None
        is_struck = False
        task = asyncio.current_task()
        assert task is not None
        self._turns[task] = _Doing(work, turn.started)
        try:
            method, args, kwargs, port = prepare(resident, work)
            result = method(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError as cancelled:
            if self._withering is not None:
                raise
            if self._is_cut and task is self._serving:
                task.uncancel()
                resident.refuse(work)
                return
            error = cancelled  # of something that the endpoint waited for: its own affair, and not the driver's end
        except BaseException as raised:  # noqa: BLE001 - the rim: it travels to the caller, or to the owner
            error = raised
        finally:
            del self._turns[task]
        if self._strikes:
            is_struck, error = self._end_strikes(task, error)
        end_child(error)
        is_concurrent = task is not self._serving
        conclude(resident, turn, result, error, port, is_struck=is_struck, is_concurrent=is_concurrent)
        error = None  # as above


def is_concurrent(resident: Resident, name: str) -> bool:
    found = endpoints_of(type(resident.actor)).get(plain_name(name)) if resident.actor is not None else None
    return found is not None and found.is_concurrent


_RUNNERS = {AsyncDriver._serve.__code__, AsyncDriver._run_users.__code__}  # pyright: ignore[reportPrivateUsage]
