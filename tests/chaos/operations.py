"""What a run of chaos may do: each operation is a value, and carries the cell that it sends.

Nothing in here knows of time or processes: the same seed gives the same operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ranks = tuple[int, ...]
Wait = Literal["barrier", "all_reduce", "mismatch", "sleep", "spin", "lock", "await"]
"""What a rank does that does not come to an end by itself."""

Replay = Literal["auto", "none"]

_TORCH = "import torch, torch.distributed as dist"

_WAITS: dict[Wait, str] = {
    "barrier": f"{_TORCH}\ndist.barrier(group=group)",
    "all_reduce": f"{_TORCH}\ndist.all_reduce(torch.ones(1000), group=group)",
    "mismatch": f"{_TORCH}\nx = torch.ones(1000)\nif dist.get_rank(group) == 0:\n"
    "    dist.broadcast(x, group=group, group_src=1)\nelse:\n    dist.all_reduce(x, group=group)",
    "sleep": "import time\ntime.sleep(600)",
    "spin": "while True: pass",
    "lock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "await": "import asyncio\nawait asyncio.sleep(600)",
}

COLLECTIVES: tuple[Wait, ...] = ("barrier", "all_reduce")
"""The waits in which ranks wait for each other: they end when all of them come."""

TOGETHER: tuple[Wait, ...] = (*COLLECTIVES, "mismatch")
"""Those that take two ranks. Where ranks call different collectives, none comes to an end, whoever comes."""


@dataclass(frozen=True, slots=True)
class Compute:
    """A cell that prints, and gives a number."""

    ranks: Ranks
    factor: int

    @property
    def source(self) -> str:
        return f"print('line', rank * {self.factor})\nrank * {self.factor} + 1"


@dataclass(frozen=True, slots=True)
class Assign:
    """Set the variable."""

    ranks: Ranks
    value: int

    @property
    def source(self) -> str:
        return f"v = {self.value}"


@dataclass(frozen=True, slots=True)
class Read:
    """Read the variable."""

    ranks: Ranks

    source = "globals().get('v')"


@dataclass(frozen=True, slots=True)
class Collect:
    """A sum over the ranks of the cell, or along an axis of the mesh where one is named."""

    ranks: Ranks
    size: int
    axis: str = ""

    @property
    def source(self) -> str:
        group = f"mesh.device_mesh[{self.axis!r}].get_group()" if self.axis else "group"
        make = f"{_TORCH}\nx = torch.full(({self.size},), rank + 1)"
        return f"{make}\ndist.all_reduce(x, group={group})\n(x.min() + x.max()).item()"


@dataclass(frozen=True, slots=True)
class Raise:
    """One rank raises, the others wait; `halted` ranks, which do not take part, are stopped meanwhile."""

    ranks: Ranks
    culprit: int
    wait: Wait
    value: int
    halted: Ranks = ()

    @property
    def source(self) -> str:
        return _unless(self.value, (self.culprit,), f"raise ValueError('boom {self.culprit}')", self.wait)


@dataclass(frozen=True, slots=True)
class Press:
    """The stop button while ranks wait, `after` seconds into the cell; all come but one, which is done."""

    ranks: Ranks
    wait: Wait
    value: int
    after: float

    @property
    def source(self) -> str:
        return _unless(self.value, self.ranks[:1] if self.wait in COLLECTIVES else (), "pass", self.wait)


@dataclass(frozen=True, slots=True)
class Interrupt:
    """`mesh.interrupt` from elsewhere, `after` seconds into the cell."""

    ranks: Ranks
    wait: Wait
    value: int
    after: float

    source = Press.source


@dataclass(frozen=True, slots=True)
class TimeOut:
    """A cell that may take `after` seconds and takes longer."""

    ranks: Ranks
    wait: Wait
    value: int
    after: float

    source = Press.source


@dataclass(frozen=True, slots=True)
class Unstick:
    """`mesh.unstick` while ranks wait for one that does not come; `is_idle`: while they do nothing."""

    ranks: Ranks
    wait: Wait
    value: int
    is_idle: bool

    source = Press.source


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL from outside, whatever these ranks do."""

    ranks: Ranks


