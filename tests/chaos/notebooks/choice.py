"""Which cell comes next in a random notebook: by chance, and by what is there. A seed gives one story."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ..chooser import Chooser, Operation
from .cells import FUNCTIONS, NAMES, Author, Body
from .debugging import ENDS, SAYINGS, Command
from .model import Grid, Notebook, Selection, named

MOST_MESHES = 3
MOST_RANKS = 6
AXES = ("dp", "tp", "pp")

INQUIRIES = (
    *("%mesh", "%mesh ls", "%mesh who", "%mesh logs -n 3", "%mesh ledger", "%mesh stacks", "%mesh config"),
    *("%mesh actors", "%mesh status @alive", "%mesh auto", "%mesh up -h", "%%on_mesh -h"),
)
WRONG = (
    *(
        "%%on_mesh zz=0\n1",
        "%%on_mesh 99\n1",
        "%%on_mesh dp=\n1",
        "%%on_mesh --nonsense\n1",
        "%%on_mesh",
        "%mesh nonsense",
    ),
    *("%mesh up", "%mesh up dp=0", "%mesh up dp=x", "%mesh up 1x dp=1", "%mesh use nobody", "%mesh down nobody"),
    *("%mesh push nothing_here", "%mesh pull nothing_here", "%%on_mesh -m nobody\n1", "%%on_mesh -t x\n1"),
    *("%mesh config show=wrong", "%mesh restart zz=0", "%mesh resize zz=3", "%on_mesh -- ", "%on_mesh 1 +"),
)
"""What is refused whatever meshes there are."""
OPTIONS = (
    ("--show table", "--show none", "--show first", "--show tabs"),
    ("--tail 50", "--full", "--no-stream"),
    ("-t 20", "--on-error wait", "-o out", "--label x"),
)
EARLIEST, LATEST = 0.004, 0.15
"""Seconds into a cell at which it is stopped, and between two presses. Earlier, ipykernel itself may lose the reply."""
HOWS = ("--spares 1", "--link zmq", "--import torch", "--env A=1")
"""In which a mesh may come up that should make no difference."""
WAITS = ("__import__('time').sleep(60)", "while True: pass", "await __import__('asyncio').sleep(60)")


class Choice(Chooser):
    """Chooses cells for `notebook`, which others change as these run."""

    def __init__(self, seed: int, notebook: Notebook, *, with_presses: bool = False) -> None:
        super().__init__(seed)
        self._notebook = notebook
        self._author = Author(self._random)
        self._number = 0
        self._kinds = {
            self._up: 1,
            self._cell: 14,
            self._again: 2,
            self._script: 0.7,
            self._line: 3,
            self._behind: 2,
            self._part: 2,
            self._beside: 4,
            self._take_long: 0.5,
            self._execute: 1,
            self._get: 1,
            self._debug: 2,
            self._post_mortem: 1,
            self._stop_in_function: 1,
            self._diff: 1,
            self._watch: 0.7,
            self._export: 0.4,
            self._count: 3,
            self._auto: 1.5,
            self._local: 1,
            self._compute: 2,
            self._look_at_tensor: 1,
            self._press: 3 if with_presses else 0,
            self._push: 2,
            self._pull: 2,
            self._kill: 0.5,
            self._restart: 1.5,
            self._resize: 0.4,
            self._use: 1,
            self._down: 0.4,
            self._inquire: 2,
            self._wrong: 2,
        }
        self._last: tuple[Operation, dict[str, int]] | None = None  # a cell, and the axes of its mesh

    def next(self) -> Operation:
        return super().next() if self._notebook.grids else self._up()

    def _new_name(self) -> str:
        self._number += 1
        return f"m{self._number}"

    def _up(self) -> Operation:
        if len(self._notebook.grids) >= MOST_MESHES:
            return self._inquire()
        how = self._random.choice(HOWS) if self._happens(0.4) else ""
        return Operation("up", (self._new_name(), self._axes(), how))

    def _axes(self) -> dict[str, int]:
        while True:
            axes = {axis: self._random.randint(1, 3) for axis in self._random.sample(AXES, self._random.randint(1, 2))}
            if math.prod(axes.values()) <= MOST_RANKS:
                return axes

    def _grid(self) -> Grid:
        """One to be named, or else the current one."""
        grids = self._notebook.grids
        return grids[self._notebook.current if self._happens(0.7) else self._random.choice(list(grids))]

    def _cell(self) -> Operation:
        grid = self._grid()
        selection = self._selection(grid)
        body = self._body(grid, selection)
        options = " ".join(self._random.choice(group) for group in OPTIONS if self._happens(0.3))
        cell = Operation("cell", (grid.name, selection, body, options))
        self._last = cell, dict(grid.axes)
        return cell

    def _body(self, grid: Grid, selection: Selection) -> Body:
        body = self._author.body(len(grid.everyone), may_meet=selection.on(grid) <= grid.alive)
        if body.is_together and body.is_deadly:  # those that still meet may lose their connection to who has died
            return self._body(grid, selection)
        return body

    def _again(self) -> Operation | None:
        """The same text once more, perhaps elsewhere."""
        if self._last is None:
            return None
        (_, (name, selection, body, options)), axes = self._last
        grid = self._notebook.grids.get(name)
        if grid is None or grid.axes != axes:
            return None
        is_same = selection.text and "@" not in selection.text  # means the same now
        selection = selection if is_same and self._happens(0.5) else self._selection(grid)
        may_run = not body.is_together or selection.on(grid) <= grid.alive
        return Operation("cell", (name, selection, body, options)) if may_run else None

    def _script(self) -> Operation | None:
        grid = self._grid()
        if grid.dead:
            return None
        body = Body((self._author.script(),), "rank")
        return Operation("script", (grid.name, self._whole(grid), body))

    def _line(self) -> Operation:
        grid = self._grid()
        return Operation("line", (grid.name, self._selection(grid), self._author.expression()))

    def _behind(self) -> Operation:
        """A cell in the background, and some more behind it."""
        grid = self._grid()
        selection = self._selection(grid)
        return Operation("background", (grid.name, selection, self._quiet_body(grid), self._quiet_body(grid)))

    def _part(self) -> Operation | None:
        """Some ranks fail, and the others wait, for these or for something else."""
        grid = self._grid()
        selection = self._selection(grid)
        ranks = selection.on(grid)
        if len(ranks) < 2 or not ranks <= grid.alive:
            return None
        failing = self._random.sample(sorted(ranks), self._random.randint(1, len(ranks) - 1))
        how = self._random.choice(["1 / 0", "1 / 0", "__import__('sys').exit(4)", "__import__('os')._exit(4)"])
        wait = self._random.choice(
            ["dist.all_reduce(torch.ones(2), group=group)", "dist.barrier(group=group)", WAITS[0]]
        )
        return Operation("part", (grid.name, selection, self._quiet_body(grid), sorted(failing), how, wait))

    def _beside(self) -> Operation | None:
        """A console of the notebook asks, runs cells and interrupts while a cell of the notebook waits."""
        grid = self._grid()
        if not grid.alive:
            return None
        selection = self._selection(grid, are_alive=True)
        ranks, others = sorted(selection.on(grid)), sorted(grid.alive - selection.on(grid))
        asides: list[tuple[str, object]] = []
        for _ in range(self._random.randrange(4)):
            some = self._random.sample(ranks, self._random.randint(1, len(ranks)))
            asides.append(self._random.choice([("ask", self._random.choice(INQUIRIES)), ("interrupt", some)]))
            if others and self._happens(0.3):
                asides.append(("run", (self._random.sample(others, 1), self._quiet_body(grid))))
        end = self._random.choice(["stop", "stop", "interrupt", "kill"])
        return Operation(
            "beside", (grid.name, selection, self._quiet_body(grid), self._random.choice(WAITS), asides, end)
        )

    def _take_long(self) -> Operation | None:
        grid = self._grid()
        if not grid.alive:
            return None
        selection = self._selection(grid, are_alive=True)
        slow = self._random.sample(sorted(selection.on(grid)), self._random.randint(1, len(selection.on(grid))))
        return Operation("take_long", (grid.name, selection, self._quiet_body(grid), slow, self._random.choice(WAITS)))

    def _debug(self) -> Operation | None:
        """Ranks stop in a cell, are asked and given something, and come away from there in one way or another."""
        grid = self._grid()
        if not grid.alive:
            return None
        selection = self._selection(grid, are_alive=True)
        ranks, end = sorted(selection.on(grid)), self._random.choice(ENDS)
        is_broken_off = end in ("abort", "stop")  # who does not stop may have come to the end, or not
        stops = sorted(self._random.sample(ranks, len(ranks) if is_broken_off else self._random.randint(1, len(ranks))))
        commands = [self._command(stops) for _ in range(self._random.randrange(6))]
        rest = self._author.body(len(grid.everyone), may_meet=False)
        return Operation("debug", (grid.name, selection, (self._quiet_body(grid), rest), stops, commands, end))

    def _post_mortem(self) -> Operation | None:
        """Ranks fail, and their frames are visited."""
        grid = self._grid()
        if not grid.alive:
            return None
        selection = self._selection(grid, are_alive=True)
        ranks = sorted(selection.on(grid))
        failing = sorted(self._random.sample(ranks, self._random.randint(1, len(ranks))))
        commands = [self._command(failing) for _ in range(self._random.randrange(5))]
        end = self._random.choice(["leave", "leave", "stop", "kill"])
        return Operation("post_mortem", (grid.name, selection, self._quiet_body(grid), failing, commands, end))

    def _stop_in_function(self) -> Operation | None:
        grid = self._grid()
        if not grid.alive:
            return None
        points, selection = self._selection(grid, are_alive=True), self._selection(grid, are_alive=True)
        function = (self._random.choice(FUNCTIONS), self._random.randrange(10))
        return Operation("stop_in_function", (grid.name, points, selection, function, self._random.randrange(10)))

    def _diff(self) -> Operation:
        grid = self._grid()
        return Operation("diff", (grid.name, self._random.choice(NAMES), self._selection(grid)))

    def _export(self) -> Operation | None:
        grid = self._grid()
        is_told = grid.is_journal_known and grid.can_be_script and len(grid.everyone) < 4
        return Operation("export", (grid.name,)) if is_told else None

    def _watch(self) -> Operation:
        """A name that may be there, or a number, or not."""
        grid = self._grid()
        return Operation("watch", (grid.name, self._random.choice(NAMES), self._happens(0.4)))

    def _command(self, stops: Sequence[int]) -> Command:
        """A line at the prompt of ranks that have stopped."""
        if self._happens(0.5):
            return Command(self._random.choice([*SAYINGS, f"%rank {self._random.choice(stops)}"]))
        name, value, rank = self._random.choice(NAMES), self._random.randrange(100), self._random.choice(stops)
        sets = Command(f"{name} = {value}", name, value)
        commands = [sets, sets._replace(text=f"!{sets.text}"), sets._replace(text=f"%all {sets.text}", ranks=stops)]
        commands.append(sets._replace(text=f"%cast {rank} {sets.text}", ranks=[rank]))
        return self._random.choice(commands)

    def _execute(self) -> Operation:
        grid = self._grid()
        return Operation("execute", (grid.name, self._random.choice(NAMES), self._author.expression()))

    def _get(self) -> Operation:
        grid = self._grid()
        return Operation("get", (grid.name, self._selection(grid), self._quiet_body(grid), self._random.choice(NAMES)))

    def _count(self) -> Operation | None:
        """Actors of the notebook: made, called, or stopped."""
        grid = self._grid()
        name = self._one(list(grid.counters))
        if name is None or self._happens(0.2):
            return self._make_counters(grid)
        if self._happens(0.1):
            return Operation("stop_counters", (grid.name, name))
        place = self._line_of(grid, grid.counters[name].axes)
        return Operation("count", (grid.name, name, self._random.randrange(-3, 9), place))

    def _make_counters(self, grid: Grid) -> Operation | None:
        place = self._line_of(grid, list(grid.axes))
        if not set(grid.at(place)) <= grid.alive:
            return None
        self._number += 1
        return Operation("make_counters", (grid.name, f"counters{self._number}", self._random.randrange(9), place))

    def _line_of(self, grid: Grid, axes: Sequence[str]) -> dict[str, int]:
        """A coordinate along one of these axes, or none."""
        axis = self._one(axes) if self._happens(0.4) else None
        return {axis: self._random.randrange(grid.axes[axis])} if axis is not None else {}

    def _auto(self) -> Operation:
        """A cell without a magic."""
        grid = self._notebook.grids[self._notebook.current]
        slice = self._notebook.slice
        selection = Selection("", slice.ranks, slice.are_named) if slice else Selection("", frozenset(grid.everyone))
        while (body := self._body(grid, selection)).text.startswith("!"):
            """That would be run here."""
        return Operation("auto", (grid.name, selection, body))

    def _local(self) -> Operation:
        """A cell that runs here as well."""
        grid = self._grid()
        name, number = self._random.choice(NAMES), self._random.randrange(100)
        return Operation("local", (grid.name, self._selection(grid), name, number))

    def _compute(self) -> Operation:
        """A distributed tensor, on the mesh or on a slice of it."""
        grid = self._grid()
        place = self._line_of(grid, list(grid.axes))
        axis = self._one([axis for axis in grid.axes if axis not in place]) if self._happens(0.5) else None
        self._number += 1
        return Operation("compute", (grid.name, f"tensor{self._number}", self._random.randrange(9), place, axis))

    def _look_at_tensor(self) -> Operation | None:
        grid = self._grid()
        name = self._one(list(grid.tensors))
        return Operation("look_at_tensor", (grid.name, name)) if name is not None else None

    def _quiet_body(self, grid: Grid) -> Body:
        return self._author.body(len(grid.everyone), may_fail=False, may_meet=False)

    def _press(self) -> Operation:
        """Ctrl-C, some times, into whatever else may be done."""
        on_ranks = [self._cell, self._line, self._push, self._pull, self._execute, self._behind, self._get]
        on_ranks += [self._auto, self._local, self._compute, self._look_at_tensor, self._count, self._count]
        on_meshes = [self._restart, self._restart, self._up, self._down, self._resize, self._use]
        gaps = [self._random.random() ** 2 * LATEST for _ in range(self._random.choice([1, 1, 2, 3]))]
        while True:
            operation = self._random.choice([*on_ranks, *on_meshes])()
            if operation is not None and operation.name != "inquire":
                return Operation("press", ([EARLIEST + gap for gap in gaps], operation))

    def _push(self) -> Operation:
        grid = self._grid()
        value = self._random.choice([3, "text", [1, 2], (4, "x"), {"k": 1}, None])
        return Operation("push", (grid.name, self._random.choice(NAMES), value, self._selection(grid)))

    def _pull(self) -> Operation:
        grid = self._grid()
        return Operation("pull", (grid.name, self._random.choice(NAMES), self._selection(grid)))

    def _kill(self) -> Operation | None:
        grid = self._grid()
        rank = self._one(sorted(grid.alive))
        return Operation("kill", (grid.name, rank)) if rank is not None else None

    def _restart(self) -> Operation | None:
        grid = self._grid()
        replay = "auto" if grid.is_journal_known and self._happens(0.7) else "none"
        if grid.dead and self._happens(0.8):
            return Operation("restart", (grid.name, Selection("@dead", frozenset(grid.dead), True), replay))
        if self._happens(0.2):
            return Operation("restart", (grid.name, Selection("", frozenset(grid.everyone), True), replay))
        ranks = sorted(self._random.sample(grid.everyone, self._random.randint(1, len(grid.everyone))))
        return Operation("restart", (grid.name, named(ranks), replay))

    def _resize(self) -> Operation | None:
        grid = self._grid()
        axes = {axis: self._random.randint(1, 3) for axis in grid.axes}
        is_possible = math.prod(axes.values()) <= MOST_RANKS and axes != grid.axes
        return Operation("resize", (grid.name, axes)) if is_possible else None

    def _use(self) -> Operation:
        name = self._random.choice(list(self._notebook.grids))
        grid = self._notebook.grids[name]
        slice = self._selection(grid) if self._happens(0.4) else None
        is_fit = slice is not None and slice.text and slice.on(grid) and "@" not in slice.text
        return Operation("use", (name, slice if is_fit else None))

    def _down(self) -> Operation:
        return Operation("down", (self._random.choice(list(self._notebook.grids)),))

    def _inquire(self) -> Operation:
        return Operation("inquire", (self._random.choice(INQUIRIES),))

    def _wrong(self) -> Operation:
        return Operation("wrong", (self._random.choice(WRONG),))

    def _selection(self, grid: Grid, *, are_alive: bool = False) -> Selection:
        """Of at least one rank, dead or alive."""
        while True:
            made = self._random.choice([self._all, self._all, self._ranks, self._range, self._places, self._state])(
                grid
            )
            if made.ranks and (not are_alive or (made.on(grid) and made.on(grid) <= grid.alive)):
                return made

    def _all(self, grid: Grid) -> Selection:
        if grid.name == self._notebook.current and (slice := self._notebook.slice):
            return Selection("", slice.ranks, slice.are_named) if self._happens(0.5) else self._whole(grid)
        return Selection("", frozenset(grid.everyone)) if self._happens(0.7) else self._whole(grid)

    def _whole(self, grid: Grid) -> Selection:
        return Selection(self._random.choice(["all", "rank=:", "@alive"]), frozenset(grid.everyone))

    def _ranks(self, grid: Grid) -> Selection:
        return named(self._random.sample(grid.everyone, self._random.randint(1, min(2, len(grid.everyone)))))

    def _range(self, grid: Grid) -> Selection:
        first, last = sorted(self._random.choices(grid.everyone, k=2))
        ranks = frozenset(range(first, last + 1))
        if len(ranks) == 1 or self._happens(0.3):
            others = frozenset(grid.everyone) - {first}
            return Selection(f"!{first}", others)
        return Selection(f"{first}-{last}", ranks) if self._happens(0.5) else Selection(f"{first}:{last + 1}", ranks)

    def _places(self, grid: Grid) -> Selection:
        place = self._random.choice(grid.places)
        axes = self._random.sample(list(place), self._random.randint(1, len(place)))
        ranks = {rank for rank in grid.everyone if all(grid.places[rank][axis] == place[axis] for axis in axes)}
        separator = self._random.choice([",", " ", ", "])
        text = separator.join(f"{axis}={place[axis]}" for axis in axes)
        are_named = all(size == 1 or axis in axes for axis, size in grid.axes.items())
        return Selection(text, frozenset(ranks), are_named)

    def _state(self, grid: Grid) -> Selection:
        states: dict[str, Collection[int]] = {
            "@failed": grid.failed & grid.alive,
            "@first": {min(grid.alive, default=0)},
            "@dead": grid.dead,
            "@alive": grid.alive,
        }
        text = self._random.choice(list(states))
        return Selection(text, frozenset(states[text]), text == "@dead")
