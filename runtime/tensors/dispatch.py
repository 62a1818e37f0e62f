"""The controller's side of distributed tensors: operations are collected, and sent to the ranks in batches."""

# pyright: reportPrivateUsage=false
# Meshes keep their members private: every public one is a name that no endpoint of an actor can have.

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet, ref

import torch

from ..adverbs import Endpoint, Gather
from ..cells import Line
from ..controller.roster import Roster
from ..errors import SupervisionError, marked
from ..future import Future, Promise
from ..mesh import ProcMesh
from ..shape import Shape
from ..wire.codec import EncodeError, encode
from ..wire.deferred import Deferred, untorn
from . import lost_presses
from .brake import leave_out
from .on_ranks import Unsent
from .program import Op, Poison, split_story
from .seeds import seeding
from .transfer import Receiver, Send
from .worker import TensorWorker

BATCH = 100
"""Operations of one message; more would be no quicker, and ranks would wait longer for work."""

LINGER = 0.001
"""Seconds after which fewer are sent, too."""

DROPPED_LINGER = 0.1
"""Seconds after which ranks are told what they may forget, if no operation goes out before."""

DROPPED_LOOK = 0.5
"""Seconds between two looks at what the program has dropped, while it does nothing else."""

AHEAD = 8
"""Batches that ranks may be behind; then the controller waits for them, and Ctrl-C finds it waiting."""

REMEMBERED = 1 << 16
"""Operations whose places in the program are remembered, for errors."""

_numbers = itertools.count(1)


class _Kept(ref[Any]):
    """Of a value that is still referred to. That it is not any more is noted by C code alone.

    In a `__del__`, of which a program runs thousands, Ctrl-C would be swallowed.
    """

    __slots__ = ("number", "shape")
    number: int
    shape: Shape


class _Dropped(NamedTuple):
    """What the ranks may forget, of which nobody has taken notice."""

    number: int
    shape: Shape


