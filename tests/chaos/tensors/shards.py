"""What distributed tensors must hold: for each rank an ordinary tensor here, or nothing where it is lost.

An operation on a distributed tensor is one on its shards. Views are views also here: they share memory with what they
were taken of, and a slice of a tensor has its very shards. What could not be written as it should is lost, and all that
shares memory with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Coords = tuple[int, ...]

ROOTS: dict[str, dict[str, int]] = {"grid": {"dp": 2, "tp": 2}, "pair": {"tp": 2}}
"""The processes that there are, with their axes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Processes of a root, or a slice of them: which of its axes are fixed, and at which index."""

    root: str
    fixed: tuple[tuple[str, int], ...] = ()

    @property
    def axes(self) -> dict[str, int]:
        return {axis: size for axis, size in ROOTS[self.root].items() if axis not in dict(self.fixed)}

    @property
    def coords(self) -> list[Coords]:
        return list(itertools.product(*map(range, self.axes.values())))

    def pick(self, within: Place) -> dict[str, int]:
        """What slices `within` to this place."""
        return {axis: index for axis, index in self.fixed if axis in within.axes}

    def is_in(self, other: Place) -> bool:
        return self.root == other.root and set(self.fixed) > set(other.fixed)

    def at(self, coords: Coords, of: Place) -> Coords:
        """Where in this place is what is at `coords` in `of`, which has all axes of this one, or is a slice of it."""
        known = dict(zip(of.axes, coords, strict=True)) | of.pick(self)
        return tuple(known[axis] for axis in self.axes)

    def __str__(self) -> str:
        return f"{self.root}[{', '.join(f'{axis}={index}' for axis, index in self.fixed)}]"


def _places() -> Iterator[Place]:
    for root, axes in ROOTS.items():
        for indices in itertools.product(*([None, *range(size)] for size in axes.values())):
            yield Place(root, tuple((a, i) for a, i in zip(axes, indices, strict=True) if i is not None))


PLACES = tuple(_places())


@dataclass(frozen=True, slots=True)
class Value:
    """A distributed tensor: where it is, and its shards there."""

    place: Place
    shards: Mapping[Coords, Tensor | None]

    @property
    def any_shard(self) -> Tensor | None:
        """The first that is not lost; all have the same shape."""
        return next((shard for shard in self.shards.values() if shard is not None), None)

    @property
    def overlaps(self) -> bool:
        """Whether an element of a shard is several, as `expand` makes them: what torch does not write to."""
        shards = [shard for shard in self.shards.values() if shard is not None]
        return any(s == 0 and n > 1 for shard in shards for s, n in zip(shard.stride(), shard.shape, strict=True))

    def __str__(self) -> str:
        shards = {c: "lost" if shard is None else shard.tolist() for c, shard in self.shards.items()}
        return f"{shards} on {self.place}"


class Memory:
    """Which memory of the shards is lost, and what comes of operations on shards."""

    def __init__(self) -> None:
        self._lost: dict[int, Tensor] = {}
        """By its address; kept, so that nothing else gets that."""

    def shard(self, value: Value, coords: Coords) -> Tensor | None:
        """What is there, or None where it is lost."""
        shard = value.shards[coords]
        return None if shard is None or shard.untyped_storage().data_ptr() in self._lost else shard

    def lost(self, value: Value) -> list[Coords]:
        return [coords for coords in value.place.coords if self.shard(value, coords) is None]

    def of_each(self, function: Callable[..., Tensor], *values: Value) -> Value:
        """A new value, computed on each rank of the shards there."""
        place = values[0].place
        return Value(place, {coords: self._computed(function, values, coords) for coords in place.coords})

    def _computed(self, function: Callable[..., Tensor], values: Sequence[Value], coords: Coords) -> Tensor | None:
        shards = [self.shard(value, coords) for value in values]
        return None if any(shard is None for shard in shards) else function(*shards)

    def write(self, function: Callable[..., object], value: Value, *others: Value) -> None:
        """Write into each shard; where one of the others is lost, this one is too."""
        for coords in value.place.coords:
            shards = [self.shard(each, coords) for each in (value, *others)]
            if all(shard is not None for shard in shards):
                function(*shards)
            else:
                self._lose(value.shards[coords])

    def overwrite(self, value: Value, new: Value) -> None:
        self.write(lambda shard, other: shard.copy_(other), value, new)

    def _lose(self, shard: Tensor | None) -> None:
        if shard is not None:
            self._lost[shard.untyped_storage().data_ptr()] = shard

    def reduced(self, value: Value, axes: Sequence[str], kind: str, scatter: bool) -> Value:
        """Over the ranks that differ in `axes` alone: a new value, lost on all of them where one has lost its own."""
        shards: dict[Coords, Tensor | None] = {}
        for group in _groups(value.place, axes):
            found = [shard for coords in group if (shard := self.shard(value, coords)) is not None]
            is_whole = len(found) == len(group)
            for index, coords in enumerate(group):
                shards[coords] = _reduced(found, kind, index if scatter else None) if is_whole else None
        return Value(value.place, shards)

    def sliced(self, value: Value, place: Place) -> Value:
        """The very shards, of fewer ranks."""
        return Value(place, {coords: value.shards[value.place.at(coords, place)] for coords in place.coords})

    def moved(self, value: Value, place: Place) -> Value:
        """Copies, on other ranks; along axes that only these have, copies of the same."""
        shards = {coords: self.shard(value, value.place.at(coords, place)) for coords in place.coords}
        return Value(place, {c: None if shard is None else _copy(shard) for c, shard in shards.items()})


def _groups(place: Place, axes: Sequence[str]) -> list[list[Coords]]:
    groups: dict[Coords, list[Coords]] = {}
    for coords in place.coords:
        others = tuple(i for axis, i in zip(place.axes, coords, strict=True) if axis not in axes)
        groups.setdefault(others, []).append(coords)
    return list(groups.values())


REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda all_: all_.sum(0),
    "avg": lambda all_: all_.sum(0) / len(all_),
    "min": lambda all_: all_.amin(0),
    "max": lambda all_: all_.amax(0),
    "product": lambda all_: all_.prod(0),
    "stack": lambda all_: all_,
}


def _reduced(shards: Sequence[Tensor], kind: str, part: int | None) -> Tensor:
    """Of all shards, or of this part of each."""
    return REDUCTIONS[kind](torch.stack([shard if part is None else shard[part] for shard in shards])).clone()


def _copy(shard: Tensor) -> Tensor:
    return shard.detach().clone(memory_format=torch.contiguous_format)
