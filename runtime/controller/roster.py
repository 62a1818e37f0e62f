"""The ranks of one mesh as the controller knows them: who lives, who works on what, what they said, how they ended."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..cut_off import Doubts
from ..engines.base import Crew, Engine, Exit
from ..engines.outside import Glimpse
from ..engines.spec import RankSpec
from ..errors import MeshStopped, SpawnError
from ..future import Future, done
from ..orders import Birth, Order
from ..ranks.place import axes_text, coordinates
from ..system.forks import let_go_in_child
from ..system.proc import is_ending
from ..wire.codec import Encoded
from ..wire.deferred import untorn
from ..wire.held import held_here
from ..wire.lane import Frames
from ..wire.log import RankLog
from ..wire.messages import (
    Answer,
    AnyMessage,
    Ask,
    Bye,
    Interrupt,
    Metered,
    Note,
    Ready,
    Reply,
    StopActor,
)
from ..wire.outlet import owned
from ..wire.post import NOBODY, Caller, Post
from ..wire.reactor import Reactor, When, contained
from ..wire.tape import Event, Text
from .audiences import Audiences
from .births import Births
from .checkup import Checkup
from .group_state import GroupState
from .hub import Audience, Hub
from .last_words import TAIL, last_words, story
from .meters import Meters
from .rank_state import RankState
from .readiness import Readiness
from .reshape import Reshape
from .vitals import Halt

_CLEANUP_SECONDS = 5.0
"""How long ranks may take to end by themselves when their actors are promised to clean up."""


class Roster:
    """The living ranks of one mesh: sends calls to them, keeps their logs, notices their ends."""

    def __init__(
        self, reactor: Reactor, engine: Engine, specs: Sequence[RankSpec], hub: Hub, how: str = "auto"
    ) -> None:
        self.axes = dict(specs[0].axes)
        self.mesh = specs[0].mesh
        self.engine = engine
        self.name = ""
        self.groups = GroupState(specs[0].backend)
        self.specs = {spec.rank: spec for spec in specs}
        self.births = Births()
        """What lives on these ranks; without what other ranks made there."""
        self._hub = hub
        self._dropped: dict[int, str] = {}  # what is said of ranks that a resize has dropped
        self.num_spares = 0  # how many are wanted (`spares`)
        self.audiences = Audiences()
        """Who hears what is printed in calls that brought no audience; the root puts its own here."""
        self.readiness = Readiness(reactor)
        self.states = {spec.rank: RankState(spec.rank) for spec in specs}
        self.logs = {spec.rank: RankLog() for spec in specs}
        self.meters = Meters(len(specs))
        """What user code on the ranks has reported."""
        self.on_change: list[Callable[[int], None]] = []
        """Called with a rank whose state changed, on the thread that runs the loop."""
        self.on_code: list[Callable[[Sequence[str]], object]] = []
        """Called before functions of the program's own go there, with the files in which they stand."""
        self.reactor = reactor
        self._post = Post()
        self.caller_of = self._post.caller
        """Who waits for the answers to a call."""
        self._doubts = Doubts(self._post, reactor, self._is_one_ending)
        self._watchers: dict[int, tuple[Audience, frozenset[int]]] = {}  # by call, and which ranks each watches
        self.is_stopped = False
        self.how_stopped = "the mesh was taken down"
        self._why_stopped = "this mesh was taken down: spawn another one, or in a notebook bring one up with %mesh up"
        self._posting = threading.RLock()  # the order in `open_calls` is the order on the wire
        self._is_posting_here = held_here(self._posting)
        self.checkup = Checkup()
        self._pids: Mapping[int, int] = {}  # known before a rank is ready; actors may be called by then
        self.crew: Crew = engine.spawn(specs, self, how)
        self._pids = self.crew.pids
        let_go_in_child(self)

    def wait_ready(self, timeout: float | None, ranks: Sequence[int] | None = None) -> None:
        """Wait until these ranks (default: all) are ready. Raises `SpawnError` for one that ends, fails or is late."""
        states = [self.states[rank] for rank in self.states if ranks is None or rank in ranks]
        is_settled = When(lambda: all(state.is_ready for state in states) or any(map(_is_lost, states)))
        in_time = self.reactor.wait(is_settled, timeout)
        if lost := list(filter(_is_lost, states)):
            raise SpawnError(self._why_not_up(lost[0]))
        if not in_time:
            raise SpawnError(self._why_late([state.rank for state in states if not state.is_ready], timeout))

    def _why_not_up(self, state: RankState) -> str:
        what = state.trouble or str(state.exit)
        return "\n".join([f"{self.name_of(state.rank)} did not come up: {what}", *self.last_words(state.rank)])

    def _why_late(self, late: list[int], timeout: float | None) -> str:
        others = f" and {len(late) - 1} more" if len(late) > 1 else ""
        return "\n".join([f"{self.name_of(late[0])}{others} not ready after {timeout:g} s", *self.last_words(late[0])])

    def last_words(self, rank: int, since: int = 0) -> list[str]:
        """The last stderr lines of a rank, indented; without the stacks of its crash, which `why_dead` tells.

        None if the last that it has said there is from before the call `since`.
        """
        return last_words(self._stderr(rank, since))

    def _stderr(self, rank: int, since: int = 0) -> str:
        return self.logs[rank].tail("stderr", TAIL, since)

    def name_of(self, rank: int) -> str:
        """A rank in a reader's words, such as `rank 3 (dp=1,tp=1, pid 4711)`."""
        if rank not in self.states:  # a resize has dropped it
            return self.why_dead(rank).partition(" was dropped")[0]
        coord = ",".join(f"{axis}={i}" for axis, i in coordinates(rank, self.axes).items())
        parts = [] if not coord or list(self.axes) == ["rank"] else [coord]
        if pid := self.states[rank].pid or self._pids.get(rank, 0):
            parts.append(f"pid {pid}")
        return f"rank {rank} ({', '.join(parts)})" if parts else f"rank {rank}"

    def alive(self) -> list[int]:
        return [state.rank for state in self.states.values() if state.exit is None]

    def _is_one_ending(self) -> bool:
        """Of those on this machine: is there one whose end is not known yet?"""
        here = [rank for rank in self.alive() if not self.specs[rank].host]
        return any(is_ending(self._pids[rank]) for rank in here if rank in self._pids)

    def look_at_vitals(self, now: float) -> dict[int, Halt]:
        """The ranks that do not move at `now` (see `checkup`): also what `RankState.name` says until the next look."""
        return self.checkup.step(now, self.states, self.crew.stats(self.alive()))

    def host_of(self, rank: int) -> str:
        """The name of the host that a rank lives on."""
        return self.specs[rank].host or os.uname().nodename

    def spawn_actor(self, birth: Birth, caller: Caller) -> int:
        """Make an actor on its ranks; `caller` hears from each."""
        self.births.note(birth)
        return self._send(birth.ranks, caller, birth.message, birth.payload, birth.on_main)

    def stop_actor(self, ranks: Sequence[int], actor: int, reason: str, caller: Caller, on_main: bool = False) -> int:
        """End an actor on these ranks."""
        self.births.forget(actor)
        return self._send(ranks, caller, lambda seq: StopActor(seq, actor, reason), None, on_main)

    def call(self, ranks: Sequence[int], order: Order, caller: Caller | None, audience: Audience | None = None) -> int:
        """Call an endpoint on these ranks; without a `caller` nobody answers. Returns the number of the call.

        What they print while they work on it goes to `audience`.
        """
        make = order.message if caller is not None else order.broadcast
        return self._send(ranks, caller, make, order.payload, order.on_main, audience)

    @untorn
    def _send(
        self,
        ranks: Sequence[int],
        caller: Caller | None,
        make: Callable[[int], AnyMessage],
        payload: Encoded | None,
        on_main: bool,
        audience: Audience | None = None,
    ) -> int:
        if self.is_stopped:
            raise MeshStopped(self._why_stopped)
        if payload is not None and payload.files:
            for tell in self.on_code:
                tell(payload.files)
        if self._is_posting_here():
            return self._send_after(ranks, caller, make, payload and owned(payload), on_main, audience)
        with self._posting:
            seq = self._post.open(ranks if caller else (), caller or NOBODY)
            self.audiences.open(seq)
            if audience is not None:
                self._watchers[seq] = audience, frozenset(ranks)
            dead = self._note_sent(ranks, seq if caller is not None else 0, on_main)
            try:
                (self.crew.post if on_main else self.crew.post_control)(ranks, make(seq), payload)
            except MemoryError:  # no room in the shared memory: nothing has gone out, nobody will answer
                self._note_unsent(ranks, seq)
                raise
        if dead:
            self._tell_dead(seq, dead)
        return seq

    def _send_after(
        self, ranks: Sequence[int], caller: Caller | None, make: Callable[[int], AnyMessage], *rest: Any
    ) -> int:
        """For a `__del__` that the collector runs inside of `_send`: the loop sends it, when that is done."""

        def send() -> None:
            try:
                self._send(ranks, caller, make, *rest)
            except MeshStopped as stopped:
                for rank in ranks:
                    (caller or NOBODY).on_lost(rank, str(stopped))

        self.reactor.schedule(send)
        return 0

    def post_control(self, rank: int, message: AnyMessage, payload: Encoded | None = None) -> None:
        """Send a message that is no call of this controller's own."""
        self.crew.post_control([rank], message, payload)

    def _note_sent(self, ranks: Sequence[int], seq: int, on_main: bool) -> list[int]:
        """Call `seq` (0: nobody waits for an answer) goes out to these ranks. Those that are dead."""
        dead: list[int] = []
        for rank in ranks:
            state = self.states.get(rank)
            if state is None or state.exit is not None:
                dead.append(rank)
            elif seq:
                state.take_up(seq, on_main)
        return dead

    def _note_unsent(self, ranks: Sequence[int], seq: int) -> None:
        self._post.drop(seq)
        self._watchers.pop(seq, None)
        for state in (self.states[rank] for rank in ranks if rank in self.states):
            state.put_down(seq)

    def _tell_dead(self, seq: int, dead: Sequence[int]) -> None:
        """Ranks that were dead when they were called will not die again: this caller is told, soon.

        And no other: a new process may be in the place of such a rank by then, and has calls of its own.
        """
        for rank in dead:
            self.reactor.schedule(functools.partial(self._post.lose_one, seq, rank, self.why_dead(rank)))

    def ask(self, ranks: Sequence[int], actor: int, endpoint: str, payload: Encoded, caller: Caller) -> int:
        """Ask a control endpoint; ranks answer while they are busy."""
        return self.inquire(ranks, caller, lambda seq: Ask(seq, actor, endpoint), payload)

    def interrupt(self, ranks: Sequence[int], call: int, caller: Caller) -> int:
        """Raise KeyboardInterrupt on these ranks if they run `call` (0: whatever they run)."""
        return self.inquire(ranks, caller, lambda seq: Interrupt(seq, call))

    @untorn
    def inquire(
        self, ranks: Sequence[int], caller: Caller, make: Callable[[int], AnyMessage], payload: Encoded | None = None
    ) -> int:
        """Send the message of the number that `make` is given; control threads answer it."""
        seq = self._post.open(ranks, caller)
        self.crew.post_control(ranks, make(seq), payload)
        if dead := self._note_sent(ranks, 0, on_main=False):
            self._tell_dead(seq, dead)
        return seq

    def look(self, ranks: Sequence[int], native: bool = False) -> dict[int, Glimpse]:
        """What can be seen of living ranks that do not answer (`engines.outside`)."""
        return self.crew.look(ranks, native)

    @untorn  # they are all said to end, or none is
    def kill(self, ranks: Sequence[int], *, for_good: bool = True) -> None:
        """End these ranks at once (SIGKILL), with what they started; not `for_good`: they will be revived."""
        for rank in ranks:
            self.states[rank].is_doomed = True
            self.states[rank].is_replaced = not for_good
        self.crew.kill(ranks)

    @untorn  # else one may be neither dead nor on its way
    def revive(self, ranks: Sequence[int]) -> None:
        """Start these ranks again, which have ended: new processes in the same places. `wait_ready` waits for them.

        Raises `MeshStopped` where the mesh was taken down.
        """
        if self.is_stopped:
            raise MeshStopped(self._why_stopped)
        self.reactor.let_finish()  # it may be telling of their ends still
        for rank in ranks:
            self._dropped.pop(rank, None)  # by a resize that was broken off
            self.states[rank] = RankState(rank)
            self.meters.forget_loops(rank)
        self.groups.renew_processes(ranks)
        for made in list(self.births.made.values()):
            made.failed -= {*ranks} & {*made.ranks}
        self.crew.respawn([replace(self.specs[rank], generation=self.groups.generation + 1) for rank in ranks])

    def is_expected(self, rank: int) -> bool:
        """Was this rank to end, with its mesh, by a resize, or for a new process? Then it is no fault."""
        return self.is_stopped or rank in self._dropped or self.states[rank].is_replaced

    @untorn  # as with `kill`
    def dismiss(self, plan: Reshape) -> None:
        """Begin to end the ranks that a resize drops."""
        for rank in plan.dropped:
            self._dropped[rank] = f"{self.name_of(rank)} was dropped: the mesh was resized to {axes_text(plan.new)}"
            self.states[rank].is_doomed = True
        self._send_home(plan.dropped)

    def _send_home(self, ranks: Sequence[int]) -> None:
        homes = self.births.homes()
        leaving = [rank for rank in ranks if self.states[rank].can_leave(rank in homes)]
        self.crew.kill([rank for rank in ranks if rank not in leaving])
        self.crew.post_control(leaving, Bye())  # behind what its actors were sent: the other may overtake that
        self.crew.post(leaving, Bye())

    def reshape(self, plan: Reshape, specs: Sequence[RankSpec]) -> None:
        """Number the ranks that stay as in the new grid; those that come are dead until `revive`. On the loop."""
        old, moved = self.mesh, {number: rank for rank, number in plan.kept.items()}
        with self._posting:
            self.crew.renumber(plan.kept)
            for rank in plan.dropped:
                self.logs[rank].close()
            states, logs, ranks = self.states, self.logs, range(len(specs))
            self.states = {r: states[moved[r]] if r in moved else RankState(r, exit=Exit()) for r in ranks}
            self.logs = {r: logs[moved[r]] if r in moved else RankLog() for r in ranks}
            self.specs = {spec.rank: spec for spec in specs}
            self.births.reshape(plan)
            self.meters.renumber(plan.kept, len(specs))
            self.axes, self.mesh, self.checkup = dict(plan.new), specs[0].mesh, Checkup()
            self.groups.renumber(plan.kept)
            self._dropped = {r: why for r, why in self._dropped.items() if plan.keeps_numbers and r not in ranks}
        for rank, state in self.states.items():
            state.rank = rank
        if old != self.mesh:
            self._watchers.clear()  # who watches ranks by their old numbers
            self._hub.on_renumbered(self, plan, old)

    def remake_actors(self, ranks: Sequence[int], caller: Callable[[str, Sequence[int]], Caller]) -> None:
        """Make again, on ranks that were restarted, the actors that lived there and were made from here, in order.

        `caller` is asked, with name and ranks, for who hears how each has gone.
        """
        for rank in ranks:
            self._hub.on_rank_back(self, rank)
        for birth, chosen in self.births.again_on(ranks):
            self._send(chosen, caller(birth.name, chosen), birth.message, birth.payload, birth.on_main)

    def failed(self, actor: int) -> Collection[int]:
        return self.births.failed(actor)

    def dead(self) -> list[int]:
        return [state.rank for state in self.states.values() if state.exit is not None]

    def forget_audience(self, seq: int) -> None:
        self._watchers.pop(seq, None)

    def stop(self, grace: float = 2.0) -> dict[int, str]:
        """Take the mesh down: ranks in no cell leave by themselves within `grace` seconds, the rest is killed.

        Returns how each rank ended. Stopping a second time changes nothing.
        """
        if not self.is_stopped:
            self.is_stopped = True
            try:
                self.look_at_vitals(time.monotonic())  # who is stopped reads no goodbye
                self._send_home(self.alive())
                self.reactor.wait(When(lambda: all(state.exit for state in self.states.values())), grace)
            finally:  # whatever is raised, Ctrl-C among it: nobody else would end those that do not leave by themselves
                self.crew.close()
                for log in self.logs.values():
                    log.close()
                self._hub.on_stopped(self)
        return {rank: str(state.exit) for rank, state in self.states.items()}

    def let_go(self) -> None:
        """In a forked child of the notebook."""
        self.is_stopped = True
        self._why_stopped = "this mesh belongs to the process that this one was forked from"

    # What comes in: the Listener of the crew.

    def on_message(self, rank: int, message: AnyMessage, frames: Frames) -> None:
        if isinstance(message, Reply):
            state = self.states[rank]
            state.put_down(message.seq)
            state.since = time.monotonic()
            if message.talked:
                self._let_settle(rank, message)
            self._doubts.deliver(rank, message, frames)
            self._changed(rank)
        elif isinstance(message, Answer):
            self._doubts.deliver(rank, message, frames)
        elif isinstance(message, Metered):
            self.meters.take(rank, message)
        elif isinstance(message, Note):
            audience, _ = self._watchers.get(message.seq, (None, ()))
            self._post.deliver_note(rank, message, frames, late=audience)
        elif isinstance(message, Ready):
            self._on_ready(rank, message)
        else:
            self._hub.on_other(self, rank, message, frames)

    def _let_settle(self, rank: int, reply: Reply) -> None:
        """Before the answer that a caller waits for reaches it: what was said until then is told first."""
        listener = self.audiences.of(reply.seq)
        if listener is not None and (not reply.ok or self._post.owed(reply.seq) <= {rank}):
            contained(listener.settle)  # into a stream of the program, which may raise anything

    def _on_ready(self, rank: int, message: Ready) -> None:
        state = self.states[rank]
        state.is_ready, state.pid, state.trouble = True, message.pid, message.trouble
        self._tell_ready()
        self.reactor.wake()  # who waits for it looks again
        self._changed(rank)

    def _tell_ready(self) -> None:
        if self.readiness.up.is_there:
            return
        if lost := next(filter(_is_lost, self.states.values()), None):
            self.readiness.up.fail(SpawnError(self._why_not_up(lost)))
        elif all(state.is_ready for state in self.states.values()):
            self.readiness.up.resolve(True)

    def ready(self) -> Future[bool]:
        """Done when all ranks are up; fails when one did not come up."""
        return self.readiness.future

    def stop_all(self, reason: str) -> Future[None]:
        """What `ProcMesh.stop` does."""
        if not self.is_stopped:
            self._why_stopped = self.how_stopped = f"the mesh has status: stopped: {reason}"
        self.stop(_CLEANUP_SECONDS)
        return done(None)

    def on_output(self, rank: int, events: Sequence[Event]) -> None:
        log = self.logs[rank]
        for event in events:
            if isinstance(event, Text):
                log.append(event.run, event.stream, event.text)
            audience, watched = self._watchers.get(event.run, (None, ()))
            if audience is not None and rank in watched:
                audience.on_output(rank, event)
            elif (listener := self.audiences.of(event.run)) is not None:
                listener.on_said(self, rank, event)

    def on_exit(self, rank: int, exit: Exit) -> None:
        state = self.states[rank]
        state.died_idle = state.is_ready and not state.open_calls and not (state.is_doomed or self.is_stopped)
        state.exit, state.since = exit, time.monotonic()
        state.pid = state.pid or self._pids.get(rank, 0)  # of one that was not ready yet; the crew forgets it now
        state.put_all_down()
        why = f"{self.name_of(rank)}: {self.how_stopped}" if self.is_stopped else self.why_dead(rank)
        for seq in self._post.owed_by(rank):
            if (listener := self.audiences.of(seq)) is not None:
                contained(listener.settle)  # its last words stand before the error
        self._post.lose(rank, why)
        self._doubts.release()
        self._tell_ready()
        self._hub.on_rank_gone(self, rank, why)
        self.reactor.wake()  # as above
        self._changed(rank)

    def why_dead(self, rank: int) -> str:
        """How and where a rank ended, in one line; then its last stderr lines, and the stack it crashed with."""
        if rank in self._dropped or rank not in self.states:
            return self._dropped.get(rank, f"rank {rank} was dropped: the mesh was resized")
        return story(self.name_of(rank), self.states[rank].exit, self.host_of(rank), self._stderr(rank))

    def _changed(self, rank: int) -> None:
        for call in (*self.on_change,):  # some are removed on other threads
            call(rank)


def _is_lost(state: RankState) -> bool:
    return state.exit is not None or bool(state.trouble)
