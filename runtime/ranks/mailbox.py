"""The main thread of a rank: takes messages off the data lane, runs what they ask for, answers.

The main thread itself receives, because signals, CUDA, pdb and gloo want user code there and a hand-over between
threads costs 10 microseconds a call.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter  # not by its module: a cell that puts another there would end the rank
from typing import Any

from ..actor import Actor, endpoints_of, is_careful
from ..errors import LinkClosed
from ..here import node
from ..node import point_in, shape_of
from ..scope import Context, Instance, enter
from ..shape import Extent, Point, Shape
from ..wire import codec
from ..wire.lane import Frames, Lane
from ..wire.messages import AnyMessage, Bye, Call, Note, Reply, Spawn, StopActor
from .children import end_child
from .failure import describe
from .interrupts import Interrupts
from .place import Move, Place
from .stacks import StackSample, sample
from .streams import Streams


class Mailbox:
    """The actors of a rank and the loop that runs their endpoints one after the other."""

    def __init__(self, mesh: int, place: Place, data: Lane, streams: Streams, interrupts: Interrupts) -> None:
        self.actors: dict[int, Actor] = {}
        self._instances: dict[int, Instance] = {}
        self._mesh = mesh
        self._place = place
        self._data = data
        self._streams = streams
        self._interrupts = interrupts
        self._calling = 0
        self._main = threading.get_ident()  # of a rank that is a thread: set when it runs
        place.note = self.note
        place.shield = interrupts.shield
        place.opened = interrupts.opened
        place.has_struck = lambda: interrupts.has_struck
        place.streams = streams

    def settle(self, number: int, name: str, actor: Actor) -> None:
        """Let an actor live here from birth, that nobody spawns."""
        point = Point(self._place.rank, Extent(("rank",), (self._place.world_size,)))
        self._instances[number] = Instance(name, type(actor).__qualname__, point, (self._mesh, point.rank, number))
        self.actors[number] = actor

    def move(self, move: Move) -> None:
        """The mesh was resized: the actors here, which are on all of its ranks, stand elsewhere in it now."""
        self._mesh = move.mesh
        shape = Shape.row_major(move.axes)
        for number, instance in self._instances.items():
            instance.rank = shape.point_of(self._place.rank)
            instance.address = (move.mesh, self._place.rank, number)
            instance.find_procs = lambda: node().proc_mesh(shape)

    def run(self) -> bool:
        """Serve until the controller says `Bye` (True), or is gone."""
        self._main = threading.get_ident()
        try:
            while True:
                message, frames = self._next()
                if isinstance(message, Bye):
                    return True
                assert isinstance(message, Call | Spawn | StopActor), message
                self._serve(message, frames)
        except LinkClosed:
            return False

    def _next(self) -> tuple[AnyMessage, Frames]:
        """Wait for a message; what user code has left in its event loop goes on meanwhile."""
        left = self._place.leftovers
        while left is not None and left.has_any():
            self._data.send_releases()
            if (found := self._data.recv_nowait()) is not None:
                return found
            left.go_on(self._data.link.filenos(), self._interrupts.between)
        return self._data.recv()

    def sample(self) -> StackSample:
        """From the control thread: where this rank is."""
        return sample(self._main, self._place.awaited() if self._place.awaited is not None else None)

    def note(self, topic: str, value: object) -> None:
        """Tell the caller of the running call, or of the last one, something unasked; from any thread."""
        is_main = threading.get_ident() == self._main  # interrupts hit no other
        with self._interrupts.shield() if is_main else nullcontext():
            self._data.send(Note(self._calling, topic), codec.encode(value))

    def _serve(self, message: Call | Spawn | StopActor, frames: Frames) -> None:
        """Do what a message asks for, and answer with what that returned or raised."""
        started = perf_counter()
        self._calling = seq = message.seq
        self._streams.begin(seq)
        ok = True
        try:
            careful = isinstance(message, Call) and is_careful(self.actors.get(message.actor))
            with self._interrupts.open_for(seq, is_careful=careful):
                result = self._do(message, frames)
            end_child(None)
            payload = codec.encode(result)
        except BaseException as error:  # noqa: BLE001 - the rim: what user code raised travels to the caller
            self._interrupts.running = 0
            end_child(error)
            ok = False
            failure = describe(error)
            payload = codec.encode(failure)
            if isinstance(message, Call) and not message.wants_reply:
                print(failure.traceback, file=sys.stderr)  # nobody waits who could be told
        seconds = perf_counter() - started
        talked = self._streams.end(seq)
        if isinstance(message, Call) and not message.wants_reply:
            return
        try:
            self._data.send(Reply(seq, ok, seconds, talked), payload)
        except MemoryError as too_much:
            self._data.send(Reply(seq, False, seconds, talked), codec.encode(describe(too_much)))

    def _do(self, message: Call | Spawn | StopActor, frames: Frames) -> object:
        if isinstance(message, Call):
            return self._call(message, frames)
        if isinstance(message, Spawn):
            return self._spawn(message, frames)
        self.actors.pop(message.actor, None)
        self._instances.pop(message.actor, None)
        return None

    def _spawn(self, message: Spawn, frames: Frames) -> None:
        cls, args, kwargs, creator = codec.decode(frames[0], frames[1:])
        point = point_in(message.view, self._place.rank)
        address = (self._mesh, self._place.rank, message.actor)
        instance = Instance(message.name, f"{cls.__module__}.{cls.__qualname__}", point, address, creator)
        instance.find_procs = lambda: node().proc_mesh(shape_of(message.view))
        self._instances[message.actor] = instance
        enter(Context(instance, point))
        self.actors[message.actor] = cls(*args, **kwargs)

    def _call(self, message: Call, frames: Frames) -> object:
        actor = self.actors.get(message.actor)
        if actor is None:
            raise LookupError(f"there is no actor {message.actor} on this rank: it was stopped or never made")
        args, kwargs = codec.decode(frames[0], frames[1:])
        frames.clear()  # the arguments alone decide how long shared memory is held
        instance = self._instances[message.actor]
        point = instance.rank if message.view is None else point_in(message.view, self._place.rank)
        enter(Context(instance, point))
        result = _method(actor, message.endpoint)(*args, **kwargs)
        return _finish(result) if inspect.iscoroutine(result) else result


def _method(actor: Actor, name: str) -> Callable[..., Any]:
    found = endpoints_of(type(actor)).get(name)
    if found is None:
        raise AttributeError(f"{type(actor).__name__} has no endpoint {name!r}")
    return found.method.__get__(actor)


def _finish(coroutine: Any) -> object:
    return asyncio.run(coroutine)