@dataclass(frozen=True, slots=True)
class KillDuring:
    """SIGKILL to some ranks of a cell, `after` seconds into it."""

    ranks: Ranks
    victims: Ranks
    wait: Wait
    value: int
    after: float

    @property
    def source(self) -> str:
        return _unless(self.value, self.victims, "import time; time.sleep(600)", self.wait)


@dataclass(frozen=True, slots=True)
class Leave:
    """Some ranks of a cell end their own process."""

    ranks: Ranks
    victims: Ranks
    wait: Wait
    value: int
    code: int

    @property
    def source(self) -> str:
        return _unless(self.value, self.victims, f"import os; os._exit({self.code})", self.wait)


@dataclass(frozen=True, slots=True)
class Halt:
    """SIGSTOP to an idle rank; the others work; then it goes on, is killed, or is restarted."""

    rank: int
    others: Ranks
    then: Literal["continue", "kill", "restart"]


@dataclass(frozen=True, slots=True)
class HaltDuring:
    """SIGSTOP to some ranks of a cell that adds up, SIGCONT after a while."""

    ranks: Ranks
    halted: Ranks
    after: float

    @property
    def source(self) -> str:
        return Collect(self.ranks, 10).source


@dataclass(frozen=True, slots=True)
class Start:
    """A cell in the background, which goes on until it is let go."""

    number: int
    ranks: Ranks
    value: int

    @property
    def source(self) -> str:
        gate = f"os.path.join(os.environ['CHAOS_FLAGS'], '{self.number}')"
        wait = f"while not os.path.exists({gate}):\n    time.sleep(0.005)"
        return f"v = {self.value}\nimport os, time\n{wait}\nrank + {self.number}"


@dataclass(frozen=True, slots=True)
class Finish:
    """Let go of a cell in the background and take what it gives."""

    number: int


@dataclass(frozen=True, slots=True)
class Mend:
    """`mesh.mend`, whether or not there is a need."""


@dataclass(frozen=True, slots=True)
class Heal:
    """Bring back the dead ranks."""

    replay: Replay


@dataclass(frozen=True, slots=True)
class Restart:
    """New processes for these ranks, dead or alive."""

    ranks: Ranks
    replay: Replay


@dataclass(frozen=True, slots=True)
class Push:
    """Put an array of `size` equal numbers into the ranks."""

    ranks: Ranks
    value: int
    size: int


@dataclass(frozen=True, slots=True)
class Pull:
    """Take it back."""

    ranks: Ranks


@dataclass(frozen=True, slots=True)
class Spawn:
    """Make actors on a slice of the mesh, given as one index or none for each axis."""

    name: str
    where: tuple[tuple[str, int], ...]
    start: int


@dataclass(frozen=True, slots=True)
class Add:
    """Call actors."""

    name: str
    amount: int


@dataclass(frozen=True, slots=True)
class StopActors:
    """End actors."""

    name: str


@dataclass(frozen=True, slots=True)
class Look:
    """Ask where everybody is, in one of the ways there are."""

    how: Literal["stacks", "ledger", "where", "complete", "interrupt idle"]


Operation = (
    Compute
    | Assign
    | Read
    | Collect
    | Raise
    | Press
    | Interrupt
    | TimeOut
    | Unstick
    | Kill
    | KillDuring
    | Leave
    | Halt
    | HaltDuring
    | Start
    | Finish
    | Mend
    | Heal
    | Restart
    | Push
    | Pull
    | Spawn
    | Add
    | StopActors
    | Look
)


def _unless(value: int, ranks: Ranks, do: str, wait: Wait) -> str:
    """Set the variable; then these ranks do something else than wait."""
    others = "\n".join(f"    {line}" for line in _WAITS[wait].splitlines())
    return f"v = {value}\nif rank in {ranks!r}:\n    {do}\nelse:\n{others}"
