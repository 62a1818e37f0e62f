"""A random notebook in a real kernel: runs a cell, tells the model, and compares what a reader sees and ranks hold."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from ast import literal_eval
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from meshbook.runtime import MeshFailure
from tests.magics.front_end import Cell

from ..verdicts import Violation
from .cells import FUNCTIONS, NAMES, Body, Line, plain, said_in
from .choice import Choice, Operation
from .debugging import Debugging
from .model import Counters, Entry, Grid, Selection, Tensor, named
from .reader import PATIENCE, refused, same

HELD = f"""
with open(__file__ + f".{{rank}}", "w") as _file:
    _file.write(repr({{name: repr(globals()[name]) for name in {NAMES} if name in globals()}}))
"""
"""The end of a script, which tells what its ranks hold."""
OF_THE_LIVING = ("%mesh who", "%mesh ledger", "%mesh status @alive")


class World(Debugging):
    """Operations on a notebook, each with what it must come to: a `Story`."""

    def __init__(self, seed: int, where: str, *, with_presses: bool = False) -> None:
        super().__init__(where)
        self._choice = Choice(seed, self._notebook, with_presses=with_presses)

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

    def up(self, name: str, axes: Mapping[str, int], how: str) -> None:
        sizes = " ".join(f"{axis}={size}" for axis, size in axes.items())
        self._ok(f"{name} = %mesh up {name} {sizes} --device cpu {how}")
        self._notebook.grids[name] = Grid(name, dict(axes))
        self._notebook.use(name)
        refused(self._cell(f"%mesh up {name} dp=1"), "is up")

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

    def script(self, name: str, selection: Selection, body: Body) -> None:
        """A cell such as scripts of torchrun are: with process groups of its own, which are gone afterwards."""
        self.cell(name, selection, body, "")
        self._notebook.grids[name].can_be_script = False

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
        same(waited.status == "ok", are_there, f"the end of the future ({waited.text})")
        if are_there:
            came = self._kernel.value("_came_to(result)")
            same(came[1], {rank: repr(each.value) for rank, each in ran.items()}, "what the future gave")
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
            refused(outputs, "DeviceMeshError")
            return
        grid.can_be_script = False
        ran = grid.run(Body((plain(f"{variable} = {expression}"),), variable), grid.everyone, is_noted=False)
        if grid.failed:
            refused(outputs, "MeshError")
        else:
            same(outputs.status, "ok", f"a function on ranks ({outputs.text})")
            found = self._kernel.value("[repr(value) for value in found]")
            same(found, [repr(ran[rank].value) for rank in sorted(ran)], "what a function gave")

    def get(self, name: str, selection: Selection, body: Body, variable: str) -> None:
        """A cell, and what it is to bring along."""
        grid, ranks = self._chosen(name, selection)
        outputs = self._on_mesh(name, selection, f"--get {variable}\n{body.text}")
        if outputs is None:
            return
        grid.run(body, ranks)
        held = grid.held()
        has_come = ranks <= grid.alive and all(variable in held[rank] for rank in ranks)
        same(outputs.status == "ok", has_come, f"a cell that is to bring {variable} ({outputs.text})")
        if has_come:
            found = self._kernel.value(f"[repr(value) for value in {variable}]")
            same(found, [held[rank][variable] for rank in sorted(ranks)], f"what was brought as {variable}")

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
        outputs = self._cell(f"found = {counters}.slice({_coordinates(place)}).add.call({number}).get()", is_it=True)
        if not set(ranks) <= grid.alive:
            refused(outputs, "SupervisionError")
            return
        same(
            said_in(outputs.text),
            [(rank, f"said adding {number}") for rank in ranks],
            f"what actors said ({outputs.text})",
        )
        if number < 0:
            refused(outputs, f"ValueError: no {number}")
        else:
            same(outputs.status, "ok", f"a call of actors ({outputs.text})")
            given = grid.counters[counters].add(number, ranks)
            same(self._kernel.value("[*found.values()]"), given, "what actors gave")

    def stop_counters(self, name: str, counters: str) -> None:
        self._ok(f"{counters}.stop().get()")
        del self._notebook.grids[name].counters[counters]
        refused(self._cell(f"{counters}.add.call(1).get()"), "SupervisionError")

    def press(self, gaps: Sequence[float], operation: Operation) -> None:
        """Ctrl-C, so many seconds into what else could be done and after each other: all goes on, whatever it hits."""
        self._presses = [*gaps]
        with contextlib.suppress(Violation):
            getattr(self, operation.name)(*operation.args)
        self._presses = []
        self._ok("%mesh auto off")
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

    def auto(self, current: str, selection: Selection, body: Body) -> None:
        """A cell without a magic, while `%mesh auto` is on; where nobody is there it is refused, and not run here."""
        grid, ranks = self._chosen(current, selection)
        self._ok("%mesh auto on", is_it=False)
        outputs = self._cell(body.text, is_it=True)
        self._ok("%mesh auto off")
        if ranks:
            self._compare(outputs, grid, ranks, grid.run(body, ranks))
        else:
            refused(outputs, "")

    def local(self, name: str, selection: Selection, variable: str, number: int) -> None:
        """A cell that runs here as well, and first."""
        grid, ranks = self._chosen(name, selection)
        self._ok(f"{variable} = None")
        body = Body((plain(f"{variable} = {number}"), plain(f"print('said', {number})")), f"{variable} + 1")
        outputs = self._on_mesh(name, selection, f"--local\n{body.text}")
        same(self._kernel.value(variable), number if ranks else None, "what a cell that runs here, too, has set")
        if outputs is not None:
            self._compare(outputs, grid, ranks, grid.run(body, ranks))

    def compute(self, name: str, tensor: str, number: int, place: Mapping[str, int], axis: str | None) -> None:
        """A distributed tensor: all of its ranks must live, and no others."""
        grid = self._notebook.grids[name]
        ranks = grid.at(place)
        last = f"y.reduce({axis!r}, 'sum')" if axis else "y"
        outputs = self._cell(
            f"with {name}.slice({_coordinates(place)}).activate():\n"
            f"    x = torch.ones(3) * {number}\n    y = x + 1\n    {tensor} = {last}\nfound = inspect({tensor}.sum())",
            is_it=True,
        )
        if not set(ranks) <= grid.alive:
            refused(outputs, "")
            return
        same(outputs.status, "ok", f"a distributed tensor ({outputs.text})")
        value = 3 * (number + 1) * (grid.axes[axis] if axis else 1)
        same(self._kernel.value("found.item()"), value, "a distributed tensor")
        grid.tensors[tensor] = Tensor(value, ranks)

    def look_at_tensor(self, name: str, tensor: str) -> None:
        """One that was made before; where one of its ranks is not there any more it is refused."""
        made = self._notebook.grids[name].tensors[tensor]
        outputs = self._cell(f"found = inspect({tensor}.sum())", is_it=True)
        if not made.lives_on:
            refused(outputs, "")
            return
        same(outputs.status, "ok", f"a distributed tensor of before ({outputs.text})")
        same(self._kernel.value("found.item()"), made.value, "a distributed tensor of before")

    def push(self, name: str, variable: str, value: object, selection: Selection) -> None:
        grid, ranks = self._chosen(name, selection)
        self._ok(f"{variable} = {value!r}")
        outputs = self._cell(f"%mesh push {variable}{self._at(name)} {_sel(selection)}")
        same(outputs.status == "ok", bool(ranks) and ranks <= grid.alive, f"a push ({outputs.text})")
        if ranks:
            grid.push(variable, value, ranks)

    def pull(self, name: str, variable: str, selection: Selection) -> None:
        grid, ranks = self._chosen(name, selection)
        outputs = self._cell(f"pulled = %mesh pull {variable}{self._at(name)} {_sel(selection)} --as dict")
        held = grid.held()
        if not ranks or not all(variable in held.get(rank, {}) for rank in ranks):
            refused(outputs, "")
            return
        same(outputs.status, "ok", f"a pull ({outputs.text})")
        same(
            sorted(self._kernel.value("[repr(value) for value in pulled.values()]")),
            sorted(held[rank][variable] for rank in ranks),
            "what was pulled",
        )

    def diff(self, name: str, variable: str, selection: Selection) -> None:
        """Who of those that live has the same."""
        grid, ranks = self._chosen(name, selection)
        outputs = self._cell(f"found = %mesh diff {variable}{self._at(name)} {_sel(selection)}")
        held = grid.held()
        if not ranks:
            refused(outputs, "")
            return
        if lacking := {rank for rank in ranks if variable not in held.get(rank, {})}:
            grid.failed = lacking
            refused(outputs, "MeshError")
            return
        same(outputs.status, "ok", f"a comparison ({outputs.text})")
        groups: dict[str, list[int]] = {}
        for rank in sorted(ranks):
            groups.setdefault(held[rank][variable], []).append(rank)
        right = sorted(map(tuple, groups.values()), key=lambda ranks: (-len(ranks), ranks))
        same(self._kernel.value("found.comparison.groups"), right, f"who has the same {variable} ({outputs.text})")

    def watch(self, name: str, variable: str, is_end: bool) -> None:
        """A curve, drawn beside what follows, which it must not disturb."""
        self._cell(f"%mesh watch --stop{self._at(name)}")
        if not is_end and self._notebook.grids[name].alive:
            self._ok(f"%mesh watch {variable} --every 0.1{self._at(name)}")

    def export(self, name: str) -> None:
        """The cells as a script, which comes to what they came to where nothing was lost."""
        grid = self._notebook.grids[name]
        script = Path(tempfile.mkdtemp(dir=self._kernel.folder)) / "story.py"
        outputs = self._cell(f"%mesh export {script}{self._at(name)}")
        if not any(isinstance(step, Entry) for step in grid.journal):
            refused(outputs, "no cell to export")
            return
        same(outputs.status, "ok", f"an export ({outputs.text})")
        with script.open("a") as file:
            file.write(HELD)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        ran = subprocess.run([*command, str(len(grid.everyone)), str(script)], capture_output=True, text=True)
        right, whole = grid.scripted(), f"\n{script.read_text()}\n{ran.stdout}{ran.stderr}"
        same(ran.returncode == 0, right is not None, f"whether the script of {name} does well{whole}")
        if right is not None:
            held = {rank: literal_eval(Path(f"{script}.{rank}").read_text()) for rank in grid.everyone}
            same(held, right, f"what a script comes to{whole}")

    def kill(self, name: str, rank: int) -> None:
        pid = self._kernel.pids(name)[rank]
        self._ok(f"import os; os.kill({pid}, 9)\nwhile {rank} not in {name}.roster.dead(): pass")
        self._notebook.grids[name].die(rank)

    def restart(self, name: str, selection: Selection, replay: str) -> None:
        grid, ranks = self._chosen(name, selection)
        outputs = self._cell(f"%mesh restart {selection.text}{self._at(name)} --replay {replay}")
        same(outputs.status, "ok" if ranks else "error", f"a restart ({outputs.text})")
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
            refused(self._cell(text), "is dead")

    def _can_answer(self, text: str) -> bool:
        current = self._notebook.grids[self._notebook.current]
        return bool(current.alive) or not text.startswith(OF_THE_LIVING)

    def wrong(self, text: str) -> None:
        refused(self._cell(text), "")


def _coordinates(place: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={index}" for axis, index in place.items())


def _sel(selection: Selection) -> str:
    return f"--sel '{selection.text}'" if selection.text else ""
