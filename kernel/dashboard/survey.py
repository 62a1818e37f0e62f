"""Keeps the facts of a mesh's ranks up to date: from what the controller knows, from /proc, from calm questions.

Nothing here asks a rank about CPU and memory. Where it is in its code only the rank can say, so those that work are
asked in turn, some at a time; they answer on their control threads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...runtime.engines.base import Exit
from ...runtime.errors import MeshbookError
from ...runtime.system.proc import Stat
from ...runtime.wire import codec
from ...runtime.wire.lane import Frames
from ...runtime.wire.messages import Answer, Note, Reply
from ..stopping.stopped import stopped
from ..waiting.habits import Habits
from ..waiting.hangs import A_RANK, FIRST, PATIENCE
from .facts import INTERRUPTED, RankFacts
from .gpus import Gpus

if TYPE_CHECKING:
    from ..mesh import Mesh

CHECKUP = 0.5
"""Seconds between two looks at the processes of a small mesh."""

CHECKUP_A_RANK = 0.002
"""Seconds that each rank adds: a look costs 15 us a rank, so a thousand ranks cost 0.7 % of a core."""

ASKED_AT_ONCE = 16
"""Ranks asked for their place at each refresh."""

ASKED_AGAIN = 0.4
"""Seconds between two questions to one rank."""

LOST = 5.0
"""Seconds after which a rank that has not answered is asked again."""

_HERE = os.uname().nodename

_TICK = os.sysconf("SC_CLK_TCK")


class MeshWatch:
    """The facts of one mesh; `refresh` brings them up to date. One thread refreshes, any may read."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.facts: list[RankFacts] = []
        self.finding = ""
        """What the ledgers of collectives tell of ranks that have parted."""
        self.late = ""
        """Who comes late to collectives again and again, so that the others wait."""
        self.metric = ""
        """The metric whose last values the facts carry."""
        self._told: list[Callable[[int], None]] = []
        self._places = _Places(mesh)
        self._gpus = Gpus()
        self._checked = 0.0
        self._interrupted: dict[int, str] = {}
        self._ticks: dict[int, tuple[int, int, float]] = {}  # of each rank: pid, clock ticks, when
        self._reports = -1
        self._look_at = 0.0
        self._habits = Habits()

    @property
    def axes(self) -> Mapping[str, int]:
        return self.mesh.roster.axes

    @property
    def is_over(self) -> bool:
        """Has the mesh been taken down, or what was started with it?"""
        return self.mesh.is_down

    def tell(self, call: Callable[[int], None]) -> None:
        """Call this when a rank has changed, on the thread that runs the loop; until `close`."""
        self._told.append(call)
        self.mesh.roster.on_change.append(call)

    def refresh(self, now: float) -> None:
        """Look at everything that is due at `now`."""
        specs = self.mesh.roster.specs  # as they are at one moment: a resize puts others in their place
        if len(self.facts) != len(specs):
            self.facts = [RankFacts(rank, since=now, host=specs[rank].host or _HERE) for rank in range(len(specs))]
            self._reports = -1
        if not self.is_over:
            self._check_up(now)
            self._places.ask([each.rank for each in self.facts if each.state in ("busy", "waiting")], now)
        self._take_states()
        self._take_reports()
        if not self.is_over:
            self._compare(now)

    def close(self) -> None:
        while self._told:
            self.mesh.roster.on_change.remove(self._told.pop())
        self._gpus.close()

    def _check_up(self, now: float) -> None:
        roster = self.mesh.roster
        if now - self._checked < max(CHECKUP, CHECKUP_A_RANK * len(self.facts)):
            return
        self._checked = now
        roster.look_at_vitals(now)
        for rank, stat in list(roster.checkup.stats.items()):
            if rank < len(self.facts):
                self._take_stat(self.facts[rank], stat, now)

    def _take_stat(self, facts: RankFacts, stat: Stat, now: float) -> None:
        facts.memory = stat.memory
        pid, ticks, when = self._ticks.get(facts.rank, (0, 0, 0.0))
        if pid == facts.pid and now > when:
            facts.cpu = (stat.ticks - ticks) / _TICK / (now - when)
        self._ticks[facts.rank] = facts.pid, stat.ticks, now
        spec = self.mesh.roster.specs.get(facts.rank)  # gone, if the mesh has shrunk since the look began
        if spec is None or spec.host or not spec.device.startswith("cuda"):  # those of other hosts cannot be seen here
            facts.gpu = None
        else:
            facts.gpu = self._gpus.look(spec.device, spec.env)

    def _take_states(self) -> None:
        roster, failed = self.mesh.roster, dict.fromkeys(self.mesh.last_failed, 0)
        for run in self.mesh.running():
            failed.update(dict.fromkeys(run.progress.failed, run.call))
            self._interrupted.update(stopped(run.progress))
        held = dict.fromkeys(self.mesh.desk.held, "")
        held |= {stop.rank: stop.place for stop in self.mesh.desk.stops.waiting.values()}
        for facts in self.facts:
            state = roster.states.get(facts.rank)
            if state is None:
                continue
            name, since = state.name, state.since
            facts.pid = state.pid
            if name != "idle" or facts.rank not in failed:
                self._interrupted.pop(facts.rank, None)
            if name == "busy":
                facts.run = state.open_calls[0] if state.open_calls else 0
                facts.cell = self.mesh.cells.get(facts.run, "")
                facts.place, facts.waiting, facts.waiting_since = self._places.of(facts.rank, facts.run)
                name = "waiting" if facts.waiting else name
                if facts.rank in held:
                    name, facts.place = "debug", held[facts.rank] or facts.place
            else:
                facts.run, facts.waiting = 0, ""
                if name == "idle" and facts.rank in failed:
                    name, facts.run = "failed", failed[facts.rank]
                    facts.why = INTERRUPTED if facts.rank in self._interrupted else ""
                elif name == "stuck" and state.halt is not None:
                    name, since, facts.why = "stopped", state.halt.since, str(state.halt)
                elif state.exit is not None:
                    name, facts.why = "dead", end_text(state.exit)
                    facts.cpu = facts.memory = facts.gpu = None
            facts.state, facts.since = name, since

    def _take_reports(self) -> None:
        meters = self.mesh.roster.meters
        if (key := meters.count + hash(self.metric)) == self._reports:
            return
        self._reports = key
        last = meters.last(self.metric) if self.metric else {}
        for facts in self.facts:
            facts.metric = last[facts.rank][1] if facts.rank in last else None
            if (loop := meters.loop(facts.rank)) is not None:
                facts.loop, facts.done, facts.total = loop.state.desc, loop.state.done, loop.state.total
                facts.rate = 0.0 if loop.state.is_over else loop.rate

    def _compare(self, now: float) -> None:
        """Ask the ledgers now and then, while ranks are busy for long."""
        busy = [each.since for each in self.facts if each.state in ("busy", "waiting")]
        if not busy or now - min(busy) < FIRST:
            self.finding, self.late, self._look_at = "", "", 0.0
            self._habits = Habits()
        elif now >= self._look_at:
            self._look_at = now + FIRST + A_RANK * len(busy)
            with contextlib.suppress(MeshbookError):  # it was taken down meanwhile
                ledger = self.mesh.ledger(timeout=0.2, depth=64)
                self.finding = next((each.text for each in ledger.findings if each.seconds >= PATIENCE), "")
                late = self._habits.settled(ledger.late_within(now - min(busy)), now)
                self.late = max(late, key=lambda each: each.part).text if late else ""


