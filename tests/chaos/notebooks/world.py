"""A random notebook in a real kernel: runs a cell, tells the model, and compares what a reader sees and ranks hold."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from queue import Empty
from typing import Any, Literal

from meshbook.runtime import MeshFailure
from tests.magics.front_end import Cell, Kernel
from tests.magics.outputs import Outputs

from ..verdicts import Violation
from .cells import FUNCTIONS, NAMES, Body, Line, Ran, plain, said_in
from .choice import Choice, Operation
from .model import Counters, Grid, Notebook, Selection, named

PATIENCE = 30.0
"""Seconds within which every cell must come to its end."""

OF_A_REPLY = 2.0
"""Seconds that it may come after the end."""

OF_THE_LIVING = ("%mesh who", "%mesh ledger", "%mesh status @alive")

HELPERS = (
    f"%load_ext meshbook\n_names = {NAMES}"
    + """
from meshbook import Actor, SupervisionError, endpoint
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


class World:
    """A kernel, and the model of its notebook: a `Story`."""

    def __init__(self, seed: int, where: str, *, with_presses: bool = False) -> None:
        self._kernel = Kernel(on=where)
        self._notebook = Notebook()
        self._choice = Choice(seed, self._notebook, with_presses=with_presses)
        self._presses: list[float] = []
        self._ok(HELPERS.strip())

    def on_fault(self, failure: MeshFailure) -> None:
        """There are none in this process."""

    def next(self) -> Operation:
        return self._choice.next()

    def do(self, operation: Operation) -> None:
        """Do it; `Violation` if anything is not as it must be."""
        try:
            getattr(self, operation.name)(*operation.args)
            self._check()
        except BaseException:
            self._kernel.close()
            raise

    def close(self) -> None:
        try:
            self._ok("%mesh down --all" if self._notebook.grids else "pass")
        finally:
            self._kernel.close()

    # The cells.

    def up(self, name: str, axes: Mapping[str, int]) -> None:
        sizes = " ".join(f"{axis}={size}" for axis, size in axes.items())
        self._ok(f"{name} = %mesh up {name} {sizes} --device cpu")
        self._notebook.grids[name] = Grid(name, dict(axes))
        self._notebook.use(name)
        _refused(self._cell(f"%mesh up {name} dp=1"), "is up")

    def use(self, name: str, slice: Selection | None) -> None:
        self._ok(f"%mesh use {name}[{slice.text}]" if slice else f"%mesh use {name}")
        self._notebook.use(name, slice)

    def down(self, name: str) -> None:
        self._ok(f"%mesh down {name} --grace 5")
        self._notebook.remove(name)

    def cell(self, name: str, selection: Selection, body: Body, options: str) -> None:
        grid, ranks = self._chosen(name, selection)
        outputs = self._on_mesh(name, selection, f"{options}\n{body.text}")
        if outputs is None:
            return
        self._compare(outputs, grid, ranks, grid.run(body, ranks))
        if body.last and "--show" not in options:
            self._check_shown(outputs)

    def line(self, name: str, selection: Selection, expression: str) -> None:
        grid, ranks = self._chosen(name, selection)
        outputs = self._on_mesh(name, selection, f"-- {expression}", "value = %on_mesh")
        if outputs is None:
            return
        self._compare(outputs, grid, ranks, grid.run(Body((), expression), ranks))

    def background(self, name: str, selection: Selection, first: Body, second: Body) -> None:
        """A cell in the background, one behind it, and the first one's end."""
        grid, ranks = self._chosen(name, selection)
        if self._on_mesh(name, selection, f"-b -o later\n{first.text}") is None:
            return
        are_there = ranks <= grid.alive
        ran = grid.run(first, ranks)
        waited = self._cell("result = later.result(20)")
        _same(waited.status == "ok", are_there, f"the end of the future ({waited.text})")
        if are_there:
            came = self._kernel.value("_came_to(result)")
            _same(came[1], {rank: repr(each.value) for rank, each in ran.items()}, "what the future gave")
            self.cell(name, named(ranks), second, "")

    def part(self, name: str, selection: Selection, body: Body, failing: Collection[int], how: str, wait: str) -> None:
        """Some fail, the others wait until they are interrupted, which is not their fault."""
        grid, ranks = self._chosen(name, selection)
        here = "raise Died" if "_exit" in how else "1 / 0"
        gate = tempfile.mkdtemp(dir=self._kernel.folder)  # who dies as others make their group is waited for there
        comes = f"import os; open(os.path.join({gate!r}, str(rank)), 'w').close()"
        waits = f"while len(os.listdir({gate!r})) < {len(ranks)}: pass"
        fails = Line(f"{comes}\nif rank in {failing}:\n    {waits}\n    {how}", f"if rank in {failing}: {here}")
        imports = Line("import torch, torch.distributed as dist", "")
        whole = Body((imports, *body.lines, fails, Line(wait, "1 / 0")))
        outputs = self._cell(f"%%on_mesh {selection.text}{self._at(name)} --grace 0.2\n{whole.text}")
        grid.run(whole, ranks)
        grid.failed = set(failing)
        if not outputs.error.startswith(("MeshError: ", "DeviceMeshError: ")):
            raise Violation(f"where ranks have failed a cell ended with {outputs.error or 'ok'}: {outputs.text}")
        if not grid.dead and f"{len(failing)} of {len(ranks)} rank" not in outputs.error:
            raise Violation(f"ranks {failing} of {ranks} have failed, but: {outputs.text}")

    def beside(
        self,
        name: str,
        selection: Selection,
        body: Body,
        wait: str,
        asides: Collection[tuple[str, Any]],
        end: Literal["stop", "interrupt", "kill"],
    ) -> None:
        """What a console does while a cell of the notebook waits, and what ends that."""
        grid, ranks = self._chosen(name, selection)
        pids = self._kernel.pids(name)
        cell = self._start_waiting(name, selection, body, wait, len(ranks))
        grid.run(Body(body.lines), ranks, is_noted=False)
        grid.is_journal_known = False
        interrupted, is_last = set[int](), False
        for what, how in asides:
            if what == "ask":
                self._aside(how, may_fail=not self._can_answer(how))
            elif what == "run":
                self._aside(f"%%on_mesh {named(how[0]).text} -m {name}\n{how[1].text}")
                grid.run(how[1], how[0], is_noted=False)
                is_last = interrupted == ranks  # the cell that waits has ended before
            else:
                self._aside(f"%mesh interrupt {named(how).text} -m {name}")
                interrupted |= set(how)
                if interrupted == ranks:
                    cell.idle(PATIENCE)
        if interrupted == ranks:
            error = "MeshError: "
        elif end == "stop":
            self._kernel.interrupt()
            error = "KeyboardInterrupt: interrupted: "
        elif end == "kill":
            victim = min(ranks - interrupted)
            os.kill(pids[victim], signal.SIGKILL)
            grid.die(victim)
            error = "DeviceMeshError: "
        else:
            self._aside(f"%mesh interrupt -m {name}")
            interrupted, error = set(ranks), "MeshError: "
        outputs = cell.end(PATIENCE)
        grid.failed = set() if is_last else interrupted
        if not outputs.error.startswith(error):
            raise Violation(f"a cell must end with {error}, not {outputs.error or 'ok'}: {outputs.text}")

    def _start_waiting(self, name: str, selection: Selection, body: Body, wait: str, num_ranks: int) -> Cell:
        """A cell that comes to no end, and has come there on all its ranks."""
        text = Body((*body.lines, plain("print('waits')"), plain(wait))).text
        self._source = f"%%on_mesh {selection.text}{self._at(name)} --grace 0.2\n{text}"
        cell = self._kernel.start(self._source)
        cell.until_all(num_ranks, "waits")
        return cell

    def _aside(self, source: str, *, may_fail: bool = False) -> None:
        outputs = self._kernel.start_aside(source).end(PATIENCE)
        if outputs.status != "ok" and not may_fail:
            raise Violation(f"beside a cell this must do well:\n{source}\nbut: {outputs.text}")

    def take_long(self, name: str, selection: Selection, body: Body, slow: Collection[int], wait: str) -> None:
        """Some do not come to the end in time."""
        grid, ranks = self._chosen(name, selection)
        waits = Line(f"if rank in {slow}:\n    {wait}", f"if rank in {slow}: 1 / 0")
        whole = Body((*body.lines, waits))
        outputs = self._cell(f"%%on_mesh {selection.text}{self._at(name)} -t 0.3\n{whole.text}")
        grid.run(whole, ranks)
        if "not done after 0.3 s" not in outputs.text or not outputs.error.startswith("MeshError: "):
            raise Violation(f"a cell that took too long ended with {outputs.error or 'ok'}: {outputs.text}")

    def execute(self, name: str, variable: str, expression: str) -> None:
        """A function of the notebook, of which nothing is to be left on the ranks but what it says is global."""
        grid = self._notebook.grids[name]
        function = f"def work():\n    global {variable}\n    {variable} = {expression}\n    return {variable}"
        self._ok(f"for _name in {NAMES}: globals().pop(_name, None)  # its own would go along")
        outputs = self._cell(f"{function}\nfound = {name}.execute(work).values()")
        if grid.dead:
            _refused(outputs, "DeviceMeshError")
            return
        ran = grid.run(Body((plain(f"{variable} = {expression}"),), variable), grid.everyone, is_noted=False)
        if grid.failed:
            _refused(outputs, "MeshError")
        else:
            _same(outputs.status, "ok", f"a function on ranks ({outputs.text})")
            found = self._kernel.value("[repr(value) for value in found]")
            _same(found, [repr(ran[rank].value) for rank in sorted(ran)], "what a function gave")

    def get(self, name: str, selection: Selection, body: Body, variable: str) -> None:
        """A cell, and what it is to bring along."""
        grid, ranks = self._chosen(name, selection)
        outputs = self._on_mesh(name, selection, f"--get {variable}\n{body.text}")
        if outputs is None:
            return
        grid.run(body, ranks)
        held = grid.held()
        has_come = ranks <= grid.alive and all(variable in held[rank] for rank in ranks)
        _same(outputs.status == "ok", has_come, f"a cell that is to bring {variable} ({outputs.text})")
        if has_come:
            found = self._kernel.value(f"[repr(value) for value in {variable}]")
            _same(found, [held[rank][variable] for rank in sorted(ranks)], f"what was brought as {variable}")

    def make_counters(self, name: str, counters: str, start: int, place: Mapping[str, int]) -> None:
        """Actors on the mesh, or on a slice of it."""
        self._ok(f"{counters} = {name}.slice({_coordinates(place)}).spawn('{counters}', Counter, {start})")
        grid = self._notebook.grids[name]
        axes = [axis for axis in grid.axes if axis not in place]
        grid.counters[counters] = Counters(start, axes, dict.fromkeys(grid.at(place), start))

    def count(self, name: str, counters: str, number: int, place: Mapping[str, int]) -> None:
        """All of them are called, or a slice: those that have died and have not come back cannot be."""
        grid = self._notebook.grids[name]
        ranks = [rank for rank in grid.at(place) if rank in grid.counters[counters].counts]
        outputs = self._cell(f"found = {counters}.slice({_coordinates(place)}).add.call({number}).get()")
        if not set(ranks) <= grid.alive:
            _refused(outputs, "SupervisionError")
            return
        _same(
            said_in(outputs.text),
            [(rank, f"said adding {number}") for rank in ranks],
            f"what actors said ({outputs.text})",
        )
        if number < 0:
            _refused(outputs, f"ValueError: no {number}")
        else:
            _same(outputs.status, "ok", f"a call of actors ({outputs.text})")
            given = grid.counters[counters].add(number, ranks)
            _same(self._kernel.value("[*found.values()]"), given, "what actors gave")

    def stop_counters(self, name: str, counters: str) -> None:
        self._ok(f"{counters}.stop().get()")
        del self._notebook.grids[name].counters[counters]
        _refused(self._cell(f"{counters}.add.call(1).get()"), "SupervisionError")

    def press(self, gaps: Sequence[float], operation: Operation) -> None:
        """Ctrl-C, so many seconds into what else could be done and after each other: all goes on, whatever it hits."""
        self._presses = [*gaps]
        with contextlib.suppress(Violation):
            getattr(self, operation.name)(*operation.args)
        self._presses = []
        for name in {**self._notebook.grids, operation.args[0]: None}:
            self._begin_anew(name)

    def _begin_anew(self, name: str) -> None:
        """What a press has left undone, nobody knows: whether the mesh is there, too. If it is, it must hear."""
        if self._cell(f"{name} = %mesh use {name}").status != "ok":
            if name in self._notebook.grids:
                self._notebook.remove(name)
            return
        self._notebook.use(name)
        dead = self._kernel.value(f"{name}.roster.dead()")
        if dead:
            self._ok(f"%mesh restart @dead -m {name} --replay none")
        names = (*NAMES, *FUNCTIONS)
        self._ok(f"%%on_mesh all -m {name}\nfor _name in {names}: globals().pop(_name, None)")
        fresh = Grid(name, self._kernel.value(f"{name}.axes"))
        self._notebook.grids[name] = fresh
        fresh.is_journal_known = False

    def push(self, name: str, variable: str, value: object, selection: Selection) -> None:
        grid, ranks = self._chosen(name, selection)
        self._ok(f"{variable} = {value!r}")
        outputs = self._cell(f"%mesh push {variable}{self._at(name)} {_sel(selection)}")
        _same(outputs.status == "ok", bool(ranks) and ranks <= grid.alive, f"a push ({outputs.text})")
        if ranks:
            grid.push(variable, value, ranks)

    def pull(self, name: str, variable: str, selection: Selection) -> None:
        grid, ranks = self._chosen(name, selection)
        outputs = self._cell(f"pulled = %mesh pull {variable}{self._at(name)} {_sel(selection)} --as dict")
        held = grid.held()
        if not ranks or not all(variable in held.get(rank, {}) for rank in ranks):
            _refused(outputs, "")
            return
        _same(outputs.status, "ok", f"a pull ({outputs.text})")
        _same(
            sorted(self._kernel.value("[repr(value) for value in pulled.values()]")),
            sorted(held[rank][variable] for rank in ranks),
            "what was pulled",
        )

    def kill(self, name: str, rank: int) -> None:
        pid = self._kernel.pids(name)[rank]
        self._ok(f"import os; os.kill({pid}, 9)\nwhile {rank} not in {name}.roster.dead(): pass")
        self._notebook.grids[name].die(rank)

    def restart(self, name: str, selection: Selection, replay: str) -> None:
        grid, ranks = self._chosen(name, selection)
        outputs = self._cell(f"%mesh restart {selection.text}{self._at(name)} --replay {replay}")
        _same(outputs.status, "ok" if ranks else "error", f"a restart ({outputs.text})")
        grid.restart(ranks, replay)

    def resize(self, name: str, axes: Mapping[str, int]) -> None:
        grid = self._notebook.grids[name]
        sizes = " ".join(f"{axis}={size}" for axis, size in axes.items())
        self._ok(f"%mesh resize {sizes}{self._at(name)} --replay none")
        grid.resize(dict(axes))
        if self._notebook.current == name:
            self._ok(f"%mesh use {name}")
            self._notebook.use(name)

    def inquire(self, text: str) -> None:
        """A question, which only the living can answer."""
        if self._can_answer(text):
            self._ok(text)
        else:
            _refused(self._cell(text), "is dead")

    def _can_answer(self, text: str) -> bool:
        current = self._notebook.grids[self._notebook.current]
        return bool(current.alive) or not text.startswith(OF_THE_LIVING)

    def wrong(self, text: str) -> None:
        _refused(self._cell(text), "")

    # What must be true.

    def _chosen(self, name: str, selection: Selection) -> tuple[Grid, set[int]]:
        grid = self._notebook.grids[name]
        return grid, selection.on(grid)

    def _on_mesh(self, name: str, selection: Selection, rest: str, magic: str = "%%on_mesh") -> Outputs | None:
        """Run a cell on some ranks; None where none of them lives, and it was refused."""
        outputs = self._cell(f"{magic} {selection.text}{self._at(name)} {rest}")
        if self._chosen(name, selection)[1]:
            return outputs
        _refused(outputs, "")
        return None

    def _at(self, name: str) -> str:
        return "" if name == self._notebook.current else f" -m {name}"

    def _cell(self, source: str) -> Outputs:
        self._source = source
        cell = self._kernel.start(source)
        if not self._presses or "mesh" not in source:
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

    def _ok(self, source: str) -> Outputs:
        outputs = self._cell(source)
        if outputs.status != "ok":
            raise Violation(f"this cell must do well:\n{source}\nbut: {outputs.text}")
        return outputs

    def _compare(self, outputs: Outputs, grid: Grid, ranks: set[int], ran: Mapping[int, Ran]) -> None:
        """What a cell on the mesh said, gave, and failed with."""
        whole = f"; the cell was\n{self._source}\nand a reader sees\n{outputs.text}"
        is_well = not grid.failed
        _same(outputs.status == "ok", is_well, f"whether it did well{whole}")
        said = [(rank, line) for rank in sorted(ran) for line in ran[rank].said]
        _same(said_in(outputs.text), said, f"what ranks said{whole}")
        found_ranks, values, errors, lost = self._kernel.value("_came_to(_mesh)")
        dead = {rank for rank in ranks if rank not in ran or ran[rank].has_died}
        _same(found_ranks, sorted(ranks), f"the ranks of the result{whole}")
        _same(lost, sorted(dead), f"who was lost{whole}")
        _same(values, {rank: repr(each.value) for rank, each in ran.items() if not each.error}, f"its values{whole}")
        raised = {rank: each.error for rank, each in ran.items() if each.error and rank not in dead}
        _same({rank: error for rank, error in errors.items() if rank not in dead}, raised, f"its errors{whole}")
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
            _same(axes, grid.axes, f"the axes of {name}")
            _same({rank for rank, state in states.items() if state == "dead"}, grid.dead, f"the dead of {name}")
            _same(held, grid.held(), f"what ranks of {name} hold, after\n{self._source}\n")
            failed = {rank for rank, state in states.items() if state == "failed"}
            _same(failed, grid.failed & grid.alive, f"who of {name} has failed, after\n{self._source}\n")


def _rests(seen: tuple[Any, dict[int, str], Any]) -> bool:
    return "busy" not in seen[1].values()


def _coordinates(place: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={index}" for axis, index in place.items())


def _sel(selection: Selection) -> str:
    return f"--sel '{selection.text}'" if selection.text else ""


def _refused(outputs: Outputs, why: str) -> None:
    if outputs.status != "error" or why not in outputs.text:
        raise Violation(f"it must be refused ({why}), but: {outputs.status} {outputs.text}")


def _same(found: Any, right: object, what: str) -> None:
    if found != right:
        raise Violation(f"{what}: {found}, but must be {right}")
