"""Which operation comes next in a random program on distributed tensors. A seed gives one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from ..chooser import Chooser, Operation
from .functions import BINARY, NEED_BROADCAST, UNARY, WRITES
from .shards import PLACES, REDUCTIONS, Place, Value

MOST_HELD = 14


class Held(NamedTuple):
    """A distributed tensor, and what it must hold."""

    tensor: Any
    value: Value

    @property
    def place(self) -> Place:
        return self.value.place


class Choice(Chooser):
    """Chooses operations on what is `held`, by number, which others change as these are done."""

    def __init__(self, seed: int, held: Mapping[int, Held]) -> None:
        super().__init__(seed)
        self._held = held
        self._kinds = {
            self._create: 3,
            self._unary: 8,
            self._binary: 5,
            self._mix: 1,
            self._write: 4,
            self._add_into: 2,
            self._reduce: 5,
            self._slice: 3,
            self._move: 4,
            self._fail: 0.5,
            self._fail_on_one: 1,
            self._remote: 1,
            self._absorb: 2,
            self._settle: 1,
            self._drop: 1,
            self._collect: 0.3,
            self._check: 4,
        }

    def next(self) -> Operation:
        return (len(self._held) > MOST_HELD and self._drop()) or super().next()

    def _any(self, if_: Callable[[Held], bool] = lambda _: True) -> int | None:
        return self._one([number for number, held in self._held.items() if if_(held)])

    def _another(self, than: int, if_: Callable[[Held], bool] = lambda _: True) -> int | None:
        """One of the same place, which may be itself."""
        return self._any(lambda held: held.place == self._held[than].place and if_(held))

    def _create(self) -> Operation:
        place = self._random.choice(PLACES)
        shape = self._random.choice([(2,), (4,), (2, 1), (2, 2)])
        return Operation("create", (place, shape, self._random.randrange(5), self._one(list(place.axes))))

    def _unary(self) -> Operation | None:
        number = self._any()
        return Operation("unary", (self._random.choice(list(UNARY)), number)) if number is not None else None

    def _binary(self) -> Operation | None:
        name, one = self._random.choice(list(BINARY)), self._any()
        if one is None:
            return None
        is_possible = self._broadcasts_with(one) if name in NEED_BROADCAST else lambda _: True
        other = self._another(one, is_possible)
        return Operation("binary", (name, one, other)) if other is not None else None

    def _broadcasts_with(self, number: int) -> Callable[[Held], bool]:
        def broadcasts(held: Held) -> bool:
            try:
                torch.broadcast_shapes(self._held[number].tensor.shape, held.tensor.shape)
            except RuntimeError:
                return False
            return True

        return broadcasts

    def _mix(self) -> Operation | None:
        """Of two places, which is an error."""
        one = self._any()
        if one is None:
            return None
        other = self._any(lambda held: held.place != self._held[one].place and self._broadcasts_with(one)(held))
        return Operation("mix", (one, other)) if other is not None else None

    def _writable(self) -> int | None:
        return self._any(lambda held: not held.value.overlaps)

    def _write(self) -> Operation | None:
        number = self._writable()
        return Operation("write", (self._random.choice(list(WRITES)), number)) if number is not None else None

    def _add_into(self) -> Operation | None:
        into = self._writable()
        if into is None:
            return None
        other = self._another(into, lambda held: held.tensor.shape == self._held[into].tensor.shape)
        return Operation("add_into", (into, other)) if other is not None else None

    def _reduce(self) -> Operation | None:
        number = self._any(lambda held: bool(held.place.axes))
        if number is None:
            return None
        held, kind = self._held[number], self._random.choice(list(REDUCTIONS))
        sizes = held.place.axes
        axes = [axis for axis in sizes if self._happens(0.6)] or [self._random.choice(list(sizes))]
        if kind == "stack" or self._happens(0.3):
            axes = axes[:1]
        shape = tuple(held.tensor.shape)
        can_scatter = len(axes) == 1 and shape[:1] == (sizes[axes[0]],)
        if can_scatter and self._happens(0.5):
            return Operation("reduce", (number, axes, kind, True))
        can_write = kind != "stack" and not held.value.overlaps
        name = "reduce_" if can_write and self._happens(0.25) else "reduce"
        return Operation(name, (number, axes, kind))

    def _slice(self) -> Operation | None:
        number = self._any(lambda held: bool(held.place.axes))
        if number is None:
            return None
        inner = [place for place in PLACES if place.is_in(self._held[number].place)]
        return Operation("slice", (number, self._random.choice(inner)))

    def _move(self) -> Operation | None:
        number = self._any()
        if number is None:
            return None
        here = self._held[number].place
        there = [place for place in PLACES if set(here.axes) <= set(place.axes) and place != here]
        return Operation("move", (number, self._random.choice(there))) if there else None

    def _fail(self) -> Operation:
        return Operation("fail", (self._random.choice(PLACES),))

    def _fail_on_one(self) -> Operation | None:
        number = self._any(lambda held: bool(held.place.axes))
        return Operation("fail_on_one", (number,)) if number is not None else None

    def _remote(self) -> Operation | None:
        one = self._any()
        other = self._another(one) if one is not None else None
        return Operation("remote", (one, other, self._happens(0.5))) if other is not None else None

    def _absorb(self) -> Operation | None:
        numbers = [number for number, held in self._held.items() if held.place == PLACES[0]]
        return Operation("absorb", (self._random.sample(numbers, min(len(numbers), 2)),)) if numbers else None

    def _settle(self) -> Operation:
        return Operation("settle", ())

    def _drop(self) -> Operation | None:
        number = self._any()
        return Operation("drop", (number, self._happens(0.5))) if number is not None else None

    def _collect(self) -> Operation:
        return Operation("collect", ())

    def _check(self) -> Operation | None:
        number = self._any()
        return Operation("check", (number,)) if number is not None else None
