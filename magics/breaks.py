"""`%mesh break`: breakpoints that are set from the notebook, also in ranks at work, without a change to the code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..kernel.debug.breakpoints import Breakpoint, lines_with_code, target_of
from ..kernel.debug.functions import Doubt
from ..kernel.debug.points import Points
from ..kernel.mesh import Mesh
from ..runtime.ranges import named
from .book import Book
from .inquiries import MeshOption
from .options import Command, GrammarError, Option, count, tokens_of

_IF = re.compile(r"(?:^|\s)if\s+(.+)$")

COST = (
    "on Python 3.11 calls of Python functions are slower while a breakpoint is armed (2 to 10 times), lines of its own "
    "function more so (4 to 15 times), and only the main thread stops; from 3.12 on other lines cost nothing"
)


def numbers(text: str) -> tuple[int, ...]:
    """Numbers of breakpoints, `1,3`; nothing for `all`."""
    return () if text == "all" else tuple(count(part) for part in text.split(","))


@dataclass(frozen=True, slots=True)
class Break:
    """Set a breakpoint: FILE:LINE, CELL:LINE (such as 5:3) or FUNC, on all ranks or some; without words, list them."""

    where: str = ""
    selector: str = ""
    condition: str = ""
    mesh: MeshOption = None
    clear: Annotated[tuple[int, ...] | None, Option("--clear", "forget these, or all", "N[,N]", numbers)] = None
    off: Annotated[tuple[int, ...] | None, Option("--off", "pass these over, or all", "N[,N]", numbers)] = None
    on: Annotated[tuple[int, ...] | None, Option("--on", "stop at these again, or at all", "N[,N]", numbers)] = None


def read_break(line: str, command: Command) -> Break:
    """The condition stands as it was typed, behind `if`.

    >>> read_break("break 5:3 dp=1 if loss != loss", Command("%mesh break", Break, ""))
    Break(where='5:3', selector='dp=1', condition='loss != loss', mesh=None, clear=None, off=None, on=None)
    """
    condition = _IF.search(line)
    head = line[: condition.start()] if condition else line
    words = [token.text for token in tokens_of(head)][1:]
    if words[:1] == ["cell"] and len(words) > 1:
        words[:2] = [f"cell {words[1]}"]
    where, selector = "", list[str]()
    if words and not words[0].startswith("-"):
        where, *words = words
        while words and not words[0].startswith("--") and words[0] != "-m":
            selector.append(words.pop(0))
    if condition and not where:
        raise GrammarError("%mesh break: write the place in front of the condition, such as 5:3 if x > 1")
    return command.read(words, where=where, selector=" ".join(selector), condition=condition[1] if condition else "")


def set_break(book: Book, args: Break, cells: Sequence[str]) -> None:
    """Set, change or list breakpoints, and say what is there now. `cells` are the notebook's, as they were typed."""
    mesh = book.get(args.mesh)
    if args.where:
        made, doubts = _add(mesh, book, args)
        if note := note_of(made, cells) or doubt_text(made, doubts):
            print(note)
        return
    changes: list[tuple[tuple[int, ...] | None, Callable[[Collection[int]], object]]] = [
        (args.clear, mesh.points.remove),
        (args.off, lambda chosen: mesh.points.switch(chosen, on=False)),
        (args.on, lambda chosen: mesh.points.switch(chosen, on=True)),
    ]
    for chosen, change in changes:
        if chosen is not None:
            change(_existing(mesh.points, chosen))
    print(points_text(mesh.points))


def _add(mesh: Mesh, book: Book, args: Break) -> tuple[Breakpoint, dict[int, Doubt]]:
    if args.condition:
        try:
            compile(args.condition, "<condition>", "eval")
        except SyntaxError as error:
            raise GrammarError(f"%mesh break: the condition {args.condition!r} is no expression: {error.msg}") from None
    try:
        where = target_of(args.where)
    except ValueError as error:
        raise GrammarError(f"%mesh break: {error}") from None
    ranks = book.select(args.selector, mesh) if args.selector else None
    made, doubts = mesh.points.add(ranks, **where, condition=args.condition)
    on = "all ranks" if ranks is None else named(ranks)
    print(f"breakpoint {made.number}: {made.text}, on {on}")
    if sys.version_info < (3, 12) and len(mesh.points.numbers) == 1:
        print(COST)
    return made, doubts


