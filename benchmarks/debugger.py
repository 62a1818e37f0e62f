"""The debugger: how soon a prompt comes, what a command takes, how soon a rank at work stops, what unused it costs."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from measure import Row, check, seconds_text

from meshbook.kernel.debug.asking import ask_by
from meshbook.kernel.debug.ladder import Rung, enter
from meshbook.kernel.drive import Drive
from meshbook.kernel.driver import drive
from meshbook.kernel.execute import Terse
from meshbook.kernel.mesh import Mesh
from meshbook.kernel.run import Run
from meshbook.kernel.stopping.patience import Patience

RANKS = 8
STOP = "import time\nif rank == 0:\n    then = time.monotonic()\n    breakpoint()"
ALL_STOP = "breakpoint()"
LOOP = "go = True\nwhile go: pass"
COLLECTIVE = (
    "import torch, torch.distributed as dist\nif rank: dist.all_reduce(torch.ones(1))\nelse:\n    while True: pass"
)
COUNT = """
import time
def count(n):
    i = 0
    while i < n:
        i += 1
def timed(n):
    started = time.perf_counter()
    count(n)
    return time.perf_counter() - started
"""


class Typist:
    """Types lines, and notes when it was asked."""

    can_ask = True
    is_beside = False

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = list(lines)
        self.asked: list[float] = []
        self.shown: list[str] = []

    def ask(self, prompt: str, is_secret: bool = False) -> str:
        self.asked.append(time.monotonic())
        return self._lines.pop(0)

    def show(self, text: str) -> None:
        self.shown.append(text)


def measure(is_quick: bool) -> Iterator[Row]:
    repeats = 5 if is_quick else 50
    with Mesh.up("debugger", {"dp": RANKS}, path=sys.path) as mesh:
        talked(mesh, STOP, ["q"])  # imports IPython's debugger
        yield row("a prompt after breakpoint()", [prompt(mesh) for _ in range(repeats)], 50.0)
        yield row("a command of pdb", command(mesh, "p rank", repeats), 10.0)
        yield row(f"a command cast over {RANKS} ranks", command(mesh, "%all p rank", repeats, ALL_STOP), 30.0)
        yield row("a prompt on a rank that loops", attached(mesh, LOOP, repeats, [1]), 30.0, worst=250.0)
        yield row("a prompt on a rank in a collective", attached(mesh, COLLECTIVE, repeats), 300.0)
        yield unused(mesh, 200_000 if is_quick else 10_000_000)


def row(what: str, seconds: list[float], most: float, worst: float | None = None) -> Row:
    median = statistics.median(seconds)
    limit = f" (<= {worst:g} ms)" if worst else ""
    told = f"worst of {len(seconds)}: {seconds_text(max(seconds))}{limit}"
    return Row(what, seconds_text(median), told, median * 1e3, "ms", most)


def talked(mesh: Mesh, source: str, lines: Sequence[str]) -> tuple[Typist, Run]:
    """Run a cell with somebody who types."""
    typist = Typist(lines)
    ask_by(lambda: typist)
    try:
        run = mesh.run(source)
        drive(Drive(mesh, run, Terse(), Patience(time.monotonic())))
    finally:
        ask_by(None)
    check(not run.progress.failed and not run.progress.lost, f"the cell failed: {run.progress}")
    return typist, run


def prompt(mesh: Mesh) -> float:
    typist, _ = talked(mesh, STOP, ["q"])
    return typist.asked[0] - mesh.pull("then", [0])[0]


def command(mesh: Mesh, line: str, repeats: int, source: str = STOP) -> list[float]:
    """From a line that is typed to the next question, which comes with the answer."""
    first = ["%rank 7"] if source is ALL_STOP else []  # so that all have come
    typist, _ = talked(mesh, source, [*first, *[line] * repeats, "q"])
    times = typist.asked[len(first) :]
    return [after - before for before, after in pairwise(times)]


def attached(mesh: Mesh, source: str, repeats: int, ranks: Sequence[int] | None = None) -> list[float]:
    """From `%mesh debug` to a rank that has stopped."""
    rank = 1
    run = mesh.run(source, ranks)
    _wait(lambda: "line" in mesh.where([rank]).get(rank, ""))
    seconds: list[float] = []
    for _ in range(repeats):
        started = time.monotonic()
        found = enter(mesh, [rank])
        seconds.append(time.monotonic() - started)
        check(found == {Rung.LIVE: [rank]}, f"rank {rank} did not stop: {found}")
        stop = mesh.desk.stop_of(rank)
        assert stop is not None
        mesh.desk.answer(stop, "c")
        _wait(lambda: mesh.desk.stop_of(rank) is None)
    mesh.unstick()
    check(run.finished.done(), "the cell did not end")
    return seconds


def unused(mesh: Mesh, num: int) -> Row:
    """A loop on a rank whose debugger was used, over the same loop on one whose was not."""
    talked(mesh, STOP, ["n", "c"])
    for rank in (0, 1):
        mesh.run(COUNT, [rank]).finished.get()
    # The best of several, in turn: what others do on this machine only adds.
    best = {rank: _seconds(mesh, rank, num) for rank in (0, 1)}
    for _ in range(8):
        best = {rank: min(seconds, _seconds(mesh, rank, num)) for rank, seconds in best.items()}
    ratio = best[0] / best[1]
    return Row("a loop after the debugger", seconds_text(best[0]), f"{seconds_text(best[1])} before", ratio, "x", 1.02)


def _seconds(mesh: Mesh, rank: int, num: int) -> float:
    mesh.run(f"seconds = timed({num})", [rank]).finished.get()
    return mesh.pull("seconds", [rank])[rank]


def _wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        check(time.monotonic() < deadline, "it did not come")
        time.sleep(0.001)
