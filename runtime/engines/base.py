"""The seam between meshes and the processes they are made of.

An engine starts ranks; what it hands back is a `Crew`, through which messages go out, and it reports to a `Listener`
what comes in. `local` makes processes on this machine, `inproc` is the in-memory fake; the same tests run on both.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..system.proc import Stat
from ..wire.codec import Encoded
from ..wire.lane import Frames
from ..wire.messages import AnyMessage, Peer
from ..wire.tape import Event
from .outside import Glimpse
from .spec import RankSpec, Seat


@dataclass(frozen=True, slots=True)
class Exit:
    """How the process of a rank ended: by `code`, by `signum`, or (both None) nobody could tell but `why`."""

    code: int | None = None
    signum: int | None = None
    why: str = ""
    """What is known of the reason, such as that the kernel did it for lack of memory, or that its host was lost."""

    @classmethod
    def from_wait_status(cls, status: int | None) -> Exit:
        if status is None:
            return cls()
        if os.WIFSIGNALED(status):
            return cls(signum=os.WTERMSIG(status))
        return cls(code=os.WEXITSTATUS(status))

    def __str__(self) -> str:
        """Example: `killed by SIGKILL (signal 9)`, `exited with code 3`."""
        if self.signum is not None:
            try:
                name = signal.Signals(self.signum).name
            except ValueError:
                name = "a signal"
            return f"killed by {name} (signal {self.signum})" + (f", {self.why}" if self.why else "")
        return self.why or "ended" if self.code is None else f"exited with code {self.code}"


def not_started(error: BaseException) -> str:
    """Why there is no process, as the end of a rank tells it; Ctrl-C says nothing itself.

    Example:
        >>> not_started(OSError(24, "Too many open files")), not_started(KeyboardInterrupt())
        ('was not started: [Errno 24] Too many open files', 'was not started: KeyboardInterrupt')
    """
    return f"was not started: {str(error) or type(error).__name__}"


class Listener(Protocol):
    """What a mesh hears from its ranks, on the thread that runs the loop, in order for each rank."""

    def on_message(self, rank: int, message: AnyMessage, frames: Frames) -> None:
        """A message came. Text that the rank printed before it has been reported before."""
        ...

    def on_output(self, rank: int, events: Sequence[Event]) -> None:
        """The rank printed, or marks were found between what it printed."""
        ...

    def on_exit(self, rank: int, exit: Exit) -> None:
        """The process has ended; nothing comes from this rank any more."""
        ...


class Crew(Protocol):
    """The ranks of one spawn."""

    pids: dict[int, int]
    """Process id of each living rank that has one of its own."""

    def post(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        """Send to the data lane of these ranks, in order, without waiting. Ranks that are gone are passed over."""
        ...

    def post_control(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        """Send to their control lane."""
        ...

    def respawn(self, specs: Sequence[RankSpec]) -> None:
        """Start ranks that are new, or that have ended; each reports as after `Engine.spawn`.

        Where they meet comes later. Where it raises, of those that were not started the end is reported: nobody is to
        wait for them.
        """
        ...

    def renumber(self, kept: Mapping[int, int]) -> None:
        """Call ranks by other numbers from now on, by their old ones. Those left out have ended, and are forgotten.

        On the thread that runs the loop.
        """
        ...

    def settle(self, axes: Mapping[str, int]) -> Sequence[str]:
        """The mesh has these axes now, and its ranks live in their places: give back hosts that they leave out.

        The names of those that were; by default there is one host.
        """
        return ()

    def keep_spares(self, count: int, like: RankSpec) -> None:
        """Have so many processes waiting, on each host, that `respawn` takes at once.

        Starts those that are missing, ends none. Raises `SpawnError` where there is no room for them.
        """
        ...

    @property
    def num_spares(self) -> tuple[int, int]:
        """How many spares wait on all hosts, and how many of them have done their imports."""
        ...

    def check_room(self, hosts: Sequence[str], again: Sequence[str] = ()) -> None:
        """Raises `SpawnError` where more ranks, one for each name of a host, do not fit there.

        Or new processes of living ranks, on the hosts of `again`, would not once these have ended.
        """
        ...

    def stats(self, ranks: Sequence[int]) -> Mapping[int, Stat]:
        """What the system says of the processes of these ranks, for those that have one."""
        ...

    def look(self, ranks: Sequence[int], native: bool = False) -> dict[int, Glimpse]:
        """What can be seen of these ranks without their help, for those that do not answer (`outside.look`)."""
        ...

    def kill(self, ranks: Sequence[int]) -> None:
        """End these ranks at once, with the processes they started (SIGKILL to the process group)."""
        ...

    def close(self) -> None:
        """End what is left at once and free everything; returns when it is gone."""
        ...


class Party(NamedTuple):
    """A rank that is to be linked to another."""

    crew: Crew
    mesh: int
    rank: int


def refer(one: Party, other: Party) -> None:
    """Tell two ranks that no link can be passed to them: the controller hands on what they say to each other."""
    one.crew.post_control([one.rank], Peer(other.mesh, other.rank))
    other.crew.post_control([other.rank], Peer(one.mesh, one.rank))


class Engine(Protocol):
    """Where ranks come from."""

    name: str

    def warm(self) -> None:
        """Begin, in the background, whatever makes the next `spawn` fast."""
        ...

    def seats(self, axes: Mapping[str, int]) -> Sequence[Seat]:
        """Where the ranks of such a mesh are to live, in order.

        Raises `SpawnError` where they cannot, and `ValueError` for axes that do not go with the hosts there are.
        """
        ...

    def reseat(self, axes: Mapping[str, int], kept: Mapping[int, Seat]) -> Sequence[Seat]:
        """Where the ranks of a mesh are to live that gets these axes: the `kept` ones stay on their hosts.

        Raises what `seats` does.
        """
        ...

    def num_gpus(self) -> int:
        """GPUs that ranks could use on each host: the fewest, where hosts differ."""
        ...

    def why_not_shared(self, spec: RankSpec) -> str:
        """Why ranks like this import their packages (`preload`) each for itself, as far as that is known."""
        return ""

    def prepare(self, specs: Sequence[RankSpec], how: str = "auto") -> None:
        """Wait for what such ranks need, imports or a host: Ctrl-C may end this, and it would tear `spawn`."""

    def spawn(self, specs: Sequence[RankSpec], listener: Listener, how: str = "auto") -> Crew:
        """Start ranks; each reports `Ready` to the listener, or ends. `how` is `auto`, `fork` or `exec`."""
        ...

    def introduce(self, one: Party, other: Party) -> None:
        """Link two ranks of this engine; each is given its end. One that is gone is passed over."""
        ...

    def close(self) -> None:
        """Free what `warm` made. Crews are closed by whom they belong to."""
        ...