def note_of(point: Breakpoint, cells: Sequence[str]) -> str:
    """That there is no code in its line, or no such file here: it would stop nowhere, without a word.

    A file may be on other hosts only, or may be still to be written.

    >>> note_of(Breakpoint(1, cell="cell 1", line=2), ["", "%%on_mesh\\n# words\\nx = 1"])
    'note: line 2 has no code, so nothing stops there: the next that has is line 3'
    >>> note_of(Breakpoint(1, cell="cell 1", line=3), ["", "m = %mesh up dp=2"])
    'note: line 3 has no code, so nothing stops there: 1 is the last'
    """
    number = point.cell.removeprefix("cell ")
    text = ""
    if number.isdigit():
        if int(number) >= len(cells):
            return f"note: there is no {point.cell} yet: nothing stops until it runs"
        text = cells[int(number)]
    elif point.file and (path := Path(point.file)).is_file():
        text = path.read_text(errors="replace")
    elif point.file and not _is_known(point.file):
        return f"note: no {point.file} is found here: nothing stops until ranks run a file whose path ends so"
    lines = lines_with_code(text) or range(1, text.count("\n") + 2)  # what is no plain Python may have code anywhere
    if not text or point.line in lines:
        return ""
    later = next(
        (f"the next that has is line {line}" for line in lines if line > point.line), f"{lines[-1]} is the last"
    )
    return f"note: line {point.line} has no code, so nothing stops there: {later}"


def doubt_text(point: Breakpoint, doubts: Mapping[int, Doubt]) -> str:
    """What ranks doubt of it: that they have no such function, or that lines of the file are others to them.

    >>> doubt_text(Breakpoint(1, file="net.py", line=3), {0: "", 1: "old"})
    'note: rank 1 runs an older net.py, whose lines count: `%mesh autoreload on` loads what was edited since'
    >>> doubt_text(Breakpoint(1, function="Net.step"), {0: "unknown", 1: ""})
    ''
    """
    if old := [rank for rank, doubt in doubts.items() if doubt == "old"]:
        who = f"{named(old)} {'runs' if len(old) == 1 else 'run'} an older {point.file}, whose lines count"
        return f"note: {who}: `%mesh autoreload on` loads what was edited since"
    if not doubts or set(doubts.values()) != {"unknown"}:
        return ""
    if "." in point.function:
        return f"note: no code of Python that {point.function} stands for is loaded there: nothing stops"
    return f"note: your code there has no {point.function} yet: it stops where a library has one"


def _is_known(file: str) -> bool:
    """Is there such a file where modules are found, or one that was imported here whose path ends so?"""
    if any(Path(folder, file).is_file() for folder in sys.path):
        return True
    return any(str(getattr(module, "__file__", None)).endswith(f"/{file}") for module in list(sys.modules.values()))


def _existing(points: Points, chosen: tuple[int, ...]) -> tuple[int, ...]:
    if missing := set(chosen) - set(points.numbers):
        known = ", ".join(map(str, points.numbers)) or "none"
        raise GrammarError(f"%mesh break: there is no breakpoint {min(missing)} (there are {known})")
    return chosen or points.numbers


def points_text(points: Points) -> str:
    """The breakpoints, a line each."""
    lines: list[str] = []
    for point, hits in points.list():
        on = "all ranks" if point.ranks is None else named(point.ranks)
        times = sum(hits.values())
        told = f", hit {times:,} time{'s' * (times != 1)} on {named(sorted(hits))}" if hits else ""
        lines.append(f"{point.what.number}  {'' if point.what.is_on else 'off  '}{point.what.text}, on {on}{told}")
    return "\n".join(lines) or "no breakpoints: `%mesh break 5:3` sets one in line 3 of cell 5"
