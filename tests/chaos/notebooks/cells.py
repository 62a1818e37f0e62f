"""Random bodies of cells, and what each does on a rank: by running it here, in a namespace that stands for the rank's.

What ranks do together, and what ends them, stands in another form for the run here.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any, NamedTuple

NAMES = ("a", "b", "c", "d")
FUNCTIONS = ("f", "g")

Namespace = dict[str, Any]


class Died(BaseException):
    """The process of the rank has ended."""


class Line(NamedTuple):
    """A statement as it stands in the cell, and what does the same here."""

    text: str
    here: str


class Ran(NamedTuple):
    """What a cell came to on one rank."""

    said: tuple[str, ...] = ()
    error: tuple[str, str] | None = None
    """Type and text."""
    value: object = None
    has_died: bool = False


class Body(NamedTuple):
    """What is below `%%on_mesh`."""

    lines: tuple[Line, ...]
    last: str = ""
    """An expression whose value comes back."""

    def __str__(self) -> str:
        return repr(self.text)

    @property
    def text(self) -> str:
        return "\n".join([*(line.text for line in self.lines), *filter(None, [self.last])])

    @property
    def is_together(self) -> bool:
        """Whether ranks wait for each other in it."""
        return any("dist." in line.text for line in self.lines)

    @property
    def is_deadly(self) -> bool:
        """Whether a rank may die in it."""
        return any("Died" in line.here for line in self.lines)

    def run(self, names: Namespace, ranks: Collection[int]) -> Ran:
        """What it does to a namespace, as one of so many ranks."""
        return run("\n".join(line.here for line in self.lines), self.last, names, ranks)


def run(source: str, last: str, names: Namespace, ranks: Collection[int] = ()) -> Ran:
    """Run statements, and the expression behind them."""
    names |= {"_ranks": sorted(ranks), "Died": Died}
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            exec(source, names)
            value = eval(last, names) if last else None
    except Died:
        return Ran(_lines(said), ("Died", ""), None, True)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - they are meant
        return Ran(_lines(said), (type(error).__name__, str(error)))
    return Ran(_lines(said), None, value)


def _lines(said: io.StringIO) -> tuple[str, ...]:
    return tuple(said.getvalue().splitlines())


def held(names: Namespace) -> dict[str, str]:
    """The variables among all that a namespace has, each as text."""
    return {name: repr(names[name]) for name in NAMES if name in names}


class Author:
    """Writes bodies."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def body(self, num_ranks: int, *, may_fail: bool = True, may_meet: bool = True) -> Body:
        """Of some lines, for a mesh of so many ranks."""
        kinds: dict[Callable[[int], Line], float] = {
            self._assign: 6,
            self._say: 4,
            self._list: 1,
            self._define: 1,
            self._await: 0.5,
            self._shell: 0.5,
        }
        if may_fail:
            kinds |= {self._raise: 1.5, self._delete: 0.7, self._end: 0.35, self._exit: 0.3}
        else:
            kinds = {self._constant: 3, self._say_rank: 2, self._define: 1}
        if may_meet:
            kinds[self._meet] = 1.2
        how_many = self._random.randint(1, 4)
        chosen = self._random.choices(list(kinds), list(kinds.values()), k=how_many)
        chosen.sort(key=lambda kind: kind != self._meet)  # first: who fails before it would be waited for
        last = self._random.choice(["", self.expression() if may_fail else "rank"])
        return Body(tuple(kind(num_ranks) for kind in chosen), last)

    def _name(self) -> str:
        return self._random.choice(NAMES)

    def expression(self, depth: int = 2) -> str:
        """Of names that may not be there, and functions that may not be."""
        leaves = ["rank", "world_size", str(self._random.randrange(10)), self._name(), self._name()]
        if depth == 0 or self._random.random() < 0.3:
            return self._random.choice(leaves)
        one, other = self.expression(depth - 1), self.expression(depth - 1)
        forms = [f"({one} + {other}) % 97", f"{one} * 2", f"max({one}, {other})", f"[{one}, {other}][rank % 2]"]
        forms += [f"{self._random.choice(FUNCTIONS)}({one})", f"{one} // (1 + rank)", f"coord.get('dp', {one})"]
        return self._random.choice(forms)

    def _ranks(self, num_ranks: int) -> str:
        return str(sorted(self._random.sample(range(num_ranks), self._random.randint(1, max(1, num_ranks // 2)))))

    def _assign(self, _: int) -> Line:
        return plain(f"{self._name()} = {self.expression()}")

    def _constant(self, _: int) -> Line:
        return plain(f"{self._name()} = {self._random.randrange(100)} + rank")

    def _say(self, _: int) -> Line:
        where = self._random.choice(["", ", file=__import__('sys').stderr"])
        return plain(f"print('said', {self.expression()}{where})")

    def _say_rank(self, _: int) -> Line:
        return plain("print('said', rank)")

    def _list(self, _: int) -> Line:
        name = self._name()
        return plain(f"{name} = [{self.expression()}]; {name}.append({self.expression()})")

    def _define(self, _: int) -> Line:
        name, number = self._random.choice(FUNCTIONS), self._random.randrange(10)
        return plain(f"def {name}(x):\n    return x + rank + {number}")

    def _await(self, _: int) -> Line:
        return Line("import asyncio\nawait asyncio.sleep(0)", "import asyncio")

    def _shell(self, _: int) -> Line:
        return Line("!echo said aloud {rank}", "print(f'said aloud {rank}')")

    def _raise(self, num_ranks: int) -> Line:
        ranks, number = self._ranks(num_ranks), self._random.randrange(100)
        forms = [f"raise ValueError('no {number}')", "1 / 0", f"assert False, 'never {number}'", "{}['key']"]
        return plain(f"if rank in {ranks}: {self._random.choice(forms)}")

    def _delete(self, _: int) -> Line:
        return plain(f"del {self._name()}")

    def _end(self, num_ranks: int) -> Line:
        ranks = self._ranks(num_ranks)
        how = self._random.choice(["os._exit(3)", "os.kill(os.getpid(), 9)"])
        return Line(f"import os\nif rank in {ranks}: {how}", f"import os\nif rank in {ranks}: raise Died")

    def _exit(self, num_ranks: int) -> Line:
        return plain(f"import sys\nif rank in {self._ranks(num_ranks)}: sys.exit(2)")

    def _meet(self, _: int) -> Line:
        name, number = self._name(), self._random.randrange(5)
        sums = f"_t := torch.ones(1) * (rank + {number}), dist.all_reduce(_t, group=group), int(_t.item())"
        text = f"import torch, torch.distributed as dist\n{name} = ({sums})[2]"
        return Line(text, f"{name} = sum([r + {number} for r in _ranks])")

    def script(self) -> Line:
        """Process groups of its own, which all ranks make, and destroy at the end; or leave, as one that fails does."""
        meets = self._meet(0)
        begin, end = "__import__('torch').distributed.init_process_group()", "dist.destroy_process_group()"
        steps = [begin, meets.text.replace(", group=group", "")]
        if self._random.random() < 0.3:
            steps.append(_TRAINS)
        if self._random.random() < 0.6:
            steps.append(end)
        return Line("\n".join(steps), meets.here)


_TRAINS = """_net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
for _ in range(3): _net(torch.ones(1, 2)).sum().backward()"""
"""A model outlives the groups of its script, until the next one takes its name."""


def plain(text: str) -> Line:
    """A line that does the same here."""
    return Line(text, text)


_SAID = re.compile(r"^ *(?:m\d+ +)?([\d,:-]+) │ (.*)$")
"""Where several meshes are up, what actors say has the name of theirs in front."""


def said_in(text: str) -> list[tuple[int, str]]:
    """Who said what in the output of a cell, by rank, the lines of a rank in their order."""
    found: list[tuple[int, str]] = []
    for line in text.splitlines():
        if match := _SAID.match(line):
            found += [(rank, match[2]) for rank in ranks_of(match[1])]
    return sorted(found, key=lambda one: one[0])


def ranks_of(label: str) -> Sequence[int]:
    """The ranks of a label.

    Example:
        >>> ranks_of("0-4:2,7")
        [0, 2, 4, 7]
    """
    ranks: list[int] = []
    for part in label.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        ranks += range(int(first), int(last or first) + 1, int(step or 1))
    return ranks
