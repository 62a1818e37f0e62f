"""A mesh that runs no cells, as the debugger sees it: what a script has made with `spawn_procs`.

Its ranks get a debugger when the first of them comes to a `breakpoint()`, or when somebody attaches.
"""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.actor import Actor, control_endpoint
from ...runtime.adverbs import view_of
from ...runtime.channel import Port
from ...runtime.controller.gather import Gather
from ...runtime.controller.roster import Roster
from ...runtime.orders import Birth
from ...runtime.ranks.place import here
from ...runtime.shape import Shape
from ...runtime.wire import codec
from ...runtime.wire.unicode import packed
from ..questions import Questions
from ..sources.source import Sources
from .debugger import STEPS, Debugger
from .desk import Desk

_NAME = "debugger"

_READY = 5.0
"""Seconds in which the ranks have imported their debugger."""


class DebugActor(Actor):
    """Lives on each rank of such a mesh: what the kernel actor is to the debugger where cells run.

    On the main thread, which has nothing else to do there: actors have threads of their own.
    """

    _on_main_thread = True
    _is_careful = True

    def __init__(self, port: Port[bytes]) -> None:
        place = here()
        self._debugger = Debugger(place, lambda event: port.send(packed(event)))
        if place.visits is not None:
            _prepare()
            self._debugger.install()

    @control_endpoint
    def debug(self, step: str, *args: Any) -> Any:
        """A step of the debugger, as `KernelActor.debug`."""
        if step not in STEPS:
            raise LookupError(f"the debugger has no step {step!r}")
        return getattr(self._debugger, step)(*args)


def _prepare() -> None:
    """Import IPython's debugger, and make the shell that it wants: else it makes one with a history and a terminal.

    It takes half a second, which a rank that is to stop in a loop would not have later.
    """
    from ..ranks.shell import QuietShell
    from . import rank_pdb

    assert rank_pdb
    main, hook = sys.modules["__main__"], sys.displayhook
    shell = QuietShell.instance()
    shell.publish = lambda data, metadata, display_id, update: print(data.get("text/plain", ""))
    shell.clear = lambda wait: None
    shell.builtin_trap.__exit__(None, None, None)
    sys.modules["__main__"], sys.displayhook = main, hook


class BareMesh(Questions):
    """The part of a mesh that can be asked and debugged, without the part that runs cells."""

    last_cell = 0
    last_failed: tuple[int, ...] = ()

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.name = roster.name
        self.desk = Desk()
        self.desk.serve(self)
        self.sources = Sources()
        shape = Shape.row_major(roster.axes) if roster.axes else Shape.unity()
        self._actor = secrets.randbits(62)
        self._making = Gather(roster, shape.ranks(), f"{self.name}.{_NAME}")
        payload = codec.encode((DebugActor, (self.desk.port,), dict[str, Any](), None))
        birth = Birth(tuple(shape.ranks()), self._actor, _NAME, view_of(shape), payload, on_main=True)
        roster.spawn_actor(birth, self._making)

    def wait_ready(self, seconds: float = _READY) -> None:
        """Until the ranks have their debugger, or the time is up: one whose interpreter is held never has."""
        self._making.wait(seconds)

    @property
    def num_ranks(self) -> int:
        return len(self.roster.states)

    def interrupt(self, ranks: Sequence[int] | None = None, call: int = 0, timeout: float = 0.5) -> dict[int, bool]:
        """What the user calls has no cell to interrupt: raises `ValueError`, which says what can be done instead."""
        raise ValueError("endpoints of actors cannot be interrupted: `q` lets them go on, Ctrl-C in the script ends it")


_bare: dict[Roster, BareMesh] = {}
_making = threading.Lock()  # two ranks may come to a breakpoint at once, while somebody attaches

on_bare: list[Callable[[BareMesh], object]] = []
"""Called with each that is made: who listens to its stops."""


def bare_mesh(roster: Roster) -> BareMesh:
    """The mesh of these ranks as the debugger sees it; made with the first use."""
    with _making:
        found = _bare.get(roster)
        if found is None:
            for each in [each for each in _bare if each.is_stopped]:
                del _bare[each]
            found = _bare[roster] = BareMesh(roster)
            for tell in on_bare:
                tell(found)
    return found


def bare_meshes() -> list[BareMesh]:
    """Those that live."""
    return [mesh for mesh in list(_bare.values()) if not mesh.is_down]
