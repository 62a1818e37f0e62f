"""The in-process engine: ranks are threads of the controller. The verified fake that fast tests run on.

Everything above the link is the real thing (mailbox, control thread, codec, roster). What needs a process is
approximated: an interrupt reaches Python code only, a kill takes effect when the rank returns to Python, what is
printed is told by thread, and there is one `os.environ` and one torch for all ranks.
"""

from __future__ import annotations

import contextlib
import io
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TextIO, cast
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from ..errors import LinkClosed
from ..numbers import STEWARD
from ..ranks import steward
from ..ranks.cleanup import HEARING, PATIENCE
from ..ranks.control import Control
from ..ranks.interrupts import Interrupts
from ..ranks.mailbox import Mailbox
from ..ranks.outpost import Outpost
from ..ranks.place import Place, enter
from ..ranks.raising import be_done_with_raising, raise_in
from ..system.proc import Stat
from ..wire.codec import Encoded
from ..wire.inproc import InprocLink
from ..wire.lane import Lane, pack
from ..wire.messages import AnyMessage, Ready
from ..wire.reactor import Reactor
from ..wire.tape import Ended, Event, Shown, Text
from .base import Crew, Engine, Exit, Listener, Party
from .outside import Glimpse
from .spec import RankSpec, Seat, seats_here


class InprocEngine(Engine):
    """Makes crews of threads."""

    name = "inproc"

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def warm(self) -> None:
        """There is nothing to prepare."""

    def seats(self, axes: Mapping[str, int]) -> Sequence[Seat]:
        return seats_here(math.prod(axes.values()))

    def reseat(self, axes: Mapping[str, int], kept: Mapping[int, Seat]) -> Sequence[Seat]:
        return self.seats(axes)

    def num_gpus(self) -> int:
        return 0

    def spawn(self, specs: Sequence[RankSpec], listener: Listener, how: str = "auto") -> Crew:
        return _Threads(self._reactor, specs, listener)

    def introduce(self, one: Party, other: Party) -> None:
        ends = InprocLink.make(limit=1 << 30)  # ranks must not wait for each other here
        for party, peer, end in zip((one, other), (other, one), ends, strict=True):
            assert isinstance(party.crew, _Threads)
            party.crew.introduce(party.rank, peer.mesh, peer.rank, end)

    def close(self) -> None:
        """Nothing is held between crews."""


