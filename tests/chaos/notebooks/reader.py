"""Who reads a notebook in a real kernel: runs its cells, and compares what a reader sees with what a model says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from queue import Empty
from typing import Any

from tests.magics.front_end import Kernel
from tests.magics.outputs import Outputs

from ..verdicts import Violation
from .cells import NAMES, Ran, said_in
from .model import Grid, Notebook, Selection

PATIENCE = 30.0
"""Seconds within which every cell must come to its end."""

OF_A_REPLY = 2.0
"""Seconds that it may come after the end."""

HELPERS = (
    f"%load_ext meshbook\n_names = {NAMES}"
    + """
import torch
from meshbook import Actor, SupervisionError, endpoint
from meshbook.runtime.tensors import inspect
class Counter(Actor):
    def __init__(self, start):
        self.count = start
    @endpoint
    def add(self, number):
        print('said adding', number)
        if number < 0:
            raise ValueError(f'no {number}')
        self.count += number
        return self.count
def _look(names):
    return {name: _look_at(get_ipython().user_ns[name]) for name in names}
def _look_at(mesh):
    values = {rank: {} for rank in mesh.roster.alive()}
    for holding in mesh.who(timeout=10).holdings:
        if holding.name in _names and holding.held is not None:
            for rank, value in mesh.pull(holding.name, holding.ranks).items():
                values[rank][holding.name] = repr(value)
    return dict(mesh.axes), mesh.states(), values
def _told(error):
    exception = getattr(error, 'exception', error)
    return type(exception).__name__, str(exception)
def _came_to(r):
    values = {rank: repr(r[rank]) for rank in r.ranks if rank not in r.failed}
    return sorted(r.ranks), values, {rank: _told(e) for rank, e in r.errors.items()}, sorted(r.lost)
"""
)


class Reader:
    """A kernel, and the model of its notebook."""

    def __init__(self, where: str) -> None:
        self._kernel = Kernel(on=where)
        self._notebook = Notebook()
        self._presses: list[float] = []
        self._ok(HELPERS.strip())

    def _chosen(self, name: str, selection: Selection) -> tuple[Grid, set[int]]:
        grid = self._notebook.grids[name]
        return grid, selection.on(grid)

    def _on_mesh(self, name: str, selection: Selection, rest: str, magic: str = "%%on_mesh") -> Outputs | None:
        """Run a cell on some ranks; None where none of them lives, and it was refused."""
        outputs = self._cell(f"{magic} {selection.text}{self._at(name)} {rest}")
        if self._chosen(name, selection)[1]:
            return outputs
        refused(outputs, "")
        return None

    def _at(self, name: str) -> str:
        return "" if name == self._notebook.current else f" -m {name}"

    def _cell(self, source: str, *, is_it: bool | None = None) -> Outputs:
        """Run a cell. `is_it`: whether it is the one to be pressed into; those with our magics are, else."""
        self._source = source
        cell = self._kernel.start(source)
        if not self._presses or not ("mesh" in source if is_it is None else is_it):
            return cell.end(PATIENCE)
        for gap in self._presses:
            time.sleep(gap)
            self._kernel.interrupt()
        self._presses = []
        cell.idle(PATIENCE)
        try:
            return cell.end(OF_A_REPLY)
        except Empty:
            raise Violation("ipykernel loses the reply to a cell that is interrupted as it ends") from None

    def _ok(self, source: str, *, is_it: bool | None = None) -> Outputs:
        outputs = self._cell(source, is_it=is_it)
        if outputs.status != "ok":
            raise Violation(f"this cell must do well:\n{source}\nbut: {outputs.text}")
        return outputs

    def _compare(self, outputs: Outputs, grid: Grid, ranks: set[int], ran: Mapping[int, Ran]) -> None:
        """What a cell on the mesh said, gave, and failed with."""
        whole = f"; the cell was\n{self._source}\nand a reader sees\n{outputs.text}"
        is_well = not grid.failed
        same(outputs.status == "ok", is_well, f"whether it did well{whole}")
        said = [(rank, line) for rank in sorted(ran) for line in ran[rank].said]
        # A debugger says more.
        heard = [(rank, line) for rank, line in said_in(outputs.text) if line.startswith("said")]
        same(heard, said, f"what ranks said{whole}")
        found_ranks, values, errors, lost = self._kernel.value("_came_to(_mesh)")
        dead = {rank for rank in ranks if rank not in ran or ran[rank].has_died}
        same(found_ranks, sorted(ranks), f"the ranks of the result{whole}")
        same(lost, sorted(dead), f"who was lost{whole}")
        same(values, {rank: repr(each.value) for rank, each in ran.items() if not each.error}, f"its values{whole}")
        raised = {rank: each.error for rank, each in ran.items() if each.error and rank not in dead}
        same({rank: error for rank, error in errors.items() if rank not in dead}, raised, f"its errors{whole}")
        if not is_well and not outputs.error.startswith(("MeshError: ", "DeviceMeshError: ")):
            raise Violation(f"it ended with {outputs.error}{whole}")

    def _check_shown(self, outputs: Outputs) -> None:
        """Every value that has come back stands there."""
        _, values, _, _ = self._kernel.value("_came_to(_mesh)")
        if missing := {value for value in values.values() if value not in outputs.text} - {"None"}:
            raise Violation(f"{missing} must be shown after\n{self._source}\nbut a reader sees\n{outputs.text}")

    def _at_rest(self) -> dict[str, Any]:
        """All meshes, when nothing is done on them any more: after a cell, groups may be renewed."""
        deadline = time.monotonic() + PATIENCE
        look = f"_look({list(self._notebook.grids)})"
        while not all(map(_rests, (seen := self._kernel.value(look)).values())) and time.monotonic() < deadline:
            pass
        return seen

    def _check(self) -> None:
        """All meshes are as the model says."""
        grids = self._notebook.grids
        for name, (axes, states, held) in self._at_rest().items():
            grid = grids[name]
            same(axes, grid.axes, f"the axes of {name}")
            same({rank for rank, state in states.items() if state == "dead"}, grid.dead, f"the dead of {name}")
            same(held, grid.held(), f"what ranks of {name} hold, after\n{self._source}\n")
            failed = {rank for rank, state in states.items() if state == "failed"}
            same(failed, grid.failed & grid.alive, f"who of {name} has failed, after\n{self._source}\n")


def _rests(seen: tuple[Any, dict[int, str], Any]) -> bool:
    return "busy" not in seen[1].values()


def refused(outputs: Outputs, why: str) -> None:
    if outputs.status != "error" or why not in outputs.text:
        raise Violation(f"it must be refused ({why}), but: {outputs.status} {outputs.text}")


def same(found: Any, right: object, what: str) -> None:
    if found != right:
        raise Violation(f"{what}: {found}, but must be {right}")