class Dispatcher:
    """Sends operations to the ranks of one mesh of processes and its slices."""

    def __init__(self, procs: ProcMesh) -> None:
        fleet = procs._fleet
        self._fleet, self._number = fleet, fleet.mesh
        self._reactor = fleet.reactor
        self._linked: WeakSet[Dispatcher] = WeakSet()
        self._ops: list[Op] = []
        self._is_lingering = self._forgets_soon = False  # will those, and what was dropped, be sent soon?
        self._shape: Shape | None = None  # where those go
        self._kept: dict[int, _Kept] = {}
        self._dropped: deque[_Kept | _Dropped] = deque()  # tensors are dropped in any thread, also by the collector
        self._sent: deque[Future[Any]] = deque()
        self._places: deque[tuple[int, Line | None]] = deque(maxlen=REMEMBERED)
        self._last = 0  # the number of the operation that was issued last
        self._lock = threading.RLock()  # the loop sends what lingers, while others add to it
        self._dtype = torch.get_default_dtype()  # with which those are computed
        self._settle()

    def _settle(self) -> None:
        """Have actors on all ranks that the mesh has now."""
        fleet = self._fleet
        self.axes = dict(fleet.axes)
        self._whole = ProcMesh(fleet, Shape.row_major(self.axes) if self.axes else Shape.unity(), is_owned=False)
        self._worker: Any = self._whole.spawn("tensors", TensorWorker, torch.initial_seed())
        self._receivers: Any = None
        self._seeded = seeding(), self._processes_now()

    def follow_resize(self) -> None:
        """The mesh has got more ranks or fewer: those that stay have their values still, for the new actors too.

        These are to find them, so that what was issued before is computed first.
        """
        self.send_waiting()
        while (batch := self._oldest(lambda: bool(self._sent))) is not None:
            _check(batch)
        with self._lock:
            self._settle()

    def issue(
        self,
        shape: Shape,
        function: str | Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Sequence[int | None],
        spoils: Sequence[int] = (),
        *,
        is_random: bool = False,
    ) -> None:
        """Compute on the ranks of this shape."""
        __tracebackhide__ = True
        try:
            where = place()
            told = None if isinstance(function, str) else where
            op = Op(next(_numbers), function, args, kwargs, tuple(outputs), tuple(spoils), is_random, told)
            if is_random:
                self._follow_seed()
            self._add(op, shape, where)
            while (batch := self._oldest(lambda: len(self._sent) > AHEAD)) is not None:
                _check(batch)
        except KeyboardInterrupt as stop:
            self.interrupted()
            marked(stop)  # wherever it hit us
            raise

    @property
    def is_over(self) -> bool:
        """Was the mesh taken down, or resized to another one?"""
        return self._fleet.is_stopped or self._fleet.mesh != self._number

    def keep(self, value: object, number: int, shape: Shape) -> None:
        """The ranks forget what has this number when nobody refers to `value` any more."""
        kept = self._kept[number] = _Kept(value, self._dropped.append)
        kept.number, kept.shape = number, shape
        self._look_after(DROPPED_LINGER)

    def drop(self, number: int, shape: Shape) -> None:
        """The ranks may forget it."""
        self._dropped.append(_Dropped(number, shape))
        self._look_after(DROPPED_LINGER)

    def flush(self) -> None:
        """Send what has been collected. Raises what a batch that went before could not be read for."""
        self.send_waiting()
        while (batch := self._oldest(lambda: bool(self._sent) and self._sent[0].done())) is not None:
            _check(batch)

    def send_waiting(self) -> None:
        """Send what has lingered; also on the loop, which must not wait for answers."""
        with self._lock:
            if not self.is_over:  # the values have gone with the mesh, and another one may be linked to this
                self._send()

    def fetch(self, shape: Shape, numbers: Sequence[int], rank: int) -> Future[Any]:
        """The values on one rank of this shape, by its place there; with what has failed on any (`TensorWorker`)."""
        self._flush_all()
        return self._on(shape).fetch.call(list(numbers), rank)

    def endpoint(self, shape: Shape) -> Endpoint[Any, Any]:
        """By which the ranks of this shape call a function, after what was issued before."""
        self._flush_all()
        return self._on(shape).compute

    @untorn  # people press again
    def interrupted(self) -> None:
        """Ctrl-C while something is waited for: what ranks have not begun is left out (`brake`).

        Also on meshes that send to this one or get something from it: one may wait for the other.
        """
        for each in self._all_linked():
            each._leave_out()

    def link(self, target: Dispatcher) -> Any:
        """From now on tensors go from this mesh to that one; the actors there that take them in."""
        with _linking:
            self._linked.add(target)
            target._linked.add(self)
        return target.receivers()

    def receivers(self) -> Any:
        """The actors that take in what operations of this mesh wait for."""
        with self._lock:
            if self._receivers is None:
                self._receivers = self._whole.spawn("receivers of tensors", Receiver)
            return self._receivers

    def place_of(self, number: int) -> Line | None:
        """Where in the program this operation was issued, if it was on this mesh and that is known still."""
        return next((where for issued, where in self._places.copy() if issued == number), None)

    def _oldest(self, is_due: Callable[[], bool]) -> Future[Any] | None:
        """Take the batch that was sent first, if that is due: several threads may ask."""
        with self._lock:
            return self._sent.popleft() if is_due() else None

    def _flush_all(self) -> None:
        """Somebody waits for this mesh: those that may send to it do not linger either."""
        for each in self._all_linked():
            each.send_waiting()
        self.flush()

    def _all_linked(self) -> list[Dispatcher]:
        found: list[Dispatcher] = [self]
        with _linking:
            for each in found:  # it grows meanwhile
                found += [other for other in each._linked if other not in found]
        return found

    def _leave_out(self) -> None:
        if self.is_over:
            return
        with self._lock:
            self._send()
            last = self._last
        leave_out(self._whole.spawn, last)  # not with the lock, which the loop wants that brings the answers

    def _add(self, op: Op, shape: Shape, where: Line | None) -> None:
        with self._lock:
            dtype = torch.get_default_dtype()
            if self._shape != shape or self._dtype != dtype:
                self._send()
                self._shape, self._dtype = shape, dtype
            self._last = op.number
            self._ops.append(op)
            self._places.append((op.number, where))
            if len(self._ops) >= BATCH:
                self._send()
            elif len(self._ops) == 1:
                self._send_soon()

    def _send_soon(self) -> None:
        if not self._is_lingering:
            self._is_lingering = True
            self._after(LINGER, self._send_lingering)

    def _after(self, seconds: float, send: Callable[[], object]) -> None:
        # By the loop itself, as it may sleep: it would not look at its timers before something comes.
        self._reactor.schedule(lambda: self._reactor.later(seconds, send))

    def _look_after(self, seconds: float) -> None:
        if not (self._forgets_soon or self.is_over):
            self._forgets_soon = True
            self._after(seconds, self._send_dropped)

    def _send_dropped(self) -> None:
        """Each time those of one view of the mesh."""
        self._forgets_soon = False
        if self._dropped:
            self._send_lingering()
        if self._dropped or self._kept:
            self._look_after(DROPPED_LINGER if self._dropped else DROPPED_LOOK)

    def _send_lingering(self) -> None:
        with contextlib.suppress(EncodeError):  # told to who asks for what was to come of it
            self.send_waiting()

    def _send(self) -> None:
        """Send what was collected. Raises `EncodeError` for a function that cannot be sent; the others are."""
        with Deferred() as interrupt:  # what was taken to be sent must not be lost
            self._is_lingering = False
            ops, self._ops, shape, self._shape = self._ops, [], self._shape, None
            if shape is None and self._dropped:
                shape = self._dropped[0].shape
            if shape is not None:
                self._send_batch(self._on(shape), ops, self._take_dropped(shape))
        if interrupt.came:
            interrupt.deliver()

    def _send_batch(self, workers: Any, ops: Sequence[Op], dropped: Sequence[int]) -> None:
        try:
            self._sent.append(_run(workers, ops, dropped, self._dtype))
        except EncodeError:
            self._sent.append(_run(workers, [*map(_sendable, ops)], dropped, self._dtype))
            raise

    def _take_dropped(self, shape: Shape) -> list[int]:
        """Those of this shape; others wait for a batch of theirs."""
        taken = [self._dropped.popleft() for _ in range(len(self._dropped))]
        self._dropped.extend(each for each in taken if each.shape != shape)
        numbers = [each.number for each in taken if each.shape == shape]
        for number in numbers:
            self._kept.pop(number, None)
        return numbers

    def _on(self, shape: Shape) -> Any:
        return self._worker._new_with_shape(shape)

    def _follow_seed(self) -> None:
        """`torch.manual_seed` on the controller holds for the mesh; and all begin again where one is a new process."""
        now = seeding(), self._processes_now()
        if now != self._seeded:
            self._seeded = now
            with self._lock:
                self._send()
                self._sent.append(self._worker.seed.call(torch.initial_seed()))

    def _processes_now(self) -> list[int]:
        return [state.pid for state in self._fleet.states.values()] if isinstance(self._fleet, Roster) else []


