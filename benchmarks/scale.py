"""What one more rank costs the controller, in its own CPU: of a call and of a cell, on ranks here and on two hosts.

Hosts are processes on this machine, so the wall time here is that of ranks that share its cores. CPU is what counts:
the controller is one process, and what it spends is spent on any machine.
"""

from __future__ import annotations

import math
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import mean, median
from typing import Any

import msgspec
from call import echo_on, run_on
from dashboard import HZ, MadeUp, Nobody, Wire
from measure import Row, check, medians, ratio, seconds_text, timed
from scaling import fit

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.outcome import Outcome, Value
from meshbook.kernel.values.results import MeshResult
from meshbook.runtime.engines.monarch_jobs import hosts_of
from meshbook.runtime.session import session
from meshbook.widgets.dashboard import Dashboard
from meshbook.widgets.table import result_html

SIZES = (8, 32, 128, 256, 512)
ON_HOSTS = 8
"""Ranks that are also divided among other numbers of hosts; few, so that all of a host answer in one message here."""

SHOWN = (1000, 10_000, 100_000)
"""Ranks of made-up results."""

LOOKED_AT = ({"dp": 16, "tp": 64}, {"dp": 64, "tp": 64}, {"dp": 128, "tp": 128})
"""Meshes of made-up dashboards."""

Points = Mapping[int, float]
"""Seconds by number."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a mesh has cost: in seconds of the controller's CPU, and of the clock."""

    cpu: Mapping[str, float]
    wall: Mapping[str, float]


def measure(is_quick: bool) -> Iterator[Row]:
    sizes = (4, 8) if is_quick else SIZES
    here = {size: spent(0, size, is_quick) for size in sizes}
    apart = {size: spent(2, size, is_quick) for size in sizes}
    for what in ("call", "cell"):
        slopes: list[float] = []
        for where, by in (("here", here), ("on 2 hosts", apart)):
            points = {size: each.cpu[what] for size, each in by.items()}
            slopes.append(fit(points).each)
            yield line(f"{what} {where}, CPU a rank", points)
            yield line("  wall", {size: each.wall[what] for size, each in by.items()})
        yield Row("  a rank of hosts over one here", "", "", slopes[1] / slopes[0], "x", 1.0)
    yield line("idle second on 2 hosts, CPU a rank", {size: each.cpu["idle"] for size, each in apart.items()})
    few = {number: spent(number, ON_HOSTS, is_quick) for number in ((1,) if is_quick else (1, 4))}
    few[2] = apart[ON_HOSTS]
    for what in ("cell", "idle"):
        yield line(f"{what}, {ON_HOSTS} ranks, CPU a host", {number: each.cpu[what] for number, each in few.items()})
    for what, is_equal in (("equal", True), ("different", False)):
        shown = {size: to_show(outcomes(size, is_equal)) for size in (SHOWN[:2] if is_quick else SHOWN)}
        yield line(f"result, all {what}, a rank", shown)
    looks = {math.prod(axes.values()): HZ * a_look(axes, 5 if is_quick else 40) for axes in LOOKED_AT}
    yield line("dashboard, a second, a rank", looks)
    yield from over_monarch(5 if is_quick else 60)


def line(name: str, points: Points) -> Row:
    """The line through these, its slope as the figure."""
    told = ", ".join(f"{size}: {seconds_text(seconds)}" for size, seconds in points.items())
    return Row(name, str(fit(points)), told, fit(points).each * 1e6, "us")


