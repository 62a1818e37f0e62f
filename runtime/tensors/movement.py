"""Distributed tensors combined along axes of their mesh, by collectives among its ranks."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import checks_for_caller
from ..mesh import ProcMesh
from ..wire.deferred import untorn
from .activation import faking
from .on_ranks import RemoteProcessGroup, combine, index_on
from .tensor import Tensor, issue

REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "stack")

_Unrecorded: Any = torch._C._AutoDispatchBelowAutograd
"""As `torch.no_grad()`, but in C: Ctrl-C just as they are turned off does not leave gradients off for good."""


@checks_for_caller
def reduce(tensors: Any, dims: str | Sequence[str] = (), reduction: str = "sum", scatter: bool = False) -> Any:
    """The shards combined along axes of the mesh, all of them by default: each rank has the result of its line.

    Of lists, dicts, ... of distributed tensors each is.

    `stack` puts them one behind the other, along a new first dimension. With `scatter` the first dimension of the
    shards is as long as the axis, and rank `i` of it gets row `i` of the result; of `stack`, row `i` of all.

    Raises:
        KeyError: there is no such axis.
        ValueError: there is no such reduction, an axis is named twice, or `stack` or `scatter` goes along several.
        TypeError: the first dimension of what is scattered is not as long as the axis; it is a tensor that requires a
            gradient.

    Example:
        with procs.activate():
            total = reduce(torch.ones(3), "gpus")
    """

    def combined(tensor: torch.Tensor) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"a local tensor {tuple(tensor.shape)} has no shards to combine")
        _check_grad(tensor)
        axes = _checked(tensor, dims, reduction, scatter)
        fake = _shape_of(tensor, tensor._procs.size(axes), reduction, scatter)
        lines = process_group(tensor._procs, axes)
        made: Tensor = issue(tensor._procs, combine, (tensor, lines, reduction, scatter), {}, fake)
        return made

    return mapped(combined, torch.Tensor, tensors)


@checks_for_caller
def reduce_(tensors: Any, dims: str | Sequence[str] = (), reduction: str = "sum") -> Any:
    """The same in place, and back."""
    if reduction == "stack":
        raise ValueError("reduce_ cannot stack: the result has another shape")

    def write(tensor: torch.Tensor) -> None:
        _check_grad(tensor)
        with _Unrecorded():
            tensor.copy_(reduce(tensor, dims, reduction))

    mapped(write, torch.Tensor, tensors)
    return tensors


@checks_for_caller
def reduce_into(out: Tensor, tensor: Tensor, dims: str | Sequence[str], reduction: str, scatter: bool) -> Tensor:
    """The same, written to another tensor, and that back."""
    made = reduce(tensor, dims, reduction, scatter)
    if out.shape != made.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}, and the result {tuple(made.shape)}")
    with _Unrecorded():
        out.copy_(made)
    return out


@checks_for_caller
def slice_mesh(tensors: Any, **dims: Any) -> Any:
    """The shards of all distributed tensors in `tensors` (lists, dicts, ...) on a part of their mesh."""

    def cut(tensor: Tensor) -> Tensor:
        return tensor.slice_mesh(**dims)

    return mapped(cut, Tensor, tensors)


@checks_for_caller
def rank_tensor(procs: ProcMesh, dims: str | Sequence[str]) -> Tensor:
    """A number on each rank: its index on an axis; its place among the ranks of several."""
    axes = [dims] if isinstance(dims, str) else list(dims)
    _check_axes(procs, axes)
    made: Tensor = issue(procs, index_on, (axes,), {}, _fake_index())
    return made


@checks_for_caller
def process_group(procs: ProcMesh, dims: str | Sequence[str] = ()) -> RemoteProcessGroup:
    """The process groups of the lines of ranks along axes, all of them by default."""
    axes = [dims] if isinstance(dims, str) else list(dims) or list(procs.sizes)
    _check_axes(procs, axes)
    return RemoteProcessGroup(axes, _lines(procs, axes))


def mapped(change: Callable[[Any], Any], kind: type, values: Any) -> Any:
    """The same lists, dicts, ... with all of a kind changed; unlike torch's it adds no frames to what is raised."""
    leaves, spec = pytree.tree_flatten(values)
    return pytree.tree_unflatten([change(leaf) if isinstance(leaf, kind) else leaf for leaf in leaves], spec)


def _checked(tensor: Tensor, dims: str | Sequence[str], reduction: str, scatter: bool) -> list[str]:
    procs = tensor._procs
    axes = [dims] if isinstance(dims, str) else list(dims) or list(procs.sizes)
    _check_axes(procs, axes)
    if reduction not in REDUCTIONS:
        raise ValueError(f"there is no reduction {reduction!r}: there are {', '.join(REDUCTIONS)}")
    if len(axes) != 1 and (scatter or reduction == "stack"):
        what = "scatter" if scatter else "stack"
        raise ValueError(f"{what} goes along one axis, not {len(axes)}: name one of {', '.join(procs.sizes)}")
    if scatter and (tensor.dim() == 0 or tensor.shape[0] != procs.size(axes)):
        raise TypeError(
            f"to scatter, the first dimension must be {procs.size(axes)}, as long as axis {axes[0]!r}: "
            f"the shards have shape {tuple(tensor.shape)}"
        )
    return axes


def _check_grad(tensor: torch.Tensor) -> None:
    if tensor.requires_grad and torch.is_grad_enabled():
        raise TypeError("reduce has no gradient, and the tensor requires one (REQUIRES_GRAD): detach() it first")


def _check_axes(procs: ProcMesh, axes: Sequence[str]) -> None:
    if unknown := [axis for axis in axes if axis not in procs.sizes]:
        raise KeyError(f"there is no axis {unknown[0]!r}: the mesh has {', '.join(procs.sizes) or 'none'}")
    if len(set(axes)) < len(axes):
        raise ValueError(f"an axis is named twice: {', '.join(axes)}")


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