class _Threads(Crew):
    """A crew of ranks that are threads."""

    def __init__(self, reactor: Reactor, specs: Sequence[RankSpec], listener: Listener) -> None:
        self.pids: dict[int, int] = {}
        self._reactor = self.reactor = reactor
        self._listener = listener
        self._ranks: dict[int, _ThreadRank] = {}
        self._left: list[_ThreadRank] = []  # what a resize has dropped: its threads may need a moment to end
        self._all_gone = threading.Event()
        for spec in specs:
            self._add(spec)

    def _add(self, spec: RankSpec) -> None:
        rank = self._ranks[spec.rank] = _ThreadRank(spec, self)
        for lane in (rank.data, rank.control):
            self._reactor.add(lane.link.fileno(), lambda lane=lane: self._receive(rank, lane))
        rank.start()

    def respawn(self, specs: Sequence[RankSpec]) -> None:
        self._all_gone.clear()
        for spec in specs:
            if spec.rank in self._ranks:
                self._ranks[spec.rank].join()
            self._add(spec)

    def renumber(self, kept: Mapping[int, int]) -> None:
        self._left += [rank for number, rank in self._ranks.items() if number not in kept]
        self._ranks = {number: self._ranks[rank] for rank, number in kept.items()}
        for number, rank in self._ranks.items():
            rank.spec = replace(rank.spec, rank=number)

    def keep_spares(self, count: int, like: RankSpec) -> None:
        """Threads start at once."""

    @property
    def num_spares(self) -> tuple[int, int]:
        return 0, 0

    def check_room(self, hosts: Sequence[str], again: Sequence[str] = ()) -> None:
        """Threads are cheap."""

    def post(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        parts = pack(message, payload)
        for rank in self._living(ranks):
            with contextlib.suppress(LinkClosed):
                rank.data.send_parts(parts)

    def post_control(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        parts = pack(message, payload)
        for rank in self._living(ranks):
            with contextlib.suppress(LinkClosed):
                rank.control.send_parts(parts)

    def introduce(self, rank: int, mesh: int, other: int, end: InprocLink) -> None:
        for each in self._living([rank]):
            each.outpost.meet((mesh, other), end)

    def stats(self, ranks: Sequence[int]) -> Mapping[int, Stat]:
        return {}  # they are threads of this process

    def look(self, ranks: Sequence[int], native: bool = False) -> dict[int, Glimpse]:
        return {rank: Glimpse(trouble="it is a thread of this process") for rank in ranks}

    def kill(self, ranks: Sequence[int]) -> None:
        for rank in self._living(ranks):
            rank.is_doomed = True
            rank.interrupts.kill()
            self._reactor.schedule(lambda rank=rank: self._end(rank, Exit(signum=signal.SIGKILL)))

    def close(self) -> None:
        self.kill(list(self._ranks))
        self._reactor.wait(self._all_gone, timeout=10)
        for rank in [*self._left, *self._ranks.values()]:
            rank.join()

    def _living(self, ranks: Sequence[int]) -> list[_ThreadRank]:
        found = [self._ranks.get(number) for number in ranks]  # None: a rank of old, that a resize has dropped
        return [rank for rank in found if rank is not None and not rank.is_ended]

    def _receive(self, rank: _ThreadRank, lane: Lane) -> None:
        if rank.is_ended or rank.is_doomed:  # a killed process would not answer that it was killed
            return
        try:
            while (received := lane.recv_nowait()) is not None:
                message, frames = received
                self._tell_output(rank)
                self._listener.on_message(rank.spec.rank, message, frames)
        except LinkClosed:
            self._end(rank, Exit(code=0))

    def on_output(self, rank: _ThreadRank) -> None:
        """The rank's thread has printed: report it from the loop."""
        self._reactor.schedule(lambda: self._tell_output(rank))

    def _tell_output(self, rank: _ThreadRank) -> None:
        if rank not in self._left and (events := rank.streams.take()):
            self._listener.on_output(rank.spec.rank, events)

    def _end(self, rank: _ThreadRank, exit: Exit) -> None:
        """On the loop, which alone reads the lanes."""
        if rank.is_ended:
            return
        with contextlib.suppress(LinkClosed):  # what its actors said while they cleaned up
            while (received := rank.control.recv_nowait()) is not None:
                self._listener.on_message(rank.spec.rank, *received)
        rank.is_ended = True
        rank.outpost.close()
        rank.outpost.hang_up()
        for lane in (rank.data, rank.control):
            self._reactor.remove(lane.link.fileno())
            lane.close()
        self._listener.on_exit(rank.spec.rank, exit)
        if all(other.is_ended for other in self._ranks.values()):
            self._reactor.announce(self._all_gone)


class _ThreadRank:
    """One rank: a main thread and a control thread, as in a process."""

    def __init__(self, spec: RankSpec, crew: _Threads) -> None:
        self.spec = spec
        self.is_ended = False
        self.is_doomed = False
        data, data_theirs = InprocLink.make()
        control, control_theirs = InprocLink.make()
        self.data, self.control = Lane(data), Lane(control)
        self._theirs = Lane(data_theirs), Lane(control_theirs)
        self.streams = _ThreadStreams(lambda: crew.on_output(self))
        self.interrupts = _ThreadInterrupts()
        self._threads = [
            threading.Thread(target=self._work, name=f"meshbook-rank-{spec.rank}", daemon=True),
            threading.Thread(target=self._answer, name=f"meshbook-control-{spec.rank}", daemon=True),
        ]
        self.place = Place(spec.rank, spec.world_size, spec.local_rank, spec.axes, spec.device)
        self.outpost = _ThreadOutpost(spec, self.place, crew.reactor, self._theirs[1], self.streams)
        self.mailbox = Mailbox(spec.mesh, self.place, self._theirs[0], self.streams, self.interrupts)  # type: ignore[arg-type]
        self.place.movers += [self.outpost.move, self.mailbox.move]
        self.mailbox.settle(STEWARD, "steward", steward.Steward(self.place))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        work, answer = self._threads
        deadline = time.monotonic() + 5
        while work.is_alive() and time.monotonic() < deadline:
            work.join(timeout=0.05)
            self.interrupts.kill()  # again: the first may have struck where it is swallowed, in a destructor, say
        answer.join(timeout=5)
        self.interrupts.take_back()

    def _work(self) -> None:
        enter(self.place, whole_process=False)
        self.outpost.settle_here(whole_process=False)
        self.interrupts.thread = threading.get_ident()
        with contextlib.suppress(LinkClosed):
            self._theirs[0].send(Ready(0))
            if self.mailbox.run():
                self.outpost.has_heard_all.wait(HEARING)
            self.outpost.close(PATIENCE)
        self.place.leave()
        self._theirs[0].close()

    def _answer(self) -> None:
        self.outpost.settle_here(whole_process=False)
        control = self._theirs[1]
        node = self.outpost
        Control(control, node.intake, self.mailbox, self.interrupts, node.strike, node.on_control, control.close).run()
        _router.forget(self.streams)


class _ThreadOutpost(Outpost):
    """The node of a rank that is a thread: it shares the controller's loop."""

    def __init__(self, spec: RankSpec, place: Place, reactor: Reactor, control: Lane, streams: _ThreadStreams) -> None:
        super().__init__(spec.mesh, place, reactor, control, None, streams, spec.site, has_bootstrap=spec.has_bootstrap)  # type: ignore[arg-type]
        self.patience = PATIENCE if spec.generation else None

    def settle_here(self, *, whole_process: bool = True) -> None:
        super().settle_here(whole_process=False)
        enter(self._place, whole_process=False)
        _router.join(cast("_ThreadStreams", self._streams))


class _ThreadInterrupts(Interrupts):
    """Interrupts of a thread: an exception that the interpreter raises in it at its next Python instruction."""

    thread = 0
    _has_raised = False
    """Whether an exception was put into the thread that it may not have met yet."""

    def _strike(self, running: int) -> None:
        if self._shields:
            self._held = KeyboardInterrupt()
        else:
            self._raise(KeyboardInterrupt)

    def _insist(self, call: int, is_meant: Callable[[int], bool]) -> None: ...

    def _make_way(self, call: int) -> None:
        """An exception could strike in the loop itself, and in the mailbox."""

    def end(self) -> None:
        with self._lock:
            self.running = 0
            self.take_back()  # one that has not struck yet was meant for this call

    def close(self) -> None:
        with self._lock:
            self._shields = 1
            self.take_back()

    def kill(self) -> None:
        if self.running:
            self._raise(LinkClosed)

    def _raise(self, error: type[BaseException]) -> None:
        self._has_raised = True
        raise_in(self.thread, error)

    def take_back(self) -> None:
        """What has not struck yet does so no more. On the thread itself, or when that has ended."""
        if self._has_raised:
            self._has_raised = False
            be_done_with_raising()


_RUN: ContextVar[int] = ContextVar("meshbook_thread_run")


class _ThreadStreams:
    """Stands in for `ranks.streams.Streams`: what the rank's thread prints, as events."""

    def __init__(self, on_text: Callable[[], object]) -> None:
        self._on_text = on_text
        self._events: list[Event] = []
        self._num_said = 0
        self._run = 0
        self._lock = threading.Lock()  # the rank's thread writes, the loop takes

    def begin(self, run: int) -> None:
        self._run = run

    def join(self, run: int) -> int:
        _RUN.set(run)
        return self._num_said

    def leave(self, said: int) -> bool:
        with self._lock:
            return self._num_said != said or bool(self._events)

    def current(self) -> int:
        return _RUN.get(0) or self._run

    def end(self, run: int) -> bool:
        return self._add(Ended(run)) or True

    def show(self, number: int) -> None:
        self._add(Shown(self._run, number))

    def flush(self) -> None:
        """Nothing is held back."""

    def write(self, stream: str, text: str) -> None:
        self._add(Text(self.current(), "stderr" if stream == "stderr" else "stdout", text))

    def _add(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            self._num_said += 1
        self._on_text()

    def take(self) -> list[Event]:
        with self._lock:
            events, self._events = self._events, []
        return events


class _Routed(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` while ranks are threads: each thread's text goes its own way."""

    def __init__(self, router: _Router, stream: str, former: TextIO) -> None:
        self._router, self._stream, self.former = router, stream, former

    def write(self, text: str) -> int:
        streams = self._router.of_thread.get(threading.current_thread())
        if streams is None:
            return self.former.write(text)
        streams.write(self._stream, text)
        return len(text)

    def flush(self) -> None:
        if not self.former.closed:  # as this one goes, Python 3.13 flushes it: those of pytest may be closed by then
            self.former.flush()

    def fileno(self) -> int:
        return self.former.fileno()

    def isatty(self) -> bool:
        return threading.current_thread() not in self._router.of_thread and self.former.isatty()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - as in `io.TextIOWrapper`
        return self.former.encoding

    @property
    def errors(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.former.errors

    def __getattr__(self, name: str) -> Any:
        """What no text stream must have, but the former one may: `buffer`, `name`, `reconfigure`."""
        return getattr(self.former, name)


class _Router:
    """Keeps the two routed streams in `sys` as long as any rank is a thread."""

    def __init__(self) -> None:
        self.of_thread: WeakKeyDictionary[threading.Thread, _ThreadStreams] = WeakKeyDictionary()
        self._lock = threading.Lock()  # rank threads come and go at the same time

    def join(self, streams: _ThreadStreams) -> None:
        """What this thread prints goes to `streams` from here on."""
        with self._lock:
            # Others put streams of their own in place too, such as pytest between two tests.
            if not isinstance(sys.stdout, _Routed):
                sys.stdout = _Routed(self, "stdout", sys.stdout)
            if not isinstance(sys.stderr, _Routed):
                sys.stderr = _Routed(self, "stderr", sys.stderr)
            self.of_thread[threading.current_thread()] = streams

    def forget(self, streams: _ThreadStreams) -> None:
        """The rank of these streams has ended."""
        with self._lock:
            for thread in [thread for thread, its in self.of_thread.items() if its is streams]:
                del self.of_thread[thread]
            if not self.of_thread:
                for name in ("stdout", "stderr"):
                    if isinstance(routed := getattr(sys, name), _Routed):
                        setattr(sys, name, routed.former)


_router = _Router()
