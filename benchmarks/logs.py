"""Ranks that print a lot: how fast it comes, whether all of it is there, how much of it the notebook keeps."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from statistics import median

from front_end import Notebook
from measure import Row, check, seconds_text

from meshbook.kernel.drive import Drive
from meshbook.kernel.driver import drive
from meshbook.kernel.mesh import Mesh
from meshbook.kernel.run import Run
from meshbook.kernel.stopping.patience import Patience
from meshbook.widgets.live import Live

RANKS = 8
LEAST = 500_000
"""Lines a second that come to the controller."""

BOUND = 64 * 1024
"""Characters that one cell may put into a notebook."""

FIRST_LINE = 100.0
"""Milliseconds from the print on a rank to the message that a front end shows."""

SPEAK = "%%on_mesh\nimport time\n{before}\nprint(time.time(), flush=True)\ntime.sleep(0.3)"

PRINT = "for i in range({lines}):\n    print(f'rank {{rank}} step {{i}} loss 0.123456 gradient norm 1.2345 of 20000')"
LINE = "rank {rank} step {step} loss 0.123456 gradient norm 1.2345 of 20000"


def measure(is_quick: bool) -> Iterator[Row]:
    lines, repeats = (2_000, 1) if is_quick else (20_000, 5)
    with Mesh.up("logs", {"rank": RANKS}, path=sys.path) as mesh:
        kept, shown, alone, sizes = [], [], [], []
        mesh.run("1").finished.get()
        for _ in range(repeats):
            kept.append(logged(mesh, lines))
            alone.append(printed_alone(RANKS * lines))
            seconds, size = folded(mesh, lines)
            shown.append(seconds)
            sizes.append(size)
    total = RANKS * lines
    bare = f"{total / median(alone):,.0f}/s one process alone"
    yield Row(f"{RANKS} ranks print {lines:,} lines", "all logged", bare, total / median(kept), "lines/s", LEAST, True)
    yield Row("  while a notebook shows them", "all logged", "", total / median(shown), "lines/s")
    yield Row(
        "  what the notebook keeps",
        f"{max(sizes):,} chars",
        f"{total * len(LINE):,} chars",
        max(sizes) / BOUND,
        "x 64 Ki",
        1.0,
    )
    yield first_line(3 if is_quick else 15)


def first_line(repeats: int) -> Row:
    """From the print on a rank to the front end, while the cell runs."""
    delays: dict[str, list[float]] = {"one after the other": [], "all at once": []}
    with Notebook() as notebook:
        notebook.execute(f"%load_ext meshbook\n%mesh up -n {RANKS} --pg none --device cpu")
        notebook.execute("%%on_mesh\nimport time\nprint('warm')")
        for _ in range(repeats):
            for name, before in zip(delays, ("time.sleep(0.02 * rank)", "pass"), strict=True):
                done = notebook.execute(SPEAK.format(before=before))
                said = [float(line.partition(" │ ")[2]) for line in done.text.splitlines()]
                check(len(said) > 0, f"the ranks said {done}")
                delays[name].append(done.came - min(said))
    worst = max(max(times) for times in delays.values())
    told = ", ".join(f"{name}: {seconds_text(median(times))}" for name, times in delays.items())
    slower = max(median(times) for times in delays.values())
    name = "first line of a printing rank"
    return Row(name, f"worst {worst * 1e3:.0f} ms", told, slower * 1e3, "ms", FIRST_LINE)


def logged(mesh: Mesh, lines: int) -> float:
    """Seconds until all lines of all ranks are in the controller's logs, with nobody looking."""
    started = time.perf_counter()
    run = mesh.run(PRINT.format(lines=lines))
    run.finished.get()
    seconds = time.perf_counter() - started
    check_log(mesh, run, lines)
    return seconds


def folded(mesh: Mesh, lines: int) -> tuple[float, int]:
    """The same with a cell's live output: seconds, and how many characters the notebook was given."""
    stage = CountingStage()
    live = Live(stage, range(RANKS))
    started = time.perf_counter()
    run = mesh.run(PRINT.format(lines=lines))
    drive(Drive(mesh, run, live, Patience(time.monotonic())))
    seconds = time.perf_counter() - started
    check_log(mesh, run, lines)
    check(stage.size > 0, "the notebook was shown nothing")
    return seconds, stage.size


def check_log(mesh: Mesh, run: Run, lines: int) -> None:
    """Every line of every rank is in its log, once and in order."""
    check(not run.progress.failed and not run.progress.lost, f"the printing cell came to {run.progress}")
    for rank in range(RANKS):
        expected = "".join(LINE.format(rank=rank, step=step) + "\n" for step in range(lines))
        check(mesh.log(rank, run=run.call) == expected, f"rank {rank}: its log is not what it printed")


def printed_alone(lines: int) -> float:
    """Seconds that `print` takes for as many lines in one process, into nothing."""
    with open(os.devnull, "w") as nothing:
        started = time.perf_counter()
        for i in range(lines):
            print(f"rank 0 step {i} loss 0.123456 gradient norm 1.2345 of 20000", file=nothing)
        return time.perf_counter() - started


class CountingStage:
    """A stage that keeps only how much was put on it."""

    def __init__(self) -> None:
        self.size = 0

    can_update = False

    def write(self, text: str, stream: str = "stdout") -> None:
        self.size += len(text)

    def display(self, *_: object, **__: object) -> None:
        raise AssertionError("nobody displays anything here")

    def clear(self, wait: bool = False) -> None:
        raise AssertionError("nobody clears anything here")

    def leave(self) -> None: ...