class _Places:
    """Where working ranks last said they are; the caller of the endpoint `glance`."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._asked: dict[int, tuple[float, int]] = {}  # when, and on what it worked
        self._owing: set[int] = set()
        self._told: dict[int, tuple[int, str, str, float]] = {}

    def ask(self, ranks: Sequence[int], now: float) -> None:
        """Ask some of these ranks, those first that were not asked for longest."""
        states = self._mesh.roster.states  # without those that went in a resize since the look began
        due = [r for r in ranks if r in states and now - self._asked.get(r, (0.0, 0))[0] >= self._rest(r)]
        due = sorted(due, key=lambda rank: self._asked.get(rank, (0.0, 0)))[:ASKED_AT_ONCE]
        if not due:
            return
        for rank in due:
            calls = states[rank].open_calls
            self._asked[rank] = now, calls[0] if calls else 0
        self._owing.update(due)
        with contextlib.suppress(MeshbookError):
            self._mesh.ask_where(due, self)

    def of(self, rank: int, run: int) -> tuple[str, str, float]:
        """What a rank has said of where it is in this run: line, collective, and since when it waits."""
        told_of, place, waiting, since = self._told.get(rank, (0, "", "", 0.0))
        return (place, waiting, since) if told_of == run else ("", "", 0.0)

    def _rest(self, rank: int) -> float:
        return LOST if rank in self._owing else ASKED_AGAIN

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        self._owing.discard(rank)
        if reply.ok:
            with contextlib.suppress(codec.DecodeError):
                place, waiting, seconds = codec.decode(frames[0], frames[1:])
                self._told[rank] = self._asked[rank][1], place, waiting, time.monotonic() - seconds

    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...

    def on_lost(self, rank: int, why: str) -> None:
        self._owing.discard(rank)


def end_text(exit: Exit) -> str:
    """Example: `died of SIGKILL`, `exited with code 3`.

    >>> end_text(Exit(signum=9)), end_text(Exit(code=3))
    ('died of SIGKILL', 'exited with code 3')
    """
    if exit.signum is None:
        return str(exit)
    names = {each.value: each.name for each in signal.Signals}
    return f"died of {names.get(exit.signum, f'signal {exit.signum}')}" + (f", {exit.why}" if exit.why else "")
