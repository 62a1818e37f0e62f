"""Where a rank stands: what code that runs on it can ask about itself and its mesh."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from ..ndslice import places

if TYPE_CHECKING:
    from ..engines.spec import Standing
    from ..groups.groups import Groups
    from ..wire.messages import Metered
    from .meter import Meter


Opened = Callable[[], AbstractContextManager[None]]
"""A context manager factory inside which interrupts of user code may strike."""


class Remains(Protocol):
    """Keeps what code of actors has raised, frames and all."""

    def keep(self, actor: str, error: BaseException) -> None:
        """An endpoint or the constructor of the actor of this name has raised it."""
        ...

    def let_go(self, actor: str) -> None:
        """The actor works again, or is gone: what its frames hold may be wanted."""
        ...


class Leftovers(Protocol):
    """What user code has left in an event loop: tasks, timers, sockets that it listens at."""

    def has_any(self) -> bool: ...

    def go_on(self, until: Sequence[int], opened: Opened) -> None:
        """Run them until one of these descriptors is readable; they may be interrupted inside of `opened()`."""
        ...


@dataclass(slots=True)
class Place:
    """A rank's place in its mesh: known to every actor on it as `here()`.

    `axes` maps each named axis of the whole mesh to its size, `coord` to this rank's index on it.
    """

    rank: int
    world_size: int
    local_rank: int
    axes: dict[str, int]
    device: str
    groups: Groups | None = None
    shield: Any = None
    """A context manager factory inside which an interrupt of user code waits (`Interrupts.shield`)."""
    opened: Any = None
    """A context manager factory inside which a careful actor lets interrupts strike (`Interrupts.opened`)."""
    has_struck: Callable[[], bool] = bool
    """Whether an interrupt was raised in the running call, which goes on (`Interrupts.has_struck`)."""
    note: Any = None
    """Sends something unasked to the caller of the running call: `note(topic, value)`."""
    streams: Any = None
    visits: Any = None
    """The way of a debugger into the middle of user code (`Visits`); None on a rank that is a thread."""
    stop: Callable[[FrameType], object] | None = None
    """Stops the thread that calls it in this frame, for the debugger; None before there is one here."""
    remains: Remains | None = None
    """Keeps errors of actors for a debugger; None before there is one here."""
    leftovers: Leftovers | None = None
    """Goes on while the main thread waits for a message; None before cells run here."""
    awaited: Any = None
    """Gives the coroutine that the running call awaits, for who asks where this rank is (`stacks.sample`)."""
    report: Callable[[Metered], object] | None = None
    """Sends what user code has reported to the controller; None where nobody listens."""
    meter: Meter | None = None
    """Collects that, from the first report on."""
    movers: list[Callable[[Move], None]] = field(default_factory=list["Callable[[Move], None]"])
    """Who is to know, in this order, when the mesh was resized."""
    coord: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.coord = coordinates(self.rank, self.axes)

    def move(self, move: Move) -> None:
        """The mesh was resized: stand where this says from now on, and tell those who want to know."""
        self.rank = move.numbers[self.rank]
        self.local_rank = move.standings[self.rank].local_rank
        self.world_size = math.prod(move.axes.values())
        self.axes = dict(move.axes)
        self.coord = coordinates(self.rank, self.axes)
        for tell in self.movers:
            tell(move)

    def leave(self) -> None:
        """The rank ends: what was reported last is sent, and nothing after it."""
        self.report = None
        if self.meter is not None:
            self.meter.close()


@dataclass(frozen=True, slots=True)
class Move:
    """How a resize changed a mesh: its number (another one where ranks were renumbered), its axes, its ranks."""

    mesh: int
    axes: Mapping[str, int]
    numbers: Mapping[int, int]
    """By its old number, the new one of each rank that was there before."""
    standings: Sequence[Standing]
    """Of all ranks of the new mesh, in their order."""


def coordinates(rank: int, axes: Mapping[str, int]) -> dict[str, int]:
    """The index of a row-major `rank` on each axis.

    Example:
        >>> coordinates(5, {"dp": 2, "tp": 4})
        {'dp': 1, 'tp': 1}
    """
    return dict(zip(axes, places(rank, [*axes.values()]), strict=True))


def axes_text(axes: Mapping[str, int]) -> str:
    """Example: `dp=2 tp=4`."""
    return " ".join(f"{axis}={size}" for axis, size in axes.items())


_process: Place | None = None
_thread: ContextVar[Place] = ContextVar("meshbook_place")


def enter(place: Place, *, whole_process: bool = True) -> None:
    """Make `place` what `here()` says, in this process or (the in-process engine) in this thread only."""
    global _process
    if whole_process:
        _process = place
    else:
        _thread.set(place)


def nearest() -> Place | None:
    """The place of the rank this code runs on; None elsewhere."""
    return _thread.get(_process)


def here() -> Place:
    """The place of the rank this code runs on. Raises `RuntimeError` elsewhere (in the notebook, say)."""
    place = nearest()
    if place is None:
        raise RuntimeError("this runs on no rank: put it into a cell that begins with %%on_mesh, or into an endpoint")
    return place
