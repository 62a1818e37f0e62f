"""From nothing to the first torch cell answered by all ranks, over one `import torch` of a fresh Python."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import psutil
from measure import Row, check, medians, ratio, seconds_text, timed

from meshbook.kernel import zygote
from meshbook.kernel.mesh import Mesh
from meshbook.runtime.engines.local import LocalEngine
from meshbook.runtime.session import session

TORCH = "import torch"

COLD = 1.25
WARM = {8: 0.1, 64: 0.7, 256: 2.0}
"""By number of ranks: at most so many times one `import torch`."""

OPTIMIZER = "torch.optim.SGD(torch.nn.Linear(2, 2).parameters()).step()"

MEMORY = 8.0
"""MB of its own that an idle rank may have."""


def measure(is_quick: bool) -> Iterator[Row]:
    sizes = [8] if is_quick else list(WARM)
    complete()
    up(8)  # the zygote's next fork is like all later ones
    works = {"cold": cold, "import": timed(import_torch), **{str(size): lambda n=size: up(n) for size in sizes}}
    times = medians(1 if is_quick else 3, works)
    yardstick = times["import"]
    yield ratio("spawn 8 ranks, cold", times["cold"], yardstick, TORCH, COLD)
    for size in sizes:
        yield ratio(f"spawn {size} ranks, zygote warm", times[str(size)], yardstick, TORCH, WARM[size])
    yield from memory()


def complete() -> None:
    """Wait until the zygote has imported what can wait, as one has who types his next cell."""
    zygote.warm()
    engine = session().engine("local")
    assert isinstance(engine, LocalEngine)
    check(engine.completed(60), "the zygote has not imported all within 60 s")


def import_torch() -> None:
    subprocess.run([sys.executable, "-c", TORCH], check=True)


def cold() -> float:
    """Seconds from `%load_ext` to the first answers, in a process of its own."""
    program = Path(__file__).with_name("cold.py")
    told = subprocess.run([sys.executable, str(program), "8"], check=True, capture_output=True, text=True)
    return float(told.stdout.split()[-1])


def up(num_ranks: int) -> float:
    """Seconds until a new mesh has answered its first torch cell."""
    started = time.perf_counter()
    with Mesh.up("spawn", {"dp": num_ranks}, path=sys.path) as mesh:
        progress = mesh.run("import torch\nassert torch.ones(3).sum() == 3").finished.get().progress
        seconds = time.perf_counter() - started
        check(not progress.failed and len(progress.outcomes) == num_ranks, f"{num_ranks} ranks: {progress}")
    return seconds


def memory() -> Iterator[Row]:
    """What a rank has for itself: what it does not share with the zygote and the other ranks."""
    with Mesh.up("memory", {"dp": 8}, path=sys.path) as mesh:
        yield Row("unique memory of an idle rank", "", "", unique_memory(mesh), "MB", MEMORY)
        mesh.run("import torch\ntorch.ones(3).sum()").finished.get()
        yield Row("  after its first torch cell", "", "", unique_memory(mesh), "MB")
        started = time.perf_counter()
        mesh.run(OPTIMIZER).finished.get()
        ours = seconds_text(time.perf_counter() - started)
        yield Row("  after its first optimizer", ours, "", unique_memory(mesh), "MB")


def unique_memory(mesh: Mesh) -> float:
    pids = [state.pid for state in mesh.roster.states.values()]
    return fmean(psutil.Process(pid).memory_full_info().uss for pid in pids) / 2**20
