"""The call under a cell, over the same ping-pong in C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median

from echo import Echo
from floor import Floor, compiled
from measure import Row, check, medians, ratio

from meshbook.kernel.mesh import Mesh

SIZES = (1, 4, 8)
MOST = 1.8


def measure(is_quick: bool) -> Iterator[Row]:
    program = compiled()
    if program is None:
        print("call: skipped, there is no C compiler (cc) for the floor it is measured against")
        return
    rounds, repeats = (50, 3) if is_quick else (300, 15)
    with ExitStack() as stack:
        meshes = {size: stack.enter_context(Mesh.up(f"call{size}", {"rank": size}, path=sys.path)) for size in SIZES}
        floors = {size: stack.enter_context(Floor(program, size)) for size in SIZES}
        works: dict[str, Callable[[], float]] = {}
        for size, mesh in meshes.items():
            works[f"call {size}"] = batch(echo_on(mesh), rounds)
            works[f"run {size}"] = batch(run_on(mesh), rounds)
            works[f"floor {size}"] = lambda floor=floors[size]: floor.seconds(rounds)
        medians(1, works)
        times = medians(repeats, works)
    for size in SIZES:
        floor = times[f"floor {size}"]
        yield ratio(f"call of an endpoint, {size} rank{'s' * (size > 1)}", times[f"call {size}"], floor, "in C", MOST)
    for size in SIZES:
        floor = times[f"floor {size}"]
        yield ratio(f"  a cell without a notebook, {size}", times[f"run {size}"], floor, "in C", None)


def echo_on(mesh: Mesh) -> Callable[[], None]:
    """A call of a trivial endpoint on all ranks, checked."""
    echo = mesh.spawn("echo", Echo).echo
    expected = [7] * len(mesh)

    def once() -> None:
        check(echo.call(7).get().values() == expected, "an endpoint gave back something else")

    return once


def run_on(mesh: Mesh) -> Callable[[], None]:
    """A trivial cell on all ranks, up to its outcomes' bytes."""

    def once() -> None:
        progress = mesh.run("1").finished.get().progress
        if len(progress.outcomes) != len(mesh) or progress.failed:  # to write it out costs more than a rank does
            check(False, f"a cell came to {progress}")

    return once


def batch(work: Callable[[], None], rounds: int) -> Callable[[], float]:
    """The median of so many in a row: as the C program counts."""

    def measured() -> float:
        times: list[float] = []
        for _ in range(rounds):
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
        return median(times)

    return measured
