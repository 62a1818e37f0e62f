"""Shards of distributed tensors brought to the controller, and what is told of operations that have failed."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils import _pytree as pytree

from ..cells import Line, readable
from ..errors import checks_for_caller
from ..future import Future, Promise
from .dispatch import dispatcher_of, place_of
from .program import Poison
from .tensor import Tensor, mesh_of


class RemoteException(Exception):
    """An operation on distributed tensors has failed on a rank, and what was asked for depends on it."""

    def __init__(self, poison: Poison, place: Line | None) -> None:
        said = [f"rank {poison.rank}: {poison.error}"]
        if place is not None:
            said += [f"Issued at {place}", *([f"    {place.text}"] if place.text else [])]
        super().__init__("\n".join([*said, *([readable(poison.traceback)] if poison.traceback else [])]))
        self.rank = poison.rank


@checks_for_caller
def fetch_shard(obj: Any, shard: Mapping[str, int] | None = None, **dims: int) -> Future[Any]:
    """One rank's shards of the distributed tensors in `obj` (lists, dicts, ...), as tensors of the CPU here.

    The rank is that at these coordinates, by default the first. Waits for all ranks.

    Raises:
        ValueError: a coordinate is missing, or there is no such axis or rank.
        TypeError: the tensors are on several meshes, or there are none.
        RemoteException: something of them has failed; from the future.
    """
    leaves, form = pytree.tree_flatten(obj)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    numbers = [tensor._usable().number for tensor in tensors]
    procs = mesh_of(tensors)
    if procs is None:
        raise TypeError("there is no distributed tensor to bring here")
    dispatcher = dispatcher_of(procs)
    rank = rank_at(procs.sizes, {**(shard or {}), **dims})
    promise: Promise[Any] = Promise(procs._fleet.reactor)

    def settle(came: Future[Any]) -> None:
        error = came.exception()
        if error is not None:
            promise.fail(error)
            return
        answers = came.get().values()
        failed = next((poison for _, poison in answers if poison is not None), None)
        if failed is not None:
            promise.fail(RemoteException(failed, place_of(failed)))
            return
        values = iter(answers[rank][0])
        found = [next(values) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        promise.resolve(pytree.tree_unflatten(found, form))

    promise.on_interrupt = dispatcher.interrupted
    dispatcher.fetch(procs._shape, numbers, rank).add_done_callback(settle)
    return promise.future


@checks_for_caller
def inspect(obj: Any, shard: Mapping[str, int] | None = None, **dims: int) -> Any:
    """The same, waited for.

    Example:
        with procs.activate():
            total = torch.ones(3).sum()
        inspect(total)  # -> tensor(3.)
    """
    __tracebackhide__ = True
    return fetch_shard(obj, shard, **dims).get()


def rank_at(sizes: Mapping[str, int], coordinates: Mapping[str, int]) -> int:
    """The place of a point in a mesh of these sizes; that of its first rank, where nothing is said."""
    if unknown := sorted(coordinates.keys() - sizes.keys()):
        raise ValueError(f"there is no axis {unknown[0]!r} in the shard map: the mesh has {', '.join(sizes) or 'none'}")
    if coordinates and (missing := [axis for axis in sizes if axis not in coordinates]):
        raise ValueError(f"Missing key {missing[0]!r} in shard map: name all of {', '.join(sizes)}, or none")
    rank = 0
    for axis, size in sizes.items():
        index = coordinates.get(axis, 0)
        if not 0 <= index < size:
            raise ValueError(f"{axis}={index} is no rank of the mesh: it goes from 0 to {size - 1}")
        rank = rank * size + index
    return rank
