"""The agent of a host: owns the ranks there, speaks to them over pairs, reads what they print, sees them end.

For the local engine it lives in the controller; it never runs user code, so it always answers.
"""

from __future__ import annotations

import contextlib
import operator
import os
import secrets
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from ..errors import LinkClosed
from ..system.forks import let_go_in_child
from ..system.oom import MemoryKills
from ..system.proc import Stat, stat_of
from ..system.registry import registry
from ..wire.codec import Encoded
from ..wire.deferred import untorn
from ..wire.lane import Frames, Lane, pack
from ..wire.link import FarEnd, NearLink
from ..wire.messages import (
    Answer,
    AnyMessage,
    Ask,
    Become,
    Call,
    Forwarded,
    Interrupt,
    Peer,
    Reply,
    Sample,
    Strike,
    Warmed,
    wants_reply,
)
from ..wire.outlet import Outlet
from ..wire.pool import Pool
from ..wire.reactor import Reactor, When, contained, report
from ..wire.tape import Event, Tape, Text
from ..wire.wiring import wiring
from . import outside
from .base import Crew, Exit, Listener, not_started
from .openings import PIPE_BYTES, HeldPorts, make_room, output_pipe
from .spec import RankFds, RankSpec, encode_spec
from .starter import Starter

_PLENTY = 8
"""A rank that has so many calls to answer does not wait for the next one."""
SPARE = -1
"""The rank of a process that waits to become one."""
_CHUNK = 1 << 18

_DATA_END = operator.attrgetter("data.lane.peer")
_CONTROL_END = operator.attrgetter("control.lane.peer")
_ANSWERS = Reply, Answer
_QUESTIONS = Ask, Interrupt, Sample, Strike


@dataclass(slots=True)
class _Peer:
    """One rank as its agent sees it."""

    rank: int
    data: Outlet
    control: Outlet
    tapes: dict[int, Tape]  # by file descriptor of the pipe
    calls: deque[int] = field(default_factory=deque[int])  # on the data lane, not answered: the first one runs
    asked: set[int] = field(default_factory=set[int])  # on the control lane, not answered
    pid: int = 0
    token: str = ""
    is_warm: bool = False
    """Of a spare: has it done its imports?"""
    held: list[Event] = field(default_factory=list[Event])
    """What a spare has printed: its rank will have said it."""
    is_doomed: bool = False
    """Whether it was killed before it had a process: it is as soon as it has one."""
    exit: Exit | None = None
    is_over: bool = False
    """Whether its end has been told, too."""


