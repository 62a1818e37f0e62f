"""Random programs on distributed tensors of real processes: each operation is also done on ordinary tensors here."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from meshbook.runtime import Future, MeshFailure
from meshbook.runtime.tensors import RemoteException, inspect, remote

from ..chooser import Operation
from ..story import Spawn
from ..verdicts import Unclear, Violation
from .choice import Choice, Held
from .functions import BINARY, UNARY, WRITES, Keeper, except_one, weighted
from .shards import PLACES, ROOTS, Coords, Memory, Place, Value

MOST_ELEMENTS = 200
"""Of a shard that is kept."""


class Absorbed(NamedTuple):
    """A message with tensors that is on its way, and what must be answered; None if it must fail."""

    answer: Future[Any]
    right: dict[Coords, Any] | None


class World:
    """Tensors on two process meshes and their slices, and the model of them: a `Story`."""

    def __init__(self, seed: int, spawn_procs: Spawn) -> None:
        self._procs = {root: spawn_procs(axes) for root, axes in ROOTS.items()}
        self._keepers = self._procs["grid"].spawn("keepers", Keeper)
        self._memory = Memory()
        self._held: dict[int, Held] = {}
        self._number = 0
        self._totals = Counter[Coords]()
        self._absorbed: list[Absorbed] = []
        self._faults: list[str] = []
        self._choice = Choice(seed, self._held)

    def next(self) -> Operation:
        return self._choice.next()

    def do(self, operation: Operation) -> None:
        """Do it; `Violation` if anything is not as it must be."""
        getattr(self, operation.name)(*operation.args)
        if self._faults:
            raise Violation("\n".join(self._faults))

    def on_fault(self, failure: MeshFailure) -> None:
        """No process and no actor fails by what is computed."""
        self._faults.append(f"nobody expected {failure.report()}")

    def close(self) -> None:
        for number in list(self._held):
            self.check(number)
        self.settle()
        for procs in self._procs.values():
            procs.stop().get(20)

    # What can be done.

    def create(self, place: Place, shape: Sequence[int], first: int, axis: str | None) -> None:
        def made(rank: Any) -> Any:
            return (torch.arange(float(torch.Size(shape).numel())) + first).reshape(shape) + 10 * rank

        mesh = self._mesh(place)
        with mesh.activate():
            tensor = made(mesh.rank_tensor(axis) if axis else 0)
        index = list(place.axes).index(axis) if axis else None
        self._hold(
            tensor, Value(place, {coords: made(0 if index is None else coords[index]) for coords in place.coords})
        )

    def unary(self, name: str, number: int) -> None:
        self._compute(UNARY[name], number)

    def binary(self, name: str, one: int, other: int) -> None:
        self._compute(BINARY[name], one, other)

    def mix(self, one: int, other: int) -> None:
        try:
            mixed = self._held[one].tensor + self._held[other].tensor
        except TypeError as error:
            if "WRONG_MESH" not in str(error):
                raise
        else:
            raise Violation(f"tensors of two meshes were added: {mixed}")

    def write(self, name: str, number: int) -> None:
        tensor, value = self._held[number]
        WRITES[name](tensor)
        self._memory.write(WRITES[name], value)

    def add_into(self, into: int, other: int) -> None:
        self._held[into].tensor.add_(self._held[other].tensor)
        self._memory.write(lambda x, y: x.add_(y), self._held[into].value, self._held[other].value)

    def reduce(self, number: int, axes: Sequence[str], kind: str, scatter: bool = False) -> None:
        tensor, value = self._held[number]
        reduced = tensor.reduce(_one_or_all(axes), kind, scatter=scatter)
        self._hold(reduced, self._memory.reduced(value, axes, kind, scatter))

    def reduce_(self, number: int, axes: Sequence[str], kind: str) -> None:
        tensor, value = self._held[number]
        tensor.reduce_(_one_or_all(axes), kind)
        self._memory.overwrite(value, self._memory.reduced(value, axes, kind, scatter=False))

    def slice(self, number: int, place: Place) -> None:
        tensor, value = self._held[number]
        sliced = tensor.slice_mesh(**place.pick(within=value.place))
        _same(sliced.mesh, self._mesh(place), "the mesh of a slice")
        self._hold(sliced, self._memory.sliced(value, place))

    def move(self, number: int, place: Place) -> None:
        tensor, value = self._held[number]
        self._hold(tensor.to_mesh(self._mesh(place)), self._memory.moved(value, place))

    def fail(self, place: Place) -> None:
        """A tensor that cannot be computed where the first index is 1; on one rank alone, there."""
        mesh, axis = self._mesh(place), next(iter(place.axes), None)
        with mesh.activate():
            index = mesh.rank_tensor(axis).reshape(1) * 7 if axis else torch.tensor([7])
            tensor = torch.arange(3.0)[index]
        shards = {coords: None if not axis or coords[0] == 1 else torch.tensor([0.0]) for coords in place.coords}
        self._hold(tensor, Value(place, shards))

    def fail_on_one(self, number: int) -> None:
        """A function that raises where the first index is 1."""
        tensor, value = self._held[number]
        mesh = self._mesh(value.place)
        with mesh.activate():
            rank = mesh.rank_tensor(next(iter(value.place.axes)))
            computed = remote(except_one, propagate=lambda x, _: x + 1)(tensor, rank)
        right = self._memory.of_each(lambda x: x + 1, value)
        self._hold(computed, Value(value.place, {c: None if c[0] == 1 else shard for c, shard in right.shards.items()}))

    def remote(self, one: int, other: int, is_learnt: bool) -> None:
        function = remote(weighted, propagate="cached" if is_learnt else weighted)
        with self._mesh(self._held[one].place).activate():
            self._compute(function, one, other, like=weighted)

    def absorb(self, numbers: Sequence[int]) -> None:
        """Send them to actors, which get their own shards as of now."""
        held = [self._held[number] for number in numbers]
        answer = self._keepers.absorb.call(*(each.tensor for each in held))
        self._absorbed.append(Absorbed(answer, self._right_answers([each.value for each in held])))

    def settle(self) -> None:
        """Wait for all messages on their way."""
        for answer, right in self._absorbed:
            if right is None:
                error = answer.exception(20)
                if error is None:
                    raise Violation("a message with a lost tensor was answered")
            else:
                found = {tuple(point[axis] for axis in ROOTS["grid"]): each for point, each in answer.get(20).items()}
                _same(found, right, "what actors had of tensors")
        self._absorbed.clear()

    def drop(self, number: int, at_once: bool) -> None:
        """Forget it: by its own method, or as Python does."""
        tensor, _ = self._held.pop(number)
        if at_once and all(held.tensor is not tensor for held in self._held.values()):
            tensor.drop()

    def collect(self) -> None:
        gc.collect()

    def check(self, number: int) -> None:
        """Each rank has what it must, or the tensor says that it is lost."""
        tensor, value = self._held[number]
        lost = self._memory.lost(value)
        for coords in value.place.coords:
            try:
                found = inspect(tensor, dict(zip(value.place.axes, coords, strict=True)))
            except RemoteException as error:
                if not lost:
                    raise Violation(f"t{number} should be {value}") from error
                continue
            if lost:
                raise Violation(f"t{number} is {found} at {coords}; it should be lost on {lost}")
            _same((found.shape, found.tolist()), (tensor.shape, _list(value, coords)), f"t{number} at {coords}")

    # How.

    def _mesh(self, place: Place) -> Any:
        procs = self._procs[place.root]
        return procs.slice(**dict(place.fixed)) if place.fixed else procs

    def _hold(self, tensor: Any, value: Value) -> None:
        if tensor.numel() <= MOST_ELEMENTS:
            self._number += 1
            self._held[self._number] = Held(tensor, value)

    def _compute(self, function: Callable[..., Any], *numbers: int, like: Callable[..., Any] | None = None) -> None:
        """Compute it, if it can be said what is right.

        What is lost everywhere may be of a wrong shape; and to learn the form of a result it must be there everywhere.
        """
        values = [self._held[number].value for number in numbers]
        right = self._memory.of_each(like or function, *values)
        try:
            tensor = function(*(self._held[number].tensor for number in numbers))
        except RemoteException as error:
            if self._memory.lost(right):
                raise Unclear from error
            raise
        except (RuntimeError, IndexError) as error:
            if right.any_shard is None:
                raise Unclear from error
            raise
        self._hold(tensor, right)

    def _right_answers(self, values: Sequence[Value]) -> dict[Coords, Any] | None:
        """Those of `Keeper.absorb`. Actors whose shards are there count them also where others have lost theirs."""
        right: dict[Coords, Any] = {}
        for coords in PLACES[0].coords:
            shards = [shard for value in values if (shard := self._memory.shard(value, coords)) is not None]
            if len(shards) == len(values):
                self._totals[coords] += sum(float(shard.sum()) for shard in shards)  # type: ignore[assignment]
                right[coords] = (self._totals[coords], [shard.tolist() for shard in shards])
        return right if len(right) == len(PLACES[0].coords) else None


def _one_or_all(axes: Sequence[str]) -> Any:
    return axes[0] if len(axes) == 1 else axes


def _list(value: Value, coords: Coords) -> Any:
    shard = value.shards[coords]
    assert shard is not None
    return shard.tolist()


def _same(found: object, right: object, what: str) -> None:
    if found != right:
        raise Violation(f"{what} is {found}, not {right}")
