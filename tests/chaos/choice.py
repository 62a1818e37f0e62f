"""Which operation comes next: decided by the seed and by what the model is sure of, never by what ranks did in time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal

from . import operations as ops
from .model import Model
from .operations import TOGETHER, Operation, Ranks, Wait

WAITS: tuple[Wait, ...] = ("barrier", "all_reduce", "mismatch", "sleep", "spin", "lock", "await")
ALONE: tuple[Wait, ...] = ("sleep", "spin", "lock", "await")

NUM_VALUES = 12
"""Few, so that the journal stays short: a restart replays all that is in it."""

MOST_TROUPES = 4

MOST_BACKGROUND = 2


class Choice:
    """Draws operations that make sense in the state of a model. To add a kind, write a method and give it a weight."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._count = 0
        self._makers: dict[Callable[[Model], Operation | None], int] = {
            self._compute: 10,
            self._assign: 10,
            self._read: 10,
            self._collect: 16,
            self._raise: 6,
            self._press: 5,
            self._interrupt: 5,
            self._time_out: 3,
            self._unstick: 4,
            self._kill: 3,
            self._kill_during: 4,
            self._leave: 4,
            self._halt: 3,
            self._halt_during: 2,
            self._start: 5,
            self._finish: 8,
            self._mend: 1,
            self._heal: 8,
            self._restart: 3,
            self._push: 5,
            self._pull: 5,
            self._spawn: 3,
            self._add: 10,
            self._stop_actors: 1,
            self._look: 5,
        }

    def next(self, model: Model) -> Operation:
        makers, weights = list(self._makers), list(self._makers.values())
        while True:
            operation = self._random.choices(makers, weights)[0](model)
            if operation is not None:
                return operation

    def _compute(self, model: Model) -> Operation | None:
        return ops.Compute(self._some(model.free), self._random.randrange(1, 9)) if model.free else None

    def _assign(self, model: Model) -> Operation | None:
        return ops.Assign(self._some(model.free), self._value()) if model.free else None

    def _read(self, model: Model) -> Operation | None:
        return ops.Read(model.free) if model.free else None

    def _collect(self, model: Model) -> Operation | None:
        """On everybody, on any ranks with their own group, or along an axis of the mesh."""
        size = self._random.choice([1, 1000, 100_000])
        if not model.free:
            return None
        if self._random.random() < 0.5:
            return ops.Collect(self._some(model.free), size)
        axis = self._random.choice(list(model.axes))
        line = model.line(self._random.choice(model.free), axis)
        ranks = model.everyone if self._random.random() < 0.5 else line
        return ops.Collect(ranks, size, axis) if set(ranks) <= set(model.free) else None

    def _raise(self, model: Model) -> Operation | None:
        if len(model.free) < 2:
            return None
        ranks = self._some(model.free, 2)
        rest = [rank for rank in model.free if rank not in ranks]
        halted = (self._random.choice(rest),) if rest and self._random.random() < 0.2 else ()
        return ops.Raise(ranks, self._random.choice(ranks), self._random.choice(WAITS), self._value(), halted)

    def _press(self, model: Model) -> Operation | None:
        return self._waiting(model, lambda ranks, wait, value: ops.Press(ranks, wait, value, self._after()))

    def _interrupt(self, model: Model) -> Operation | None:
        return self._waiting(model, lambda ranks, wait, value: ops.Interrupt(ranks, wait, value, self._after()))

    def _time_out(self, model: Model) -> Operation | None:
        return self._waiting(model, lambda ranks, wait, value: ops.TimeOut(ranks, wait, value, self._after()))

    def _unstick(self, model: Model) -> Operation | None:
        return self._waiting(
            model, lambda ranks, wait, value: ops.Unstick(ranks, wait, value, self._random.random() < 0.3)
        )

    def _waiting(self, model: Model, make: Callable[[Ranks, Wait, int], Operation]) -> Operation | None:
        if not model.free:
            return None
        wait = self._random.choice(WAITS if len(model.free) > 1 else ALONE)
        return make(self._some(model.free, 2 if wait in TOGETHER else 1), wait, self._value())

    def _kill(self, model: Model) -> Operation | None:
        return ops.Kill(self._few(tuple(model.alive))) if model.alive else None

    def _kill_during(self, model: Model) -> Operation | None:
        if not model.free:
            return None
        ranks = self._some(model.free)
        return ops.KillDuring(ranks, self._few(ranks), self._random.choice(WAITS), self._value(), self._after())

    def _leave(self, model: Model) -> Operation | None:
        if not model.free:
            return None
        ranks = self._some(model.free)
        code = self._random.randrange(0, 9)
        victims, wait = self._few(ranks), self._random.choice(WAITS)
        if wait in TOGETHER or len(ranks) < len(model.everyone):
            victims = victims[:1]  # who leaves first breaks off what others do meanwhile to make the group of the slice
        return ops.Leave(ranks, victims, wait, self._value(), code)

    def _halt(self, model: Model) -> Operation | None:
        if not model.free:
            return None
        rank = self._random.choice(model.free)
        endings: tuple[Literal["continue", "kill", "restart"], ...] = ("continue", "kill", "restart")
        return ops.Halt(rank, tuple(r for r in model.free if r != rank), self._random.choice(endings))

    def _halt_during(self, model: Model) -> Operation | None:
        if len(model.free) < 2:
            return None
        ranks = self._some(model.free, 2)
        return ops.HaltDuring(ranks, self._few(ranks), self._random.choice([0.05, 0.3, 1.0]))

    def _start(self, model: Model) -> Operation | None:
        if len(model.background) == MOST_BACKGROUND or len(model.free) < 2:
            return None
        self._count += 1
        return ops.Start(self._count, self._few(model.free), self._value())

    def _finish(self, model: Model) -> Operation | None:
        return ops.Finish(self._random.choice(list(model.background))) if model.background else None

    def _mend(self, model: Model) -> Operation | None:
        return ops.Mend()

    def _heal(self, model: Model) -> Operation | None:
        return ops.Heal(self._replay()) if model.dead else None

    def _restart(self, model: Model) -> Operation | None:
        return ops.Restart(self._few(model.everyone), self._replay())

    def _replay(self) -> ops.Replay:
        return "none" if self._random.random() < 0.3 else "auto"

    def _push(self, model: Model) -> Operation | None:
        return (
            ops.Push(self._some(model.free), self._value(), self._random.choice([1, 100_000])) if model.free else None
        )

    def _pull(self, model: Model) -> Operation | None:
        there = tuple(rank for rank in model.free if model.p[rank] is not None)
        return ops.Pull(there) if there else None

    def _spawn(self, model: Model) -> Operation | None:
        """Also on ranks that are dead: that must fail at once."""
        if len(model.troupes) == MOST_TROUPES:
            return None
        self._count += 1
        rank = self._random.choice(model.everyone)
        axes = [axis for axis in model.axes if self._random.random() < 0.5]
        where = tuple((axis, model.coords[rank][axis]) for axis in axes)
        return ops.Spawn(f"troupe{self._count}", where, self._value())

    def _add(self, model: Model) -> Operation | None:
        if not model.troupes:
            return None
        return ops.Add(self._random.choice(list(model.troupes)), self._random.randrange(1, 9))

    def _stop_actors(self, model: Model) -> Operation | None:
        return ops.StopActors(self._random.choice(list(model.troupes))) if model.troupes else None

    def _look(self, model: Model) -> Operation | None:
        ways: tuple[Literal["stacks", "ledger", "where", "complete", "interrupt idle"], ...]
        ways = ("stacks", "ledger", "where", "complete", "interrupt idle")
        return ops.Look(self._random.choice(ways))

    def _some(self, ranks: Ranks, least: int = 1) -> Ranks:
        """All of these, half of the time; or any, ascending."""
        if self._random.random() < 0.5:
            return ranks
        return tuple(sorted(self._random.sample(ranks, self._random.randint(least, len(ranks)))))

    def _few(self, ranks: Ranks) -> Ranks:
        """Mostly one."""
        count = 1 if self._random.random() < 0.7 else self._random.randint(1, len(ranks))
        return tuple(sorted(self._random.sample(ranks, count)))

    def _value(self) -> int:
        return self._random.randrange(NUM_VALUES)

    def _after(self) -> float:
        return self._random.choice([0.0, 0.002, 0.01, 0.05, 0.2])