def _sendable(op: Op) -> Op:
    """The same, or what says on the ranks why it could not be sent."""
    if isinstance(op.function, str):
        return op
    try:
        encode(op)
    except EncodeError as error:
        return op._replace(function=Unsent(f"{type(error).__name__}: {error}"), args=(), kwargs={})
    return op


def _run(workers: Any, ops: Sequence[Op], dropped: Sequence[int], dtype: torch.dtype) -> Future[Any]:
    """Send a batch, to be computed with this default type."""
    sends = [op for op in ops if isinstance(op.function, Send)]
    if not sends:
        return workers.run.call(ops, dropped, dtype)
    promise: Promise[Any] = Promise(workers._fleet.reactor)
    answers = _Watched(workers, sends, promise)
    try:
        workers.run._send(workers._fleet, workers._target, answers, (ops, dropped, dtype), {})
    except EncodeError:
        raise  # it is tried again
    except Exception as unsent:
        for rank in workers._target.ranks:
            answers.miss(rank, unsent)
        raise
    return promise.future


class _Watched(Gather):
    """The answers to a batch that sends shards: of a rank that gives none, those who wait for its shards are told."""

    __slots__ = ("_sends",)

    def __init__(self, workers: Any, sends: Sequence[Op], promise: Promise[Any]) -> None:
        super().__init__(workers._shape, workers._target.ranks, "tensors.run", workers._fleet, promise)
        self._sends = sends

    def miss(self, rank: int, error: BaseException) -> None:
        """Nothing comes from this rank."""
        point = self._shape.point_of(rank)
        why = f"{type(error).__name__}: {split_story(error)[0]}"
        for op in self._sends:
            assert isinstance(op.function, Send)
            op.function.fail(point, Poison(op.number, point.rank, why, ""))

    def _on_error(self, rank: int, error: BaseException) -> None:
        self.miss(rank, error)
        super()._on_error(rank, error)


def _check(batch: Future[Any]) -> None:
    """Wait for a batch. That a rank has died meanwhile is told to who asks for what it had, and not to the next."""
    __tracebackhide__ = True
    error = batch.exception()
    if error is not None and not isinstance(error, SupervisionError):
        raise error


_dispatchers: dict[int, Dispatcher] = {}
"""By number of the mesh."""

_making = threading.Lock()

_linking = threading.Lock()
"""Of `Dispatcher._linked`, which one thread may go through while another adds to it."""


def dispatcher_of(procs: ProcMesh) -> Dispatcher:
    """That of the mesh, made when it is first used. One whose ranks have got other numbers gets another one."""
    number = procs._fleet.mesh
    with _making:
        if number not in _dispatchers:
            for gone in [mesh for mesh, each in _dispatchers.items() if each.is_over]:
                del _dispatchers[gone]
            _dispatchers[number] = Dispatcher(procs)
            lost_presses.hear()
        found = _dispatchers[number]
        if found.axes != procs._fleet.axes:
            found.follow_resize()
        return found


def place_of(poison: Poison) -> Line | None:
    """Where in the program the operation was issued that has failed, on whatever mesh, if that is known still."""
    places = (each.place_of(poison.number) for each in list(_dispatchers.values()))
    return next((found for found in places if found is not None), None)


_OWN = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))


@contextlib.contextmanager
def coalescing() -> Generator[None]:
    """For programs that say it: operations go to the ranks in batches anyway."""
    yield


def place() -> Line | None:
    """Where the user's code is, which has called torch; None: on this thread there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OWN):
            return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


_OPTIMIZERS = str(Path(torch.optim.__file__).parent)


def is_in_optimizer() -> bool:
    """Whether it is the code of an optimizer of torch's that has called torch, and not the user's."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        if frame.f_code.co_filename.startswith(_OPTIMIZERS):
            return True
        frame = frame.f_back
    return False
