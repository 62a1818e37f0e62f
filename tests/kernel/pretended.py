"""What a cell is driven against without processes: a run, its mesh, its desk and who tells of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

from meshbook.kernel.debug.events import Stop
from meshbook.kernel.debug.stops import Stops
from meshbook.kernel.drive import Drive
from meshbook.kernel.failures.together import Deeds
from meshbook.kernel.run import Progress
from meshbook.kernel.stopping.patience import Patience
from meshbook.kernel.waiting.ledger import Finding
from meshbook.runtime.controller.group_state import GroupState
from meshbook.runtime.errors import MeshbookError
from meshbook.runtime.future import Promise

RANKS = [0, 1, 2]


class PretendedRun:
    """A run on three ranks; a test says what they do."""

    def __init__(self) -> None:
        self.ranks, self.axes = RANKS, {"rank": len(RANKS)}
        self.roster = SimpleNamespace(is_stopped=False)
        self.call = 7
        self.mended = ""
        self.is_driven = False
        self.started = time.monotonic()
        self.parted_for = 0.0
        """Seconds since its ranks have parted."""
        self.progress = Progress()
        self.news = threading.Event()
        self.owing = list(RANKS)
        self.said: list[Any] = []
        self.on_late: Callable[[], object] | None = None
        self.on_trouble: Callable[[], object] | None = None
        self.on_said: Callable[[], object] | None = None
        self.on_take: Callable[[], object] = lambda: None
        self.promise: Promise[Any] = Promise()

    @property
    def finished(self) -> Any:
        return self.promise.future

    @property
    def has_more(self) -> bool:
        return bool(self.said)

    def take(self) -> list[Any]:
        self.news.clear()
        self.on_take()
        said, self.said = self.said, []
        return said

    def end(self, rank: int, failed: bool = False, outcome: bytes = b"") -> None:
        self.owing.remove(rank)
        if failed:
            self.progress.failed.append(rank)
            self.progress.outcomes[rank] = outcome
        if not self.owing:
            self.promise.resolve(self)
        self.news.set()

    def rouse(self) -> None:
        self.news.set()

    def take_back(self, ranks: dict[int, str]) -> None:
        for rank in ranks:
            self.progress.lost[rank] = "taken back"
            self.end(rank)

    def abandon(self, places: dict[int, str], heard: Sequence[int]) -> None:
        self.progress.lost.update({rank: f"did not react at {places[rank]}" for rank in self.owing})
        self.owing.clear()
        self.promise.resolve(self)


class PretendedDesk:
    """Nobody is stopped in the debugger, unless `is_wanted` is set; `left` notes who was let go."""

    def __init__(self) -> None:
        self.is_wanted = self.has_console = False
        self.held: frozenset[int] = frozenset()
        self.stops = Stops()
        self.left: list[list[int]] = []

    def heard_by(self, listener: Callable[[], object], *, serves: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def leave(self, ranks: Sequence[int]) -> None:
        self.left.append(list(ranks))
        self.stops.drop(ranks)

    def take_said(self) -> list[tuple[int, str]]:
        return []

    def answer(self, stop: Stop, line: str) -> bool:
        self.left.append([stop.rank])
        self.stops.answered(stop)
        self.is_wanted = False
        return True


class PretendedMesh:
    """Notes who is interrupted; its ranks end when they are, unless they are deaf."""

    def __init__(self, run: PretendedRun, is_deaf: bool = False) -> None:
        self.roster = self
        self.reactor = self
        self.desk = PretendedDesk()
        self.groups = GroupState("gloo")
        self.interrupted: list[tuple[list[int], int]] = []
        self.released: list[tuple[list[int], int]] = []
        self.killed: list[list[int]] = []
        self.num_mended = 0
        self.why_mended: str | MeshbookError = ""
        self.scheduled: list[Callable[[], object]] = []
        self.behind: dict[int, str] = {}
        self.heard: dict[int, str] = {}
        """Who goes on after an interrupt, and what it waits in."""
        self.at_work: set[int] = set()
        """Who has something else to do than to wait."""
        self.done: dict[int, Deeds] = {}
        self.sent: list[tuple[list[int], str]] = []
        self.states: dict[int, Any] = {}
        self._run, self._is_deaf = run, is_deaf

    def wait(self, event: threading.Event, timeout: float) -> bool:
        return event.wait(min(timeout, 0.001))

    def schedule(self, call: Callable[[], object]) -> None:
        self.scheduled.append(call)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        self.scheduled.append(call)

    def dead(self) -> list[int]:
        return []

    def queued(self, run: Any) -> dict[int, str]:
        return {rank: name for rank, name in self.behind.items() if rank in run.owing}

    def where(self, ranks: Sequence[int], timeout: float) -> dict[int, str]:
        return {rank: f"cell 1 line {rank}" for rank in ranks}

    def ask(self, ranks: Sequence[int], actor: int, endpoint: str, payload: object, caller: Any) -> None:
        told = {"after_interrupt": self.heard.get, "is_held_up": lambda rank: rank not in self.at_work}[endpoint]
        caller.answers.update({rank: told(rank) for rank in ranks})

    def stacks(self, ranks: Sequence[int]) -> Any:
        return SimpleNamespace(stacks=[SimpleNamespace(rank=rank, place=f"cell 1 line {rank + 7}") for rank in ranks])

    def send_ahead(self, ranks: Sequence[int], endpoint: str) -> None:
        self.sent.append((list(ranks), endpoint))

    def deeds(self, ranks: Sequence[int]) -> dict[int, Deeds]:
        return {rank: self.done[rank] for rank in ranks if rank in self.done}

    def ledger(self, ranks: Sequence[int], timeout: float, depth: int) -> Any:
        findings = [
            Finding("rank 1 has issued none", (1,), (0, 2), self._run.parted_for),
            Finding("rank 9 has issued none", (9,), (8,)),
        ]
        idle = [rank for rank in RANKS if rank not in self._run.owing]
        return SimpleNamespace(
            findings=findings, idle=idle, dead=(), unlike=lambda: [f"{list(ranks)} called different things"]
        )

    def interrupt(self, ranks: Sequence[int], call: int, timeout: float) -> dict[int, bool]:
        self.interrupted.append((list(ranks), call))
        if not self._is_deaf:
            for rank in list(ranks):
                self._run.end(rank, failed=True)
        return dict.fromkeys(ranks, True)

    def release(self, ranks: Sequence[int], call: int, timeout: float) -> None:
        self.released.append((list(ranks), call))

    def kill(self, ranks: Sequence[int]) -> None:
        self.killed.append(list(ranks))
        for rank in list(ranks):
            self._run.progress.lost[rank] = "killed"
            self._run.end(rank)

    def mend(self, renews: bool) -> str:
        self.num_mended += 1
        if isinstance(self.why_mended, MeshbookError):
            raise self.why_mended
        return self.why_mended


class PretendedLive:
    def __init__(self) -> None:
        self.told: list[Any] = []
        self.times: list[float] = []

    def update(self, said: Sequence[Any], now: float) -> None:
        self.told += said
        self.times.append(now)

    def finish(self, now: float) -> None:
        self.told.append("end")

    def late(self, said: Sequence[Any], now: float, is_last: bool = False) -> None:
        self.told += [("late", item) for item in said]

    def tell_failures(self, progress: Progress, owing: Sequence[int]) -> None:
        self.told.append(("failed", list(progress.failed), list(owing)))

    def note(self, ranks: Sequence[int], mark: str, text: str) -> None:
        self.told.append((list(ranks), text))

    def tell_deaths(self, lost: dict[int, str], owing: Sequence[int]) -> None:
        self.told.append(("lost", lost, list(owing)))


def drive_of(run: PretendedRun, is_deaf: bool = False, **rule: Any) -> Any:
    mesh: Any = PretendedMesh(run, is_deaf)
    live: Any = PretendedLive()
    pretended: Any = run
    return Drive(mesh, pretended, live, Patience(time.monotonic(), **rule))


def die(run: PretendedRun, rank: int) -> None:
    run.progress.lost[rank] = f"rank {rank} ended"
    run.end(rank)
