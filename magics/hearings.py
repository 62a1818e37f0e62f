"""Which cell hears what: a call made by a cell's code is answered, and printed, in that cell's output."""

from __future__ import annotations

from typing import Any

from ..kernel.execute import tell_by
from ..runtime.controller.audiences import listen_by
from ..runtime.controller.root import Root
from ..runtime.controller.roster import Roster
from ..runtime.here import settled
from ..widgets.hearing import Hearing
from ..widgets.interval import interval
from ..widgets.live import Live
from ..widgets.stage import NotebookStage, request_of

_MOST_CELLS = 256
"""Cells whose actors may still print; what comes for older ones is in the logs only."""


class Hearings:
    """The listeners of the cells of one shell, made when a cell calls its first actor."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._kernel: Any = getattr(shell, "kernel", None)
        self._by_cell: dict[str, Hearing] = {}

    def load(self) -> None:
        self._shell.events.register("post_run_cell", self._on_end)
        self._shell.events.register("post_run_cell", interval.begin)
        self._shell.events.register("pre_run_cell", interval.end)
        listen_by(self.current)
        tell_by(lambda ranks: CallLive(NotebookStage(self._shell), ranks))

    def unload(self) -> None:
        self._shell.events.unregister("post_run_cell", self._on_end)
        self._shell.events.unregister("post_run_cell", interval.begin)
        self._shell.events.unregister("pre_run_cell", interval.end)
        interval.end()
        listen_by(None)
        tell_by(None)
        self._by_cell.clear()

    def current(self) -> Hearing:
        """The listener of the running cell; for a thread of the user's, of the cell that runs now."""
        cell = self._cell()
        hearing = self._by_cell.get(cell)
        if hearing is None:
            hearing = self._by_cell[cell] = Hearing(NotebookStage(self._shell), _name_of)
            if len(self._by_cell) > _MOST_CELLS:
                del self._by_cell[next(iter(self._by_cell))]
        return hearing

    def _cell(self) -> str:
        """What names the running cell: its request, in a terminal its number."""
        if self._kernel is None:
            return str(len(self._shell.history_manager.input_hist_raw))
        return request_of(self._kernel).get("header", {}).get("msg_id", "")

    def _on_end(self, *_: object) -> None:
        hearing = self._by_cell.get(self._cell())
        if hearing is not None:
            hearing.end()


class CallLive(Live):
    """What ranks say in a function that a cell calls on them; after its end, all that comes is late."""

    def finish(self, now: float) -> None:
        super().finish(now)
        self._stage.leave()


def _name_of(roster: Roster) -> str:
    """The name of a mesh, where there is more than one to tell apart. Asked on the loop, also as the session ends."""
    root = settled()
    return roster.name if isinstance(root, Root) and len(root.rosters) > 1 else ""