def spent(num_hosts: int, size: int, is_quick: bool) -> Spent:
    """On a mesh of this size, on so many hosts; 0: on none."""
    engine = session().use_hosts(num_hosts) if num_hosts else "local"
    axes, rounds = {"rank": size}, 3 if is_quick else max(8, 1500 // size)
    with Mesh.up(f"scale{size}", axes, engine=engine, backend="none", ready_timeout=120, path=sys.path) as mesh:
        works = {
            "call": (echo_on(mesh), rounds),
            "cell": (run_on(mesh), rounds),
            "idle": (partial(time.sleep, 0.1 if is_quick else 1.0), 2),
        }
        taken = {what: each_time(*work) for what, work in works.items()}
    if num_hosts:
        session().release(session().engine(engine))
    return Spent({what: cpu for what, (cpu, _) in taken.items()}, {what: wall for what, (_, wall) in taken.items()})


def each_time(work: Callable[[], None], rounds: int) -> tuple[float, float]:
    """CPU and wall of the work: the median of three times so many."""
    taken: list[tuple[float, float]] = []
    work()
    for _ in range(3):
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(rounds):
            work()
        taken.append(((time.process_time() - cpu) / rounds, (time.perf_counter() - wall) / rounds))
    return median(cpu for cpu, _ in taken), median(wall for _, wall in taken)


def outcomes(size: int, is_equal: bool) -> list[bytes]:
    """What ranks that are not there have answered."""
    return [msgspec.msgpack.encode(Outcome(Value("float", repr(0.5 if is_equal else n / 7)))) for n in range(size)]


def to_show(answers: list[bytes]) -> float:
    """CPU of a result as text and HTML: the median of three."""
    size, seconds, taken = len(answers), dict.fromkeys(range(len(answers)), 0.001), list[float]()
    for _ in range(3):
        axes, values = {"dp": size}, dict(enumerate(answers))
        started = time.process_time()
        result = MeshResult(axes, range(size), values, seconds, {}, pickle.loads, result_html, "r")
        text = result._repr_mimebundle_()["text/plain"]
        taken.append(time.process_time() - started)
        check(f"ranks 0-{size - 1}" in text or "rank 0" in text, f"a result of {size} ranks is told as {text[:80]}")
    return median(taken)


def a_look(axes: Mapping[str, int], looks: int) -> float:
    """CPU of a look of a dashboard in which every rank has changed."""
    source = MadeUp(axes)
    dashboard, wire = Dashboard("made up", axes, source, source.meters, Nobody()), Wire()
    dashboard.send = wire.send
    taken: list[float] = []
    for look in range(looks):
        source.refresh(0.0)
        started = time.process_time()
        dashboard.on_look(source.facts, look / HZ)
        taken.append(time.process_time() - started)
    check(len(wire.sizes) > looks // 2, "a dashboard is silent")
    return mean(taken)


def over_monarch(repeats: int) -> Iterator[Row]:
    """A cell on eight ranks of two hosts that Monarch placed, over its own call to an actor on each of the two."""
    if find_spec("monarch") is None:
        print("scale: Monarch is not installed, so nothing is measured beside it", file=sys.stderr)
        return
    with ExitStack() as stack:
        hosts, end = hosts_of("process", 2, {}, 60.0)
        stack.callback(end)
        procs = hosts.spawn_procs(per_host={"procs": 1})
        stack.callback(lambda: procs.stop().get())
        actors = procs.spawn("echo", monarch_echo())
        engine = session().use_monarch(hosts)
        stack.callback(lambda: session().release(session().engine(engine)))
        mesh = stack.enter_context(
            Mesh.up("scaled", {"hosts": 2, "gpus": 4}, engine=engine, backend="none", path=sys.path)
        )

        def monarchs() -> None:
            check(
                [value for _, value in actors.echo.call(7).get().items()] == [7, 7], "Monarch gave back something else"
            )

        works = {"cell": timed(run_on(mesh)), "Monarch": timed(monarchs)}
        medians(3, works)
        times = medians(repeats, works)
    name = "cell on 2 hosts of 4 ranks"
    yield ratio(name, times["cell"], times["Monarch"], "Monarch's own call to 2 actors", 2.0)


def monarch_echo() -> Any:
    """An actor of Monarch; made here, so that it travels by value: its processes do not find this folder."""
    actor: Any = import_module("monarch.actor")

    class Echo(actor.Actor):
        @actor.endpoint
        def echo(self, value: int) -> int:
            return value

    return Echo