class Agent(Crew):
    """A crew of rank processes on this host.

    `held` are the ports where its ranks meet; without them it holds its own, unless the specs name those of another.
    """

    def __init__(
        self,
        reactor: Reactor,
        starter: Callable[[], Starter],
        specs: Sequence[RankSpec],
        listener: Listener,
        modules: Sequence[str] = (),
        held: HeldPorts | None = None,
    ) -> None:
        self.pids: dict[int, int] = {}
        self._reactor = reactor
        self._find_starter = starter
        self._starter = starter()
        self._listener = listener
        make_room(len(specs))
        self._wiring = wiring(specs[0].link, reactor)
        self._pool = Pool() if self._wiring.carries_fds and Pool.available() else None
        self._peers: dict[int, _Peer] = {}
        self._spares: list[_Peer] = []
        self._spare_modules = tuple(modules)
        self._tickets: dict[int, _Peer] = {}
        self._all_gone = When(lambda: not self._spares and all(peer.is_over for peer in [*self._peers.values()]))
        self._is_closed = False
        self._memory_kills = MemoryKills()
        self._lifeline, self._lifeline_in = os.pipe()
        let_go_in_child(self)
        first, self._ports = specs[0], held
        is_late = first.generation > 0  # in place of ranks that were lost with their agent: told later where to meet
        try:
            if self._ports is None and not (first.master_port or is_late):
                self._ports = HeldPorts()
            port, self._script_port = self._ports.numbers if self._ports else (first.master_port, first.script_port)
            with self._ports.store if self._ports else contextlib.nullcontext() as store:
                for spec in specs:
                    self._start(spec, port, store.fileno() if store is not None and spec.rank == 0 else -1)
        except BaseException:
            self.close()  # nobody else has it yet
            raise
        # Rank 0 alone has the store now: who comes there is to notice its end.
        self._wiring.seal()

    def respawn(self, specs: Sequence[RankSpec]) -> None:
        former = self._peers.copy()

        def missing() -> list[RankSpec]:
            return [spec for spec in specs if self._peers.get(spec.rank) is former.get(spec.rank)]

        try:
            make_room(len(specs))
            self._starter = self._find_starter()  # the zygote of old may be gone, or stale
            self._reactor.perform(lambda: self._place_spares(specs))
            for spec in missing():
                self._start(spec, port=0, listen=-1)
        except BaseException as error:
            tell, exit = self._listener.on_exit, Exit(why=not_started(error))
            self._reactor.perform(lambda: [contained(partial(tell, each.rank, exit)) for each in missing()])
            raise
        self._wiring.seal()

    def keep_spares(self, count: int, like: RankSpec) -> None:
        missing = max(0, count - len(self._spares))
        if missing:
            make_room(missing)
            self._starter = self._find_starter()
        for _ in range(missing):
            self._start(replace(like, rank=SPARE, spare=self._spare_modules or ("sys",)), port=0, listen=-1)
        self._wiring.seal()

    @property
    def num_spares(self) -> tuple[int, int]:
        return len(self._spares), sum(peer.is_warm for peer in self._spares)

    def _place_spares(self, specs: Sequence[RankSpec]) -> None:
        """On the loop, which sees them end: let spares be these ranks, the furthest first; what they said these say."""
        for spec in specs[: len(self._spares)]:
            peer = max(self._spares, key=lambda peer: peer.is_warm)
            self._spares.remove(peer)
            peer.rank = spec.rank
            self._peers[spec.rank] = peer
            if peer.pid:
                self.pids[peer.rank] = peer.pid
            place = self._starter.python.spec_for(replace(spec, token=peer.token, env=self._env(spec)))
            peer.data.send(Become(encode_spec(place)))
            self._tell_held(peer)

    def _tell_held(self, peer: _Peer) -> None:
        held, peer.held = peer.held, []
        if held:
            self._tell_output(peer, held)

    def _tell_output(self, peer: _Peer, events: list[Event]) -> None:
        contained(partial(self._listener.on_output, peer.rank, events))  # what follows, such as its end, must be heard

    def renumber(self, kept: Mapping[int, int]) -> None:
        self._peers = {number: self._peers[rank] for rank, number in kept.items()}
        for number, peer in self._peers.items():
            peer.rank = number
        pids = {kept[rank]: pid for rank, pid in self.pids.items() if rank in kept}
        self.pids.clear()  # in place: others hold it
        self.pids.update(pids)

    def check_room(self, hosts: Sequence[str], again: Sequence[str] = ()) -> None:
        make_room(len(hosts), len(again))
        self._starter = self._find_starter() if hosts or again else self._starter

    @untorn  # a process whose start Ctrl-C has torn would be nobody's child
    def _start(self, spec: RankSpec, port: int, listen: int) -> None:
        ticket = secrets.randbits(62)
        with contextlib.ExitStack() as theirs:
            links, pipes = self._open(theirs)
            (_, data), (_, control) = links
            (_, out), (_, err) = pipes
            peer = self._expect(spec.rank, ticket, [near for near, _ in links], [read_end for read_end, _ in pipes])
            birth = replace(
                spec,
                token=peer.token,
                env=self._env(spec),
                master_port=port,
                data=data.address,
                control=control.address,
            )
            try:
                self._starter.start(ticket, birth, RankFds(data.fd, control.fd, self._lifeline, out, err, listen), self)
            except BaseException as error:
                why = str(error)
                self._reactor.schedule(lambda: self.on_started(ticket, 0, why))  # nobody else tells its end
                if not isinstance(error, (LinkClosed, OSError)):
                    raise

    def _env(self, spec: RankSpec) -> dict[str, str]:
        return spec.env | {"MASTER_ADDR": spec.master_addr, "MASTER_PORT": str(self._script_port)}

    def _open(self, theirs: contextlib.ExitStack) -> tuple[list[tuple[NearLink, FarEnd]], list[tuple[int, int]]]:
        """Two lanes and two pipes, or none; of each `theirs` closes the end of the process."""
        links: list[tuple[NearLink, FarEnd]] = []
        pipes: list[tuple[int, int]] = []
        with contextlib.ExitStack() as undo:
            for _ in range(2):
                near, far = self._wiring.open()
                undo.callback(near.close)
                theirs.callback(far.close)
                links.append((near, far))
            for _ in range(2):
                read_end, write_end = output_pipe()
                undo.callback(os.close, read_end)
                theirs.callback(os.close, write_end)
                pipes.append((read_end, write_end))
            undo.pop_all()
        return links, pipes

    def _expect(self, rank: int, ticket: int, links: Sequence[NearLink], pipes: Sequence[int]) -> _Peer:
        """A rank whose process is about to be started."""
        data, control = (
            Outlet(Lane(link, self._pool, (ticket, name)), link, self._reactor)
            for link, name in zip(links, ("data", "control"), strict=True)
        )
        token = secrets.token_hex(8)
        tapes = {pipes[0]: Tape(token, "out"), pipes[1]: Tape(token, "err")}
        peer = self._tickets[ticket] = _Peer(rank, data, control, tapes, token=token)
        for outlet in (data, control):
            outlet.lane.on_release = lambda outlet=outlet: self._reactor.schedule(
                lambda: self._send_releases(peer, outlet)
            )
        if rank == SPARE:
            self._spares.append(peer)
        else:
            self._peers[rank] = peer
        self._watch(peer)
        return peer

    def _watch(self, peer: _Peer) -> None:
        for outlet in (peer.data, peer.control):
            outlet.link.watch(self._reactor, partial(self._on_lane, peer, outlet))
        for fd in peer.tapes:
            self._reactor.add(fd, lambda fd=fd: self._on_pipe(peer, fd))

    # What comes in, all on the thread that runs the loop.

    def _on_lane(self, peer: _Peer, outlet: Outlet, *, is_last: bool = False) -> None:
        if outlet.backlog:
            outlet.drain()
        try:
            while (received := outlet.lane.recv_nowait()) is not None:
                message, frames = received
                try:
                    if not isinstance(message, _ANSWERS):
                        self._on_told(peer, message, frames)
                        continue
                    if isinstance(message, Reply) and message.talked:
                        self._read_up_to_end(peer, message.seq)
                    if outlet is peer.control:
                        peer.asked.discard(message.seq)
                        still_open = peer.asked
                    else:
                        if isinstance(message, Reply):
                            peer.calls.popleft()
                        still_open = peer.calls
                    self._listener.on_message(peer.rank, message, frames)
                except BaseException as error:  # noqa: BLE001 - what came behind it no descriptor tells of again
                    report(error)
                    continue
                if not (still_open or is_last) and outlet.link.is_level_triggered:
                    break  # an idle rank says nothing more: to ask would cost a system call that finds nothing
        except LinkClosed:
            # The end itself is told by the exit of the process: a child of the rank may hold the other end for longer.
            outlet.link.unwatch(self._reactor)

    def _on_told(self, peer: _Peer, message: AnyMessage, frames: Frames) -> None:
        """A message that answers nothing."""
        if isinstance(message, Warmed):
            peer.is_warm = True
        else:
            self._listener.on_message(peer.rank, message, frames)

    def _on_pipe(self, peer: _Peer, fd: int) -> bool:
        """Read a chunk of what the rank printed, and report it; whether there may be more."""
        tape = peer.tapes[fd]
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        tape.begin(peer.calls)
        events = tape.feed(data) if data else tape.close()
        if peer.rank == SPARE or peer.held:
            peer.held += events
        elif events:
            self._tell_output(peer, events)
        if not data:
            self._reactor.remove(fd)
        return bool(data)

    def _read_up_to_end(self, peer: _Peer, run: int) -> None:
        """Read both pipes up to the end mark of `run`, which the rank wrote before it answered."""
        for fd, tape in peer.tapes.items():
            while tape.ended != run and self._on_pipe(peer, fd):
                pass

    def _read_the_last(self, peer: _Peer, fd: int) -> None:
        """Read what a pipe has held when the rank ended; not for ever, where a child of it has left its session."""
        for _ in range(PIPE_BYTES // _CHUNK + 1):  # the one more finds its end
            if not self._on_pipe(peer, fd):
                break

    def on_started(self, ticket: int, pid: int, trouble: str) -> None:
        peer = self._tickets.pop(ticket)
        if trouble:
            peer.held.append(Text(0, "stderr", f"{trouble}\n"))
            self._end(peer, Exit())
            return
        peer.pid = pid
        if peer.rank != SPARE:
            self.pids[peer.rank] = pid
        if not self._tickets:  # all are there: one write for the lot
            spares = {spare.pid: "spare" for spare in self._spares}
            registry.note(self, spares | {pid: f"rank {rank}" for rank, pid in self.pids.items()})
        if self._is_closed or peer.is_doomed:
            self._kill(peer)

    def on_exit(self, pid: int, status: int | None) -> None:
        everybody = [*self._peers.values(), *self._spares]
        peer = next((peer for peer in everybody if peer.pid == pid and peer.exit is None), None)
        if peer is not None:
            exit = Exit.from_wait_status(status)
            if exit.signum == signal.SIGKILL and not peer.is_doomed:
                exit = Exit(signum=exit.signum, why=self._memory_kills.why(pid))
            self._end(peer, exit)

    def _end(self, peer: _Peer, exit: Exit) -> None:
        """Take what the rank still said, then report its end."""
        if peer.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(peer.pid, signal.SIGKILL)  # what it started and left behind, and may print on
        self._wiring.pump()
        for outlet in (peer.data, peer.control):
            self._on_lane(peer, outlet, is_last=True)
        for fd in peer.tapes:
            self._read_the_last(peer, fd)
        peer.exit = exit
        self._release(peer)
        if self._pool is not None:  # after the links are closed: what is put later finds out as it is sent
            for outlet in (peer.data, peer.control):
                self._pool.forget(outlet.lane.peer)
        if peer in self._spares:
            self._spares.remove(peer)
        else:
            self._tell_held(peer)
            contained(partial(self._listener.on_exit, peer.rank, exit))
            self.pids.pop(peer.rank, None)
        peer.is_over = True
        self._reactor.wake()

    def _release(self, peer: _Peer) -> None:
        for outlet in (peer.data, peer.control):
            with outlet.lock:  # a sender may be about to watch for room
                outlet.link.unwatch(self._reactor)
            outlet.close()
        for fd in peer.tapes:
            self._reactor.remove(fd)
            os.close(fd)

    # What goes out, from any thread.

    def post(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        peers = self._living(ranks)
        if not peers:
            return  # that they have ended is told elsewhere
        parts = pack(message, payload, self._pool, map(_DATA_END, peers))
        number = message.seq if wants_reply(message) else None
        for peer in peers:
            if number is not None:
                peer.calls.append(number)
            peer.data.post(parts)

    def post_control(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        peers = self._living(ranks)
        if not peers:
            return
        # What is handed on has a sender elsewhere, who could not be told that there is no room.
        pool = None if isinstance(message, Forwarded) else self._pool
        parts = pack(message, payload, pool, map(_CONTROL_END, peers))
        is_call = isinstance(message, Call)
        number = message.seq if wants_reply(message) or (not is_call and isinstance(message, _QUESTIONS)) else None
        for peer in peers:
            may_wait = is_call and len(peer.asked) >= _PLENTY
            if number is not None:
                peer.asked.add(number)
            (peer.control.post_soon if may_wait else peer.control.post)(parts)

    @property
    def carries_fds(self) -> bool:
        """Whether descriptors can be passed to its ranks."""
        return self._wiring.carries_fds

    def introduce(self, rank: int, mesh: int, other: int, end: socket.socket) -> None:
        """Give this rank its end of a link to rank `other` of `mesh`. Raises `OSError` where it cannot be passed."""
        for peer in self._living([rank]):
            peer.control.send(Peer(mesh, other, has_link=True), fds=[end.fileno()])

    def stats(self, ranks: Sequence[int]) -> Mapping[int, Stat]:
        pids = {peer.rank: peer.pid for peer in self._living(ranks) if peer.pid}
        try:
            return {rank: stat for rank, pid in pids.items() if (stat := stat_of(pid)) is not None}
        except OSError:  # this process has no descriptor left to look with: nothing is known of them now
            return {}

    def look(self, ranks: Sequence[int], native: bool = False) -> dict[int, outside.Glimpse]:
        return outside.look({peer.rank: peer.pid for peer in self._living(ranks) if peer.pid}, native)

    def kill(self, ranks: Sequence[int]) -> None:
        for peer in self._living(ranks):
            self._kill(peer)

    def _kill(self, peer: _Peer) -> None:
        peer.is_doomed = True
        # Between the fork and its setsid a rank is still in the zygote's group, so the process itself comes first.
        if peer.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(peer.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(peer.pid, signal.SIGKILL)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for peer in [*self._living(list(self._peers)), *self._spares]:
            self._kill(peer)
        try:
            if self._peers:
                self._reactor.wait(self._all_gone, timeout=10)
        finally:
            self._free()
            registry.drop(self)

    def _free(self) -> None:
        os.close(self._lifeline_in)
        os.close(self._lifeline)
        if self._ports is not None:
            self._ports.close()
        self._wiring.close()
        if self._pool is not None:
            self._pool.close()

    def _living(self, ranks: Iterable[int]) -> list[_Peer]:
        found = map(self._peers.get, ranks)  # None: a rank of old, that a resize has dropped
        return [peer for peer in found if peer is not None and peer.exit is None]

    def _send_releases(self, peer: _Peer, outlet: Outlet) -> None:
        if peer.exit is None:
            with contextlib.suppress(LinkClosed):
                outlet.lane.send_releases()

    def let_go(self) -> None:
        """A child that the notebook forks must not keep ranks alive by holding their lifeline, nor speak to them."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._lifeline_in)
            for peer in [*self._peers.values(), *self._spares]:
                peer.exit = peer.exit or Exit()
