"""A large tensor to all ranks and from one, over one copy of it in memory."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator

import torch
from measure import Row, check, medians, ratio, timed

from meshbook.kernel.mesh import Mesh

RANKS = 8
MOST_PUSH = 2.5
MOST_PULL = 3.0


def measure(is_quick: bool) -> Iterator[Row]:
    megabytes, repeats = (8, 3) if is_quick else (64, 15)
    count = (megabytes << 20) // 4
    with Mesh.up("payload", {"rank": RANKS}, path=sys.path) as mesh:
        works = {
            "memcpy": timed(memcpy(count)),
            "push": pusher(mesh, count),
            "pull": puller(mesh, count),
        }
        medians(3, works)
        times = medians(repeats, works)
    yield ratio(f"push {megabytes} MB to {RANKS} ranks", times["push"], times["memcpy"], "memcpy", MOST_PUSH)
    yield ratio(f"pull {megabytes} MB from one rank", times["pull"], times["memcpy"], "memcpy", MOST_PULL)


def memcpy(count: int) -> Callable[[], object]:
    """One copy by one thread between two buffers that are in memory already."""
    source, target = torch.ones(count), torch.zeros(count)
    return lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), 4 * count)


def pusher(mesh: Mesh, count: int) -> Callable[[], float]:
    """Seconds of one push, after which every rank is asked what it got."""
    numbers = itertools.count(1)
    # Only its ends are changed: threads of torch that filled it would still spin while we measure.
    tensor = torch.ones(count)

    def push() -> float:
        number = next(numbers)
        tensor[0] = tensor[-1] = number
        seconds = timed(lambda: mesh.push({"pushed": tensor}))()
        run = mesh.run(f"assert pushed[0] == pushed[-1] == {number} and len(pushed) == {count}").finished.get()
        check(not run.progress.failed and not run.progress.lost, f"a rank did not get push {number}")
        return seconds

    return push


def puller(mesh: Mesh, count: int) -> Callable[[], float]:
    """Seconds of one pull of a tensor that the rank has just changed."""
    numbers = itertools.count(1)
    mesh.run(f"import torch\ntensor = torch.ones({count})").finished.get()

    def pull() -> float:
        number = next(numbers)
        mesh.run(f"tensor[0] = tensor[-1] = {number}").finished.get()
        got = {}
        seconds = timed(lambda: got.update(mesh.pull("tensor", [0])))()
        check(bool(got[0][0] == got[0][-1] == number) and len(got[0]) == count, f"pull {number} gave something else")
        return seconds

    return pull
