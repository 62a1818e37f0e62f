"""What can be asked of a mesh while its ranks work: answered by their control threads, changing nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from ..runtime.controller.gather import Gather
from ..runtime.controller.roster import Roster
from ..runtime.errors import MeshStopped, checks_for_caller
from ..runtime.groups.ledger import BUFFER_SIZE
from ..runtime.orders import Order
from ..runtime.wire import codec
from ..runtime.wire.post import Caller
from .dashboard.metrics import Metrics
from .debug.desk import Desk
from .failures.together import Deeds
from .run import Run
from .sources.source import Sources
from .values.inventory import Inventory
from .values.names import Held
from .waiting.collectives import LAST, MeshLedger, ledger_of
from .waiting.look import look
from .waiting.profile import Profile, profile
from .waiting.queued import queued
from .waiting.report import StackReport

_names_of = msgspec.msgpack.Decoder(list[Held]).decode


WHEN_TO_LOOK = "look while a cell runs, from a console of the notebook, or at one with `-b`"
"""What to do where a profile has found that nobody works."""

MOST_ASKED = 64
"""Ranks that are asked for what they know of a name that is being typed."""


def _some(ranks: Sequence[int]) -> list[int]:
    """The first rank, and others in equal distances."""
    step = -(-len(ranks) // MOST_ASKED) or 1
    return list(ranks[::step])


def arguments(*args: Any) -> codec.Encoded:
    """The arguments of a call, packed as the ranks unpack them."""
    return codec.encode((args, dict[str, Any]()))


class Questions:
    """The part of a `Mesh` that asks."""

    name: str
    roster: Roster
    last_failed: tuple[int, ...]
    last_cell: int
    _cells: Iterator[int]
    """The numbers of what is sent to be run."""
    desk: Desk
    _actor: int
    sources: Sources
    cells: dict[int, str]
    """The names of its cells, by call."""

    @property
    def is_down(self) -> bool:
        return self.roster.is_stopped

    @property
    def axes(self) -> Mapping[str, int]:
        """The sizes of its axes by their names, as they are now: a resize gives it others."""
        return self.roster.axes

    def states(self) -> dict[int, str]:
        """The state of each rank, by name.

        `idle`, `busy`, `debug` (busy, and stopped in the debugger or asking for input), `failed` (idle, and its last
        cell raised), `stuck` (busy or idle, and its process is stopped),
        `starting` or `dead`.
        """
        self.roster.look_at_vitals(time.monotonic())
        names = {rank: state.name for rank, state in self.roster.states.items()}
        names |= {rank: "debug" for rank in {*self.desk.stops.ranks, *self.desk.held} if names.get(rank) == "busy"}
        return {rank: "failed" if name == "idle" and rank in self.last_failed else name for rank, name in names.items()}

    def completions(self, text: str, ranks: Sequence[int], timeout: float = 0.15) -> list[str]:
        """What a text could become on any of these ranks, by those that answer in time; the first rank's words first.

        Of many ranks `MOST_ASKED` are asked.
        """
        answers = self._ask(_some(ranks), "complete", timeout, text, len(text))
        found = [text[:start] + word for _, (start, words) in sorted(answers.items()) for word in words]
        return list(dict.fromkeys(found))

    def inspect(self, name: str, ranks: Sequence[int] = (0,), timeout: float = 0.15) -> tuple[int, str] | None:
        """What a dotted name stands for on the first of these ranks that knows it, by those that answer in time.

        Signature, documentation, type; of many ranks `MOST_ASKED` are asked.
        """
        answers = self._ask(_some(ranks), "inspect", timeout, name)
        return min(((rank, told) for rank, told in answers.items() if told), default=None)

    def sample(self, path: str, ranks: Sequence[int], timeout: float = 0.5) -> dict[int, float | str]:
        """The number behind a name, attribute or item on each of these ranks, or in words why there is none.

        From those that answer in time. Nothing of the user's runs for it.
        """
        return self._ask(ranks, "sample", timeout, path)

    def _chosen(self, ranks: Sequence[int] | None) -> list[int]:
        """These ranks; without any, all that live. Raises `TypeError` for what is no list, `ValueError` for no rank."""
        if ranks is None:
            return self.roster.alive()
        if not isinstance(cast("object", ranks), Iterable) or isinstance(ranks, str):
            raise TypeError(f"ranks are a list, such as [0, 1], not {ranks!r}")
        chosen = list(ranks)  # once: it may be an iterator
        if unknown := [rank for rank in chosen if rank not in self.roster.states]:
            last = len(self.roster.states) - 1
            raise ValueError(f"there is no rank {unknown[0]!r}: those of {self.name} go from 0 to {last}")
        return chosen

    def where(self, ranks: Sequence[int], timeout: float = 0.5) -> dict[int, str]:
        """The cell line each of these ranks is at, from those that tell in time."""
        return self._ask(ranks, "where", timeout)

    @checks_for_caller
    def stacks(self, ranks: Sequence[int] | None = None, *, native: bool = False, locals_of: int = 0) -> StackReport:
        """Where these ranks are (default: all), merged: equal stacks are one; also of ranks that hang.

        With `native`, frames of C are told too, where py-spy is installed; with `locals_of` the variables of a frame of
        the user's, 1 for the innermost, 2 for its caller. Returns within about half a second (with
        py-spy, about 4) however the ranks do; print what it gives.
        """
        ranks = None if ranks is None else self._chosen(ranks)
        report = look(self.roster, ranks, native=native, states=self.states(), source_of=self.sources.line)
        if locals_of:
            busy = [stack.rank for stack in report.stacks if stack.frames and not stack.how]
            told = self.tell_debugger(busy, "locals_at", locals_of)
            report.locals = {rank: text for rank, text in sorted(told.items()) if text}
        return report

    @checks_for_caller
    def profile(self, seconds: float = 3.0, ranks: Sequence[int] | None = None) -> Profile:
        """Where these ranks (default: all that live) spend their time, side by side, looked at for so many seconds.

        Blocks until then, or until Ctrl-C; ranks that do nothing are not looked at for so long. Print what it gives.
        Raises `ValueError` for what is no time over 0.
        """
        if not isinstance(cast("object", seconds), int | float) or not seconds > 0:
            raise ValueError(
                f"a profile looks for some seconds, such as 3, not for {seconds!r}; ranks are named behind"
            )
        chosen = self._chosen(ranks)
        return profile(lambda: self.stacks(chosen).stacks, seconds, advice=WHEN_TO_LOOK)

    @checks_for_caller
    def ledger(
        self,
        ranks: Sequence[int] | None = None,
        timeout: float = 0.5,
        last: int = LAST,
        depth: int = BUFFER_SIZE,
    ) -> MeshLedger:
        """The collectives that these ranks (default: all that live) have issued, and where ranks part.

        All ranks are asked for `depth` entries, since one that is missing may be any; who does not answer in time is
        left out. The last `last` of each group are listed.
        """
        return ledger_of(self.roster, self._chosen(ranks), timeout, last, depth)

    @checks_for_caller
    def who(self, ranks: Sequence[int] | None = None, timeout: float = 0.5) -> Inventory:
        """The names that cells have assigned on these ranks (default: all that live), with type and size.

        Busy ranks answer too, and run no code of the user's for it; who does not answer in time is named.
        """
        chosen = self._chosen(ranks)
        told = self._ask(chosen, "who", timeout)
        known = {data: _names_of(data) for data in set(told.values())}
        return Inventory(
            {rank: known[data] for rank, data in told.items()}, [rank for rank in chosen if rank not in told]
        )

    def ask_where(self, ranks: Sequence[int], caller: Caller) -> None:
        """Ask these ranks which line they are at, and the collective they wait in (`KernelActor.glance`)."""
        self.roster.ask(ranks, self._actor, "glance", arguments(), caller)

    def metrics(self, timeout: float = 0.5) -> Metrics:
        """What user code on the ranks has reported with `meshbook.log` until now, also before the mesh went down.

        Example:
            >>> from meshbook.kernel.mesh import Mesh
            >>> with Mesh.up("m", {"rank": 2}, backend="none") as mesh:
            ...     _ = mesh.run("import meshbook; meshbook.log(step=3, loss=rank)").finished.get()
            ...     mesh.metrics()
            loss  step 3  median 0.5  range 0 to 1  2 ranks, 2 points
        """
        if not self.roster.is_stopped:
            self._ask(self.roster.alive(), "report", timeout)
        return Metrics(self.roster.meters.history(), self.roster.axes)

    def sight(self, run: Run, now: float) -> None:
        """Ask the ranks that still work on `run`, at a calm pace, where they are: what is told if one is killed."""
        if ranks := run.sightings.due(now, run.owing):
            self.roster.ask(ranks, self._actor, "where", arguments(), run.sightings)

    @checks_for_caller
    def log(self, rank: int, **choice: Any) -> str:
        """All that a rank has printed (see `RankLog.read` for `run`, `stream`, `last`, `grep`)."""
        [known] = self._chosen([rank])
        return self.roster.logs[known].read(**choice)

    def held_by_errors(self, ranks: Sequence[int]) -> dict[int, int]:
        """Bytes that these ranks keep only for a look at what has failed there last, from those that hold some."""
        told = self._ask(ranks, "held_by_error", 0.2)
        return {rank: size for rank, size in told.items() if size}

    def deeds(self, ranks: Sequence[int]) -> dict[int, Deeds]:
        """What these ranks have done in common since their last cell began, from those that tell in time."""
        return self._ask(ranks, "deeds", 0.2)

    def with_errors(self) -> list[int]:
        """Ranks that have an error to look at: those that failed in the last cell, or whose actors did since.

        Not those that only lost their connection to such a rank.
        """
        told = self._ask(self.roster.alive(), "failed_last", 0.5)
        return sorted(r for r, what in told.items() if what == "actor" or (what == "cell" and r in self.last_failed))

    def begin_post_mortem(self, ranks: Sequence[int]) -> Gather:
        """Let these ranks wait with what has failed there last, to be looked at (see `debug.post_mortem`)."""
        gather = Gather(self.roster, ranks, f"{self.name}.post_mortem")
        self.last_cell = next(self._cells)
        self.roster.call(ranks, self._order("post_mortem", self.last_cell), gather)
        return gather

    def tell_debugger(self, ranks: Sequence[int], step: str, *args: Any, timeout: float = 0.5) -> dict[int, Any]:
        """Ask the debuggers of these ranks for a step (`KernelActor.debug`); what those gave that answer in time."""
        return self._ask(ranks, "debug", timeout, step, *args)

    def send_ahead(self, ranks: Collection[int], endpoint: str, *args: Any) -> None:
        """Call an endpoint of the kernel actors that is done before all that is sent from now on; wait for nothing."""
        self.roster.call(list(ranks), self._order(endpoint, *args), None)

    def _order(self, endpoint: str, *args: Any) -> Order:
        """A call of the kernel actors, which live where cells run."""
        return Order(self._actor, endpoint, arguments(*args), on_main=True)

    def queued(self, run: Run) -> dict[int, str]:
        """The ranks that have not begun this run, each with the name of the cell that they still work on."""
        return queued(run, self.cells)

    def _check_up(self) -> None:
        if self.is_down:
            raise MeshStopped(f"mesh {self.name!r} was taken down: bring it up again with %mesh up")

    def _ask(self, ranks: Sequence[int], endpoint: str, timeout: float, *args: Any) -> dict[int, Any]:
        gather = Gather(self.roster, ranks, f"{self.name}.{endpoint}")
        self.roster.ask(ranks, self._actor, endpoint, arguments(*args), gather)
        gather.wait(timeout)
        return dict(gather.answers)
