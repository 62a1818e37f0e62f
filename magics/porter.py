"""Talks with `python -m meshbook.debug` of another terminal, in the process whose ranks it is about.

Imported when the first one comes in by the hatch (`runtime.hatch`), or when a rank of a script comes to a breakpoint.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from ..kernel.debug.bare import BareMesh, bare_mesh, on_bare
from ..kernel.debug.converse import Conversation
from ..kernel.debug.desk import Desk, desk_of
from ..kernel.debug.ladder import Rung, enter
from ..kernel.debug.letters import Attach, End, List, Listing, Look, MeshFacts, Out, Watch, Wire
from ..kernel.debug.places import place_of, users_frame
from ..kernel.debug.sitting import names_of
from ..kernel.debug.stoppable import Stoppable
from ..kernel.debug.visitor import Visitor
from ..kernel.questions import Questions
from ..kernel.waiting.look import look as look_at
from ..kernel.waiting.profile import profile
from ..kernel.waiting.report import StackReport
from ..runtime.controller.roster import Roster
from ..runtime.errors import MeshbookError
from ..runtime.ranges import named
from ..runtime.session import session
from . import unattended
from .selection import selection
from .unattended import look

__all__ = ("bring_debugger", "look", "receive")

RUNNING = "ranks run: the prompt comes when one stops, Ctrl-C leaves"

_sitting_down = threading.Lock()  # two that come at once: one gets the chair

on_bare.append(unattended.watch)


class _Refused(Exception):
    """What was asked for cannot be done; says why."""


def bring_debugger(roster: Roster) -> None:
    """Give these ranks, which run no cells, a debugger; returns when they have it."""
    bare_mesh(roster).wait_ready()


def receive(guest: socket.socket) -> None:
    """Do what a guest wants; on a thread of its own."""
    wire = Wire(guest)
    try:
        match wire.recv_from_terminal():
            case List():
                wire.send(_listing())
            case Look(mesh, selector, native):
                place = _own_place()
                found = _looker(_roster(mesh), selector, native)()
                wire.send(Out(f"{found}\n" + (f"the script itself is at {place}\n" if place else "")))
                wire.send(End())
            case Watch(mesh, selector, seconds):
                looker = _looker(_roster(mesh), selector)
                wire.send(Out(f"{profile(lambda: looker().stacks, seconds, wire.rest)}\n"))
                wire.send(End())
            case Attach(mesh, selector):
                _attend(wire, _roster(mesh), selector)
            case _:
                return  # it has gone again
    except (_Refused, ValueError, MeshbookError) as reason:
        wire.send(End(str(reason), is_fault=True))


def _listing() -> Listing:
    command = shlex.join([os.path.basename(sys.executable), *sys.orig_argv[1:]])
    return Listing(command, os.getcwd(), _own_place(), tuple(map(_facts, _rosters())))


def _own_place() -> str:
    """Where the main thread of this process is; empty where that is in no code of the user's."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # pyright: ignore[reportPrivateUsage]
    found = users_frame(frame)
    return place_of(found) if found is not None else ""


def _rosters() -> list[Roster]:
    return [roster for roster in list(session().root.rosters.values()) if not roster.is_stopped]


def _facts(roster: Roster) -> MeshFacts:
    desk = desk_of(roster)
    roster.look_at_vitals(time.monotonic())
    states = {rank: state.name for rank, state in roster.states.items()}
    stops = {stop.rank: stop.place for stop in desk.stops.waiting.values()} if desk is not None else {}
    return MeshFacts(roster.name, dict(roster.axes), states, stops)


def _roster(name: str) -> Roster:
    """The mesh of this name; without one the only mesh, or the only one where a rank is stopped."""
    rosters = _rosters()
    if not rosters:
        raise _Refused("no mesh is up there")
    found = [roster for roster in rosters if not name or roster.name == name]
    if len(found) > 1:
        found = [roster for roster in found if _facts(roster).stops] if not name else found
    if len(found) != 1:
        raise _Refused(_which(name, [roster.name for roster in rosters]))
    return found[0]


def _which(name: str, names: Sequence[str]) -> str:
    if name and name not in names:
        return f"there is no mesh {name!r}: there is {', '.join(names)}"
    if name:
        return f"{names.count(name)} meshes are called {name!r}: `spawn_procs(..., name=...)` tells them apart"
    return f"there are {len(names)} meshes, name one: attach {os.getpid()}/{names[0]} ({', '.join(names)})"


def _looker(roster: Roster, selector: str, native: bool = False) -> Callable[[], StackReport]:
    """Looks at these ranks, each time that it is called."""
    desk = desk_of(roster)
    mesh = desk.mesh if desk is not None else None
    ranks = selection(selector, mesh or _Plain(roster)) if selector else None
    if isinstance(mesh, Questions):
        return lambda: mesh.stacks(ranks, native=native)
    return lambda: look_at(roster, ranks, native=native)


class _Plain(Questions):
    """Ranks that have no debugger, and need none to be named."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.num_ranks = len(roster.states)
        self.last_failed = ()

    def states(self) -> dict[int, str]:
        return {rank: state.name for rank, state in self.roster.states.items()}


def _attend(wire: Wire, roster: Roster, selector: str) -> None:
    """Let the guest talk with who is stopped, until it leaves or the mesh ends."""
    desk = desk_of(roster) or bare_mesh(roster).desk
    mesh = desk.mesh
    chosen = selection(selector, mesh) if selector else ()
    visitor = Visitor(wire, desk)
    with _seat(desk, visitor):
        if isinstance(mesh, BareMesh):
            mesh.wait_ready()
        desk.begin_cell()
        visitor.show(f"mesh {roster.name} of pid {os.getpid()}, {mesh.num_ranks} ranks")
        _stop(mesh, visitor, chosen)
        _talk(mesh, visitor)
    if visitor.is_there:
        visitor.end("the mesh was taken down" if mesh.is_down else "left: all ranks go on")


@contextmanager
def _seat(desk: Desk, visitor: Visitor) -> Generator[None]:
    """Inside, this one has the prompt of the mesh."""
    with _sitting_down:
        if desk.has_console:
            raise _Refused("the prompt of this mesh is taken: by another terminal, or by the console of its notebook")
        former, desk.console = desk.console, lambda: visitor.is_there
    desk.listeners.append(visitor.wake)
    try:
        yield
    finally:
        desk.listeners.remove(visitor.wake)
        desk.console = former


def _stop(mesh: Stoppable, visitor: Visitor, ranks: Sequence[int]) -> None:
    for rung, found in enter(mesh, ranks).items():
        if rung is not Rung.LIVE:
            visitor.show(f"{named(found)}: {rung.value}")
        if rung is Rung.STACK:
            visitor.show(str(look_at(mesh.roster, found)))


def _talk(mesh: Stoppable, visitor: Visitor) -> None:
    desk = mesh.desk
    conversation = Conversation(
        desk,
        visitor,
        lambda text: selection(text, mesh),
        names_of(mesh),
        lambda: not any(state.is_at_work for state in mesh.roster.states.values()),
        mesh.interrupt,
    )
    is_told = False
    while visitor.is_there and not mesh.is_down:
        if desk.is_wanted:
            conversation.hold()
            is_told = False
            if visitor.wants_to_leave and not desk.stops.waiting:
                return
        else:
            if not is_told:
                visitor.show(RUNNING)
            is_told = True
            visitor.rest(lambda: desk.is_wanted)
