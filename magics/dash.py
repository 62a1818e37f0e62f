"""`%mesh dash`: the live dashboard of a mesh, and what its buttons do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ..kernel.dashboard.sentence import sentence
from ..kernel.dashboard.survey import MeshWatch
from ..kernel.debug.ladder import enter
from ..kernel.mesh import Mesh
from ..kernel.recovery.repairs import mended_text
from ..kernel.stopping.patience import Step
from ..kernel.stopping.presses import Presses
from ..kernel.stopping.stopped import stop
from ..runtime.controller.regroup import wait_until
from ..runtime.ranges import named, ranks_text
from ..widgets.dashboard_twin import Twin
from ..widgets.hands import Deed
from ..widgets.stage import NotebookStage
from ..widgets.status import axes_text
from .book import Book
from .faults import restart_text, unstick_text
from .inquiries import Dash

if TYPE_CHECKING:
    from ..widgets.dashboard import Dashboard

_SETTLED = 0.25
"""Seconds in which an interrupted rank most often stops: then there is nothing more to offer."""


@dataclass(slots=True)
class Dashboards:
    """The dashboards of a notebook: one for each mesh, however often it is shown."""

    shell: Any
    book: Book
    _live: list[tuple[Mesh, Dashboard]] = field(default_factory=list[tuple[Mesh, "Dashboard"]])

    def show(self, args: Dash) -> Twin | None:
        """Show the dashboard here; without a front-end that has widgets, what it would show now."""
        from ..widgets.base import has_widgets  # with anywidget, which takes 0.2 s

        mesh = self.book.get(args.mesh)
        if mesh.is_down or not has_widgets(self.shell):
            return _now(mesh)
        dashboard = self._of(mesh)
        if args.hz is not None:
            dashboard.pulse.hz = args.hz
        if args.cols is not None:
            dashboard.cols = args.cols
        dashboard.show(NotebookStage(self.shell))
        return None

    def close(self) -> None:
        """End all of them, each with its last state in the notebook."""
        for _, dashboard in self._live:
            dashboard.pulse.close()
        self._live.clear()

    def _of(self, mesh: Mesh) -> Dashboard:
        self._live = [(other, dashboard) for other, dashboard in self._live if not other.is_down]
        found = next((dashboard for other, dashboard in self._live if other is mesh), None)
        if found is None:
            found = dashboard_of(mesh, self.shell)
            self._live.append((mesh, found))
        return found


def dashboard_of(mesh: Mesh, shell: Any = None) -> Dashboard:
    """A live dashboard as a widget, for notebooks without `%mesh`: `marimo.ui.anywidget(dashboard_of(mesh))`.

    Without an IPython shell, nothing is said of clicks that the kernel may not hear.
    """
    from ..widgets.base import deafness
    from ..widgets.dashboard import Dashboard

    watch = MeshWatch(mesh)
    watch.refresh(time.monotonic())
    dashboard = Dashboard(
        f"mesh {mesh.name}   {axes_text(mesh)}",
        mesh.roster.axes,
        watch,
        mesh.roster.meters,
        MeshHands(mesh),
        partial(_last_line, mesh),
        deafness(shell),
    )
    watch.tell(dashboard.pulse.wake)
    dashboard.pulse.start()
    return dashboard


def _now(mesh: Mesh) -> Twin:
    """What the dashboard would show, once."""
    watch = MeshWatch(mesh)
    watch.refresh(time.monotonic())
    if not mesh.is_down:
        asked = [each.rank for each in watch.facts if each.state == "busy"]
        for rank, place in mesh.where(asked).items():
            watch.facts[rank].place = place
    watch.close()
    now = time.monotonic()
    title = f"mesh {mesh.name}   {axes_text(mesh)}{' · down' if mesh.is_down else ''}"
    return Twin(title, mesh.roster.axes, watch.facts, sentence(watch.facts, now), now)


def _last_line(mesh: Mesh, rank: int) -> str:
    log = mesh.roster.logs.get(rank)  # none, if the mesh has shrunk since it was looked at
    return (log.tail("stdout", 1) or log.tail("stderr", 1)) if log is not None else ""


class MeshHands:
    """Does what is clicked, by the same functions as `%mesh interrupt`, `unstick`, `restart` and `stacks`."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._presses = Presses()

    def do(self, action: str, ranks: Sequence[int], runs: Sequence[int]) -> Deed:
        """Do it; raises `ValueError` for an action that there is not."""
        actions = {
            "interrupt": self._interrupt,
            "unstick": self._unstick,
            "restart": self._restart,
            "stacks": self._stacks,
            "debug": self._debug,
        }
        if action not in actions:
            raise ValueError(f"there is no action {action!r}: there are {', '.join(actions)}")
        deed = actions[action](ranks, runs)
        self._presses.renew(ranks, time.monotonic())
        return deed

    def _interrupt(self, ranks: Sequence[int], runs: Sequence[int]) -> Deed:
        """Pressed again while they still work: break off their collectives; a third time: kill them."""
        calls = self._working(ranks, runs)
        if not calls:
            return Deed(self._nothing(ranks))
        step = self._presses.press(calls, time.monotonic())
        if step is Step.KILL:
            self._mesh.kill(list(calls))
            return Deed(f"killed: {named(list(calls))}; restart brings back what is dead")
        if step is Step.RELEASE:
            return self._unstick(list(calls), runs)
        stop(self._mesh.running(), list(calls), "interrupted from the dashboard")
        for call in dict.fromkeys(calls.values()):
            self._mesh.interrupt([rank for rank, its in calls.items() if its == call], call, timeout=0.3)
        states = self._mesh.roster.states
        if with_actors := [rank for rank, call in calls.items() if call not in states[rank].main_calls]:
            self._mesh.interrupt_actors(with_actors)
        if wait_until(self._mesh.roster, lambda: not self._working(ranks, runs), _SETTLED):
            mended = mended_text(self._mesh) if with_actors else ""
            return Deed("; ".join(filter(None, [f"interrupted: {named(list(calls))}", mended])))
        return Deed(f"{named(list(self._working(ranks, runs)))} not stopped yet", next="break off collectives")

    def _unstick(self, ranks: Sequence[int], runs: Sequence[int]) -> Deed:
        calls = self._working(ranks, runs)
        if not calls:
            return Deed(self._nothing(ranks))
        places = self._mesh.where(list(calls))
        stop(self._mesh.running(), list(calls), "un-stuck from the dashboard")
        done = self._mesh.unstick(list(calls))
        return Deed(unstick_text(done, places), next="kill" if done.busy else "")

    def _restart(self, ranks: Sequence[int], runs: Sequence[int]) -> Deed:
        self._presses.forget(ranks)
        return Deed(restart_text(self._mesh.heal(ranks)))

    def _stacks(self, ranks: Sequence[int], runs: Sequence[int]) -> Deed:
        return Deed(f"stacks of {named(ranks)}", detail=repr(self._mesh.stacks(ranks)))

    def _debug(self, ranks: Sequence[int], runs: Sequence[int]) -> Deed:
        """Stop ranks at work, whose prompt is then in the cell that waits for them; of others, how to get at them."""
        working = list(self._working(ranks, runs))
        if not working or not self._mesh.desk.is_served:
            after = " --pm" if set(ranks) & set(self._mesh.last_failed) else ""
            return Deed(f"type `%mesh debug {ranks_text(ranks)}{after}` in a cell")
        found = enter(self._mesh, working)
        said = [f"{named(some)} {rung.value}" for rung, some in found.items()]
        if any(rung.has_prompt for rung in found):
            said.append("the prompt is in the cell that runs")
        return Deed("; ".join(said))

    def _working(self, ranks: Sequence[int], runs: Sequence[int]) -> dict[int, int]:
        """Those of the ranks that work on one of these calls still, each with its call."""
        states = self._mesh.roster.states
        calls = {rank: call for rank in ranks for call in states[rank].open_calls[:1]}
        return {rank: call for rank, call in calls.items() if call in runs}

    def _nothing(self, ranks: Sequence[int]) -> str:
        states = self._mesh.roster.states
        if any(states[rank].open_calls for rank in ranks):
            return "nothing was done: the cell that it was meant for has ended"
        return f"{named(ranks)} {'is' if len(ranks) == 1 else 'are'} not busy"
