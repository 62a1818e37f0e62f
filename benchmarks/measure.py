"""What every benchmark gives: rows of a table, each our number beside a yardstick that was measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

WIDTHS = (36, 12, 40, 17, 19, 5, 5)
"""Of the columns of the table."""


class Broken(Exception):
    """Not slow but wrong: an answer that is not the right one, a line that is lost."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `figure` is what is held against `target`: at most that, or with `at_least` at least."""

    name: str
    ours: str
    yardstick: str
    figure: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """`ok` or `over` (`under` where more is better); nothing for a row that is only told."""
        if self.target is None:
            return ""
        if self.at_least:
            return "ok" if self.figure >= self.target else "under"
        return "ok" if self.figure <= self.target else "over"

    def text(self, load: float) -> str:
        """The row as the table prints it; `load` is the machine's before it was measured."""
        bound = "" if self.target is None else f"{'>=' if self.at_least else '<='} {amount(self.target)} {self.unit}"
        figure = f"{amount(self.figure)} {self.unit}"
        return columns(self.name, self.ours, self.yardstick, figure, bound, self.verdict, f"{load:.1f}")


def columns(*cells: str) -> str:
    """Cells side by side."""
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def heading() -> str:
    """The first two lines of the table."""
    names = columns("what", "ours", "yardstick", "figure", "target", "", "load")
    return f"{names}\n{columns(*('-' * width for width in WIDTHS))}"


def ratio(name: str, ours: float, yardstick: float, of_what: str, target: float | None) -> Row:
    """Our seconds over those of the yardstick."""
    return Row(name, seconds_text(ours), f"{seconds_text(yardstick)} {of_what}", ours / yardstick, "x", target)


def seconds_text(seconds: float) -> str:
    """A time with its unit.

    Example:
        >>> seconds_text(1.5), seconds_text(0.0123), seconds_text(0.000045)
        ('1.50 s', '12.30 ms', '45.0 us')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """The work as a function that gives the seconds it took."""

    def measured() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return measured


def medians(repeats: int, works: Mapping[str, Callable[[], float]], pause: float = 0.0) -> dict[str, float]:
    """The median of what each work gives, in turns: what else the machine does then meets all of them alike."""
    taken = samples(repeats, works, pause)
    return {name: median(times) for name, times in taken.items()}


def samples(repeats: int, works: Mapping[str, Callable[[], float]], pause: float = 0.0) -> dict[str, list[float]]:
    """What each work gives, `repeats` times, in turns.

    The seconds of `pause` before each are for threads that go on for a while after their own work: it would be slow
    in the other's time.
    """
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            time.sleep(pause)
            taken[name].append(work())
    return taken


def check(is_right: bool, what: str) -> None:
    """Raises `Broken` with `what` is wrong, unless it is right."""
    if not is_right:
        raise Broken(what)


def amount(number: float) -> str:
    """A figure as the table has it."""
    if number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.2f}".rstrip("0").rstrip(".") if number >= 0.1 else f"{number:.3f}"
