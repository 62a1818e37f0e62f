"""Ctrl-C into programs on distributed tensors: wherever it hits, ranks stay in step, and all works at once after it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import torch
import torch.distributed as dist

from meshbook.runtime import Actor, MeshFailure, endpoint
from meshbook.runtime.tensors import RemoteException, inspect, remote

from ..chooser import Operation
from ..story import Spawn
from ..verdicts import Violation
from .shards import ROOTS, Place

GRID, PAIR = map(Place, ROOTS)

PATIENCE = 10.0
"""Seconds until a press that nobody has heard is missed."""

LATEST = 0.12
"""Seconds into a program at which the press comes at the latest."""


def slowly(x: torch.Tensor, seconds: float) -> torch.Tensor:
    time.sleep(seconds)
    return x + 1


def slowly_together(x: torch.Tensor, group: dist.ProcessGroup, seconds: float) -> torch.Tensor:
    time.sleep(seconds)
    total = x.clone()
    dist.all_reduce(total, group=group)
    return total


class Giver(Actor):
    """Computes from a tensor, in a message of its own."""

    @endpoint(propagate=lambda x: x * 2)
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.002)
        return x * 2


class Presses:
    """Programs that are interrupted: a `Story` whose operations are whole programs, each with a press of Ctrl-C."""

    def __init__(self, seed: int, spawn_procs: Spawn) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
        self._random = Random(seed)
        self._grid, self._pair = (spawn_procs(axes) for axes in ROOTS.values())
        self._givers = self._grid.spawn("givers", Giver)
        self._groups = {axis: self._grid.process_group(axis) for axis in ROOTS["grid"]}
        self._slowly = remote(slowly, propagate=lambda x, _: x + 1)
        self._together = remote(slowly_together, propagate=lambda x, *_: x + 1)
        self._faults: list[str] = []
        self._begin_grid()
        self._begin_pair()

    _x: Any  # distributed tensors, as the others
    _z: Any
    _count: Any
    _pair_count: Any

    def _begin_grid(self) -> None:
        with self._grid.activate():
            self._count, self._x = torch.zeros(1), torch.ones(3) * self._grid.rank_tensor("dp")

    def _begin_pair(self) -> None:
        with self._pair.activate():
            self._pair_count, self._z = torch.zeros(1), torch.ones(3)

    def next(self) -> Operation:
        words = [self._word() for _ in range(self._random.randint(1, 40))]
        return Operation("run", (self._random.random() * LATEST, words))

    def _word(self) -> Operation:
        axis, index, seconds = self._random.choice(["dp", "tp"]), self._random.randrange(2), self._random.random() / 100
        words: dict[str, tuple[Any, ...]] = {
            "count": (),
            "count_max": (),
            "pair_count": (),
            "remainder": (),
            "slow": (seconds,),
            "reduce": (axis,),
            "together": (axis, seconds / 2),
            "move": (index,),
            "back": (),
            "give": (),
            "write_one": (),
        }
        name = self._random.choice(list(words))
        return Operation(name, words[name])

    def do(self, operation: Operation) -> None:
        self.run(*operation.args)
        self._look()
        if self._faults:
            raise Violation("\n".join(self._faults))

    def on_fault(self, failure: MeshFailure) -> None:
        """Neither a process nor an actor fails by an interrupt."""
        self._faults.append(f"nobody expected {failure.report()}")

    def close(self) -> None:
        for procs in (self._grid, self._pair):
            procs.stop().get(20)

    def run(self, press_at: float, words: Sequence[Operation]) -> None:
        """Compute all that, and be interrupted after so many seconds, in the midst of it or afterwards."""
        with contextlib.suppress(KeyboardInterrupt), _pressed_after(press_at):
            try:
                for word in words:
                    getattr(self, word.name)(*word.args)
                inspect([self._x, self._count])
                inspect([self._pair_count, self._z])
            except RemoteException as error:
                if not _is_of_interrupt(error):
                    raise
            threading.Event().wait(PATIENCE)
            raise Violation("the press was not heard")

    # The words of programs.

    def count(self) -> None:
        self._count.add_(1)

    def count_max(self) -> None:
        self._count.reduce_("dp", "max")

    def pair_count(self) -> None:
        self._pair_count.add_(1)

    def remainder(self) -> None:
        self._x = self._x.remainder(7) + 1

    def slow(self, seconds: float) -> None:
        self._x = self._slowly(self._x, seconds)

    def reduce(self, axis: str) -> None:
        self._x = self._x.reduce(axis, "max")

    def together(self, axis: str, seconds: float) -> None:
        self._x = self._together(self._x, self._groups[axis], seconds)

    def move(self, index: int) -> None:
        self._z = self._x.slice_mesh(dp=index).to_mesh(self._pair)

    def back(self) -> None:
        self._x = self._z.to_mesh(self._grid)

    def give(self) -> None:
        self._x = self._givers.twice.rref(self._x)

    def write_one(self) -> None:
        self._x.slice_mesh(dp=1, tp=1).add_(1)

    # What must be true afterwards.

    def _look(self) -> None:
        """All ranks have done the same; what an interrupt has spoilt is begun anew; and all ways still work."""
        if not _is_in_step(self._count, GRID) or _is_spoilt(self._x):
            self._begin_grid()
        if not _is_in_step(self._pair_count, PAIR) or _is_spoilt(self._z):
            self._begin_pair()
        with self._grid.activate():
            four: Any = torch.ones(2)
            four = four.reduce(())
        _must_be(inspect(four, dp=1, tp=1), 4, "a sum over all ranks")
        moved = four.slice_mesh(dp=1).to_mesh(self._pair)
        _must_be(inspect(moved, tp=1), 4, "what was moved")
        _must_be(inspect(moved.to_mesh(self._grid), dp=1, tp=0), 4, "what was moved back")
        _must_be(inspect(self._givers.twice.rref(four)), 8, "what actors made of it")


@contextlib.contextmanager
def _pressed_after(seconds: float) -> Iterator[None]:
    """Ctrl-C once, so many seconds from now; not over before it has come."""
    press = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    former, sys.unraisablehook = sys.unraisablehook, _press_again
    try:
        press.start()
        yield
    finally:
        press.join()
        sys.unraisablehook = former


def _press_again(swallowed: sys.UnraisableHookArgs) -> None:
    """Python itself swallows what hits callbacks of weak references, of its own and of torch's."""
    if swallowed.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(swallowed)
        return
    threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGINT)).start()


def _is_of_interrupt(error: RemoteException) -> bool:
    return "KeyboardInterrupt" in str(error)


def _is_spoilt(tensor: Any) -> bool:
    try:
        inspect(tensor)
    except RemoteException as error:
        if not _is_of_interrupt(error):
            raise
        return True
    return False


def _is_in_step(count: Any, place: Place) -> bool:
    """Whether it is there; `Violation` if ranks have counted differently."""
    if _is_spoilt(count):
        return False
    counts = [inspect(count, dict(zip(place.axes, coords, strict=True))).item() for coords in place.coords]
    if len(set(counts)) > 1:
        raise Violation(f"ranks of {place} have counted to {counts}")
    return True


def _must_be(tensor: torch.Tensor, number: float, what: str) -> None:
    if set(tensor.tolist()) != {number}:
        raise Violation(f"{what} is {tensor.tolist()}, not {number}")
