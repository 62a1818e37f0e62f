"""Distributed tensors combined along axes of their mesh, by collectives among its ranks."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import checks_for_caller
from ..mesh import ProcMesh
from ..wire.deferred import untorn
from .on_ranks import combine, index_on
from .tensor import Tensor, faking, issue

REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "stack")


@checks_for_caller
def reduce(tensor: Tensor, dims: str | Sequence[str] = (), reduction: str = "sum", scatter: bool = False) -> Tensor:
    """The shards combined along axes of the mesh, all of them by default: each rank has the result of its line.

    `stack` puts them one behind the other, along a new first dimension. With `scatter` the first dimension of the
    shards is as long as the axis, and rank `i` of it gets row `i` of the result; of `stack`, row `i` of all.

    Raises:
        ValueError: there is no such axis or reduction.
        TypeError: `stack` or `scatter` along several axes, or of shards with another first dimension.

    Example:
        with procs.activate():
            total = reduce(torch.ones(3), "gpus")
    """
    axes = _checked(tensor, dims, reduction, scatter)
    size = tensor._procs.size(axes)
    fake = _shape_of(tensor, size, reduction, scatter)
    lines = _lines(tensor._procs, axes)
    made: Tensor = issue(tensor._procs, combine, (tensor, lines, reduction, scatter), {}, fake)
    return made


@checks_for_caller
def reduce_(tensor: Tensor, dims: str | Sequence[str] = (), reduction: str = "sum") -> Tensor:
    """The same in place, and back."""
    if reduction == "stack":
        raise ValueError("reduce_ cannot stack: the result has another shape")
    with torch.no_grad():
        tensor.copy_(reduce(tensor, dims, reduction))
    return tensor


@checks_for_caller
def slice_mesh(tensors: Any, **dims: Any) -> Any:
    """The shards of all distributed tensors in `tensors` (lists, dicts, ...) on a part of their mesh."""

    def cut(tensor: Tensor) -> Tensor:
        return tensor.slice_mesh(**dims)

    return pytree.tree_map_only(Tensor, cut, tensors)


@checks_for_caller
def rank_tensor(procs: ProcMesh, dims: str | Sequence[str]) -> Tensor:
    """A number on each rank: its index on an axis; its place among the ranks of several."""
    axes = [dims] if isinstance(dims, str) else list(dims)
    _check_axes(procs, axes)
    made: Tensor = issue(procs, index_on, (axes,), {}, _fake_index())
    return made


def _checked(tensor: Tensor, dims: str | Sequence[str], reduction: str, scatter: bool) -> list[str]:
    procs = tensor._procs
    axes = [dims] if isinstance(dims, str) else list(dims) or list(procs.sizes)
    _check_axes(procs, axes)
    if reduction not in REDUCTIONS:
        raise ValueError(f"there is no reduction {reduction!r}: there are {', '.join(REDUCTIONS)}")
    if len(axes) != 1 and (scatter or reduction == "stack"):
        what = "scatter" if scatter else "stack"
        raise TypeError(f"{what} goes along one axis, not {len(axes)}: name one of {', '.join(procs.sizes)}")
    if scatter and (tensor.dim() == 0 or tensor.shape[0] != procs.size(axes)):
        raise TypeError(
            f"to scatter, the first dimension must be {procs.size(axes)}, as long as axis {axes[0]!r}: "
            f"the shards have shape {tuple(tensor.shape)}"
        )
    return axes


def _check_axes(procs: ProcMesh, axes: Sequence[str]) -> None:
    if unknown := [axis for axis in axes if axis not in procs.sizes]:
        raise ValueError(f"there is no axis {unknown[0]!r}: the mesh has {', '.join(procs.sizes) or 'none'}")


@untorn  # as in `forms`
def _shape_of(tensor: Tensor, size: int, reduction: str, scatter: bool) -> torch.Tensor:
    fake = tensor._fake
    with faking():
        if scatter:
            return fake.new_empty(fake.shape if reduction == "stack" else fake.shape[1:])
        return fake.new_empty((size, *fake.shape) if reduction == "stack" else fake.shape)


@untorn
def _fake_index() -> torch.Tensor:
    with faking():
        return torch.empty((), dtype=torch.int64)


def _lines(procs: ProcMesh, axes: Sequence[str]) -> list[tuple[int, ...]]:
    """The ranks, by their numbers in the whole mesh, that are combined with each other."""
    rest = [range(size) for axis, size in procs.sizes.items() if axis not in axes]
    names = [axis for axis in procs.sizes if axis not in axes]
    return [
        tuple(sorted(procs.slice(**dict(zip(names, point, strict=True)))._shape.ranks()))
        for point in itertools.product(*rest)
    ]
