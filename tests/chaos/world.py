"""Chaos on real ranks: does an operation, tells the model, and compares what came of it.

Cells are driven by what drives those of a notebook, `kernel.drive`; the stop button is a real SIGINT to this process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, singledispatchmethod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from meshbook.kernel.drive import Drive
from meshbook.kernel.driver import drive, drive_in_background
from meshbook.kernel.failures.cut_off import NO_STORE
from meshbook.kernel.mesh import Mesh
from meshbook.kernel.outcome import Outcome
from meshbook.kernel.run import Run
from meshbook.kernel.stopping.patience import Patience
from meshbook.kernel.waiting.halts import HaltWatch
from meshbook.runtime.controller.regroup import wait_until
from meshbook.runtime.errors import MeshbookError
from meshbook.widgets.live import Live

from . import operations as ops
from .actors import Tally
from .model import Model
from .operations import COLLECTIVES, Operation, Ranks
from .verdicts import Violation

GRACE = 0.2
"""Seconds that other ranks have after a failure; a notebook gives 2."""

PATIENCE = 6.0
"""Seconds until ranks that do not react are given up, which is a violation; generous for a machine under load."""

AT_ONCE = 5.0
"""Seconds within which an answer that waits for nobody must come; for a machine under load."""

_STOPPED = {"KeyboardInterrupt", "RuntimeError", "DistBackendError", "CancelledError"}
"""What ends a rank that was interrupted, or whose collective was broken off."""

_STORE_LOST = {"DistNetworkError", "DistStoreError"}
"""What ends a rank that was making its group when the store died."""


class SilentStage:
    """An output area that keeps what it is given."""

    def __init__(self) -> None:
        self.text, self.can_update = "", True

    def write(self, text: str, stream: str = "stdout") -> None:
        self.text += text

    def display(self, *_: object, **__: object) -> None: ...

    def clear(self, wait: bool = False) -> None: ...

    def leave(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Driven:
    """A cell at its end."""

    run: Run
    drive: Drive
    stage: SilentStage

    def end(self, rank: int) -> str:
        """How it ended on a rank: `=` and its value, `!` and its error, or how the rank was lost."""
        if rank in self.run.progress.lost:
            return f"lost: {self.run.progress.lost[rank].partition(chr(10))[0]}"
        outcome = msgspec.msgpack.decode(self.run.progress.outcomes[rank], type=Outcome)
        if outcome.failure is not None:
            return f"!{outcome.failure.type_name}: {outcome.failure.message}"
        return f"={outcome.value.text}" if outcome.value is not None else "="

    def __str__(self) -> str:
        ends = "; ".join(f"{rank} {self.end(rank)}" for rank in self.run.ranks)
        return f"{ends}; reason {self.drive.patience.reason!r}, {self.drive.patience.rung.name}; {self.drive.mended}"


class World:
    """A mesh, its model, and what is under way."""

    def __init__(self, mesh: Mesh, flags: Path) -> None:
        self.mesh = mesh
        self.model = Model(dict(mesh.axes))
        self._flags = flags
        self._cells: dict[int, tuple[Drive, SilentStage, threading.Thread]] = {}
        self._troupes: dict[str, Any] = {}
        self._pids = self._pids_now()

    def do(self, operation: Operation) -> None:
        """Perform it. Raises `Violation` where something is not as it must be."""
        self._do(operation)
        self._check_states()

    @singledispatchmethod
    def _do(self, operation: Any) -> None:
        raise TypeError(f"nobody knows how to do {operation}")

    # Cells that come to an end by themselves.

    @_do.register
    def _(self, do: ops.Compute) -> None:
        done = self._run(do.ranks, do.source)
        self._check_values(done, {rank: rank * do.factor + 1 for rank in do.ranks})
        for rank in do.ranks:
            said = self.mesh.log(rank, run=done.run.call, stream="stdout")
            _must(said == f"line {rank * do.factor}\n", f"rank {rank} printed {said!r}")

    @_do.register
    def _(self, do: ops.Assign) -> None:
        self.model.assign(do.source, do.ranks, do.value)
        done = self._run(do.ranks, do.source)
        self._check_ends(done, lambda rank, end: end == "=")

    @_do.register
    def _(self, do: ops.Read) -> None:
        done = self._run(do.ranks, do.source)
        for rank in do.ranks:
            known, end = self.model.v[rank], done.end(rank)
            value = int(end[1:]) if end[1:].isdigit() else None
            is_right = end[:1] == "=" and self.model.saw(rank, value)
            _must(is_right, f"v is {end!r} on rank {rank}, and can only be {sorted(known, key=str)}")

    @_do.register
    def _(self, do: ops.Collect) -> None:
        expected = {rank: 2 * self.model.total(rank, do.ranks, do.axis) for rank in do.ranks}
        done = self._run(do.ranks, do.source)
        self._check_values(done, expected)

    # Cells that do not, and what ends them.

    @_do.register
    def _(self, do: ops.Raise) -> None:
        self.model.assign(do.source, do.ranks, do.value, is_sure=False)
        with self._halted(do.halted):
            done = self._run(do.ranks, do.source)
        boom, refused = f"!ValueError: boom {do.culprit}", "no process group"  # where the rank with the store is halted
        self._check_ends(done, lambda r, end: end == boom if r == do.culprit else _was_stopped(end) or refused in end)

    @_do.register
    def _(self, do: ops.Press) -> None:
        self.model.assign(do.source, do.ranks, do.value, is_sure=False)
        with _presses(do.after, do.after + 3.0):
            done = self._run(do.ranks, do.source)
        self._check_waiters(done, do)
        _must(done.drive.patience.reason == "user", f"ended without the stop button: {done}")

    @_do.register
    def _(self, do: ops.Interrupt) -> None:
        self.model.assign(do.source, do.ranks, do.value, is_sure=False)
        run = self.mesh.run(do.source, do.ranks)

        def interrupt() -> None:
            if run.owing:
                self.mesh.interrupt(run.owing, run.call)

        with _later(interrupt, do.after, do.after + 3.0):
            done = self._drive(run)
        self._check_waiters(done, do)

    @_do.register
    def _(self, do: ops.TimeOut) -> None:
        self.model.assign(do.source, do.ranks, do.value, is_sure=False)
        done = self._run(do.ranks, do.source, timeout=do.after)
        self._check_waiters(done, do)

    @_do.register
    def _(self, do: ops.Unstick) -> None:
        if do.is_idle:
            self.mesh.unstick(do.ranks)
            return
        self.model.assign(do.source, do.ranks, do.value, is_sure=False)
        run = self.mesh.run(do.source, do.ranks)
        waiting = set(self._waiters(do))
        _must(wait_until(self.mesh.roster, lambda: set(run.owing) <= waiting, AT_ONCE), f"owing: {run.owing}")
        done = self.mesh.unstick(do.ranks)
        _must(not done.busy, f"not freed: {done}")
        self._check_waiters(self._drive(run), do)

    def _check_waiters(self, done: Driven, do: ops.Press | ops.Interrupt | ops.TimeOut | ops.Unstick) -> None:
        waiters = self._waiters(do)
        # An interrupt may come before a rank has got to where it would be done.
        self._check_ends(done, lambda rank, end: _was_stopped(end) or (rank not in waiters and end == "="))

    def _waiters(self, do: ops.Press | ops.Interrupt | ops.TimeOut | ops.Unstick) -> Ranks:
        return do.ranks[1:] if do.wait in COLLECTIVES else do.ranks

    # Ends of ranks.

    @_do.register
    def _(self, do: ops.Kill) -> None:
        self._kill(do.ranks)
        self._wait_dead(do.ranks)
        self._lose(do.ranks)

    @_do.register
    def _(self, do: ops.KillDuring) -> None:
        self.model.assign(do.source, do.ranks, do.value, is_sure=False)
        with _later(lambda: self._kill(do.victims), do.after):
            done = self._run(do.ranks, do.source)
        self._check_deaths(done, do.victims, "killed by SIGKILL")

    @_do.register
    def _(self, do: ops.Leave) -> None:
        self.model.assign(do.source, do.ranks, do.value, is_sure=False)
        done = self._run(do.ranks, do.source)
        self._check_deaths(done, do.victims, f"exited with code {do.code}")

    def _check_deaths(self, done: Driven, victims: Ranks, how: str) -> None:
        def is_right(rank: int, end: str) -> bool:
            is_gone = end.startswith("lost: ") and how in end and f"rank {rank}" in end
            return is_gone if rank in victims else NO_STORE in end or _was_stopped(end, _STOPPED | _STORE_LOST)

        self._check_ends(done, is_right)
        self._wait_dead(victims)
        self._lose(victims)

    @_do.register
    def _(self, do: ops.Halt) -> None:
        with self._halted((do.rank,)):
            if do.others:
                done = self._run(do.others, "rank")
                self._check_values(done, {rank: rank for rank in do.others})
            if do.then == "kill":
                self._do(ops.Kill((do.rank,)))
            elif do.then == "restart":
                self._do(ops.Restart((do.rank,), "auto"))
        if do.then == "continue":
            self._check_values(self._run((do.rank,), "rank"), {do.rank: do.rank})

    @_do.register
    def _(self, do: ops.HaltDuring) -> None:
        pids = [self._pids[rank] for rank in do.halted]
        with self._halted(do.halted), _later(lambda: _signal(pids, signal.SIGCONT), do.after):
            done = self._run(do.ranks, do.source)
        self._check_values(done, {rank: 2 * self.model.total(rank, do.ranks, "") for rank in do.ranks})

    # Cells in the background.

    @_do.register
    def _(self, do: ops.Start) -> None:
        self.model.assign(do.source, do.ranks, do.value)
        self.model.background[do.number] = do.ranks
        driven = self._driver(self.mesh.run(do.source, do.ranks))
        thread = threading.Thread(target=drive_in_background, args=driven[:1], name="chaos-cell", daemon=True)
        thread.start()
        self._cells[do.number] = *driven, thread

    @_do.register
    def _(self, do: ops.Finish) -> None:
        ranks = self.model.background.pop(do.number)
        (self._flags / str(do.number)).touch()
        self._check_values(self._joined(do.number), {rank: rank + do.number for rank in ranks})

    def _joined(self, number: int) -> Driven:
        driver, stage, thread = self._cells.pop(number)
        thread.join(AT_ONCE + PATIENCE)
        _must(not thread.is_alive(), f"the cell {number} in the background goes on: {driver.run.owing} owe")
        return Driven(driver.run, driver, stage)

    def _lose(self, ranks: Sequence[int]) -> None:
        """These ranks are gone: cells in the background that they worked on end with them."""
        for number in self.model.die(ranks):
            (self._flags / str(number)).touch()  # so that a replay of it comes to an end
            done = self._joined(number)
            self._check_ends(
                done,
                lambda rank, end: end.startswith("lost: ") if rank in ranks else _was_stopped(end) or end[0] == "=",
            )

    # Healing.

    @_do.register
    def _(self, do: ops.Mend) -> None:
        self.mesh.mend()

    @_do.register
    def _(self, do: ops.Heal) -> None:
        self._heal(self.model.dead, None, do.replay)

    @_do.register
    def _(self, do: ops.Restart) -> None:
        self._heal(do.ranks, do.ranks, do.replay)

    def _heal(self, new: Ranks, ranks: Ranks | None, replay: ops.Replay) -> None:
        healed = self.mesh.heal(ranks, replay=replay)
        _must(healed.ranks == new, f"healed {healed.ranks}, not {new}")
        _must(
            not healed.failed and not healed.unpushed and not healed.process.failed, f"not all was replayed: {healed}"
        )
        self._lose([rank for rank in new if rank in self.model.alive])
        self.model.revive(new, replay)
        pids = self._pids_now()
        _must(all(pids[rank] != self._pids[rank] for rank in new), f"ranks {new} are as old as before: {pids}")
        self._pids.update({rank: pids[rank] for rank in new})

    # Values.

    @_do.register
    def _(self, do: ops.Push) -> None:
        self.mesh.push({"p": np.full(do.size, do.value)}, do.ranks)
        self.model.push(do.ranks, (do.value, do.size))

    @_do.register
    def _(self, do: ops.Pull) -> None:
        for rank, found in self.mesh.pull("p", do.ranks).items():
            told = (int(found[0]), len(found)) if (found == found[0]).all() else found
            _must(told == self.model.p[rank], f"p is {told} on rank {rank}, not {self.model.p[rank]}")

    # Actors.

    @_do.register
    def _(self, do: ops.Spawn) -> None:
        ranks = self.model.at(do.where)
        procs = self.mesh.procs.slice(**dict(do.where)) if do.where else self.mesh.procs
        troupe: Any = procs.spawn(do.name, Tally, do.start)
        if self.model.alive.issuperset(ranks):
            troupe.initialized.get(AT_ONCE)
            self.model.spawn(do.name, ranks, do.start)
            self._troupes[do.name] = troupe
        else:
            _must_fail(lambda: troupe.initialized.get(AT_ONCE), "actors were made on ranks that are dead")
            troupe.stop().get(AT_ONCE)

    @_do.register
    def _(self, do: ops.Add) -> None:
        call = self._troupes[do.name].add.call(do.amount)
        if self.model.add(do.name, do.amount):
            totals = call.get(AT_ONCE).values()
            expected = list(self.model.troupes[do.name].totals.values())
            _must(totals == expected, f"the totals of {do.name} are {totals}, not {expected}")
        else:
            _must_fail(lambda: call.get(AT_ONCE), f"{do.name} answered, though ranks of it are dead")

    @_do.register
    def _(self, do: ops.StopActors) -> None:
        del self.model.troupes[do.name]
        self._troupes.pop(do.name).stop().get(AT_ONCE)

    # Looking.

    @_do.register
    def _(self, do: ops.Look) -> None:
        started = time.monotonic()
        alive = sorted(self.model.alive)
        if do.how == "stacks":
            _must(str(self.mesh.stacks()) != "", "no stacks")
        elif do.how == "ledger":
            self.mesh.ledger(timeout=2.0)
        elif do.how == "where":
            _must(sorted(self.mesh.where(alive, AT_ONCE)) == alive, "a rank does not tell where it is")
        elif do.how == "complete" and alive:
            found = self.mesh.completions("world_si", alive[:1], AT_ONCE)
            _must("world_size" in found, f"completed to {found}")
        elif do.how == "interrupt idle":
            told = self.mesh.interrupt(self.model.free, timeout=AT_ONCE)
            _must(told == dict.fromkeys(self.model.free, False), f"interrupted idle ranks: {told}")
        _must(time.monotonic() - started < 2 * AT_ONCE, f"{do.how} took {time.monotonic() - started:.1f} s")

    # How.

    def _run(self, ranks: Ranks, source: str, timeout: float | None = None) -> Driven:
        return self._drive(self.mesh.run(source, ranks), timeout)

    def _drive(self, run: Run, timeout: float | None = None) -> Driven:
        driver, stage = self._driver(run, timeout)
        drive(driver)
        done = Driven(run, driver, stage)
        _must(not driver.mended.startswith("no new"), f"groups were not mended: {done}")
        return done

    def _driver(self, run: Run, timeout: float | None = None) -> tuple[Drive, SilentStage]:
        stage = SilentStage()
        live = Live(stage, run.ranks)
        patience = Patience(time.monotonic(), grace=GRACE, timeout=timeout, patience=PATIENCE)
        watches = partial(self.mesh.sight, run), HaltWatch(self.mesh.roster, run, live.note)
        return Drive(self.mesh, run, live, patience, watches=watches), stage

    def _kill(self, ranks: Sequence[int]) -> None:
        _signal([self._pids[rank] for rank in ranks], signal.SIGKILL)

    def _wait_dead(self, ranks: Sequence[int]) -> None:
        gone = wait_until(self.mesh.roster, lambda: set(ranks) <= set(self.mesh.roster.dead()), AT_ONCE)
        _must(gone, f"ranks {ranks} were killed, and {self.mesh.roster.dead()} are dead")

    @contextmanager
    def _halted(self, ranks: Ranks) -> Iterator[None]:
        """These ranks are stopped; at the end they go on, if they are still there."""
        pids = [self._pids[rank] for rank in ranks]
        _signal(pids, signal.SIGSTOP)
        try:
            self._until_stuck(ranks)
            yield
        finally:
            _signal([self._pids[rank] for rank in ranks if rank in self.model.alive], signal.SIGCONT)

    def _until_stuck(self, ranks: Ranks) -> None:
        self._wait_states(dict.fromkeys(ranks, "stuck"))

    # What must be.

    def _check_values(self, done: Driven, expected: Mapping[int, int]) -> None:
        self._check_ends(done, lambda rank, end: end == f"={expected[rank]}")

    def _check_ends(self, done: Driven, is_right: Callable[[int, str], bool]) -> None:
        _must(not done.drive.abandoned, f"ranks {done.drive.abandoned} did not react: {done}")
        for rank in done.run.ranks:
            _must(is_right(rank, done.end(rank)), f"rank {rank}: {done.end(rank)}; all: {done}")

    def _check_states(self) -> None:
        """Everybody is idle, busy or dead, as they should; and the living are those they were."""
        self._wait_states({rank: self.model.state(rank) for rank in self.model.everyone})
        pids = self._pids_now()
        for rank in self.model.alive:
            _must(pids[rank] == self._pids[rank], f"rank {rank} has pid {pids[rank]}, and had {self._pids[rank]}")
            _must(Path(f"/proc/{pids[rank]}").exists(), f"rank {rank} has no process")

    def _wait_states(self, expected: Mapping[int, str]) -> None:
        """Looks again and again: that a process was stopped, or goes on, is told by nobody."""
        deadline = time.monotonic() + AT_ONCE
        while not expected.items() <= (states := self.mesh.states()).items():
            _must(time.monotonic() < deadline, f"states are {states}, and should be {expected}")
            time.sleep(0.002)

    def _pids_now(self) -> dict[int, int]:
        return {rank: state.pid for rank, state in self.mesh.roster.states.items()}

    def close(self) -> None:
        """Take the mesh down, whatever goes on."""
        self.mesh.down()
        for driver, _, thread in self._cells.values():
            thread.join(AT_ONCE)
            _must(not thread.is_alive(), f"the mesh is down, and a cell goes on: {driver.run.owing}")


def _was_stopped(end: str, by: Collection[str] = _STOPPED) -> bool:
    return end[:1] == "!" and end[1:].partition(":")[0] in by


def _must(is_so: bool, what: str) -> None:
    if not is_so:
        raise Violation(what)


def _must_fail(act: Callable[[], object], what: str) -> None:
    try:
        act()
    except TimeoutError:
        raise Violation(f"{what}: nobody says so in {AT_ONCE:g} s") from None
    except MeshbookError:
        return
    raise Violation(what)


def _signal(pids: Sequence[int], signum: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            print(f"  (process {pid} is gone already)", file=sys.stderr)


@contextmanager
def _later(act: Callable[[], object], *after: float) -> Iterator[None]:
    """Do this so many seconds into what is inside, on another thread; not after its end."""
    timers = [threading.Timer(seconds, act) for seconds in after]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        if len(timers) == 1:
            timers[0].join()
        for timer in timers[1:]:
            timer.cancel()
        for timer in timers:
            timer.join()


def _presses(*after: float) -> Any:
    return _later(lambda: os.kill(os.getpid(), signal.SIGINT), *after)
