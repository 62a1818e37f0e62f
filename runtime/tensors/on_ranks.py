"""What ranks do for distributed tensors beside torch's own operations.

They import this module, and so it must not import what the program needs: the fakes of tensors take a rank a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import prod
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..ranks.place import here
from ..scope import current_rank, current_size
from .opaque import OpaqueRef
from .program import Poison


def index_on(axes: Sequence[str]) -> torch.Tensor:
    """The place of this rank along axes of the view that the operation was issued for."""
    point, place = current_rank(), 0
    for axis in axes:
        place = place * point.size(axis) + point[axis]
    return torch.tensor(place)


def combine(tensor: torch.Tensor, lines: RemoteProcessGroup, reduction: str, scatter: bool) -> torch.Tensor:
    """The collective of this rank with those of its line. Gloo has no average; it is a sum, divided."""
    line, group = lines.own_line(), lines.own()
    own = tensor.contiguous()
    if reduction == "stack":
        return _stacked(own, line, group, scatter)
    dist: Any = torch.distributed
    kinds: Mapping[str, Any] = {"avg": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT}
    kind = kinds.get(reduction) or getattr(dist.ReduceOp, reduction.upper())
    whole = own.clone()
    dist.all_reduce(whole, kind, group=group)
    if reduction == "avg":
        is_exact = not (whole.is_floating_point() or whole.is_complex())
        whole = whole // len(line) if is_exact else whole / len(line)
    return whole[line.index(here().rank)].clone() if scatter else whole


class RemoteProcessGroup:
    """Along axes of a mesh (`mesh.process_group(dims)`): a function that is given it finds the group of its rank."""

    def __init__(self, dims: Sequence[str], lines: Sequence[tuple[int, ...]]) -> None:
        self.dims = tuple(dims)
        self._lines = tuple(lines)

    def size(self) -> int:
        """The number of ranks of each group."""
        return len(self._lines[0])

    def own_line(self) -> tuple[int, ...]:
        """On a rank: the ranks of its group."""
        return next(ranks for ranks in self._lines if here().rank in ranks)

    def own(self) -> Any:
        """On a rank: its `torch.distributed.ProcessGroup`."""
        groups = here().groups
        assert groups is not None
        return groups.slice_group(self.own_line())

    def agree(self, failed: Poison | None) -> Poison | None:
        """On a rank, before a collective: what any of its group has in place of an argument, for all of them.

        Who has failed does not come to the collective, and the others would wait for it.
        """
        if self.size() == 1 or prod(current_size().values()) != sum(map(len, self._lines)):  # others do not take part
            return failed
        dist, group, groups = torch.distributed, self.own(), here().groups
        assert groups is not None
        has_failed = torch.tensor([failed is not None], dtype=torch.uint8, device=groups.plan.plain_device)
        dist.all_reduce(has_failed, dist.ReduceOp.MAX, group=group)
        if not has_failed:
            return None
        found: list[Poison | None] = [None] * self.size()
        dist.all_gather_object(found, failed, group=group)
        return min(filter(None, found))

    def __repr__(self) -> str:
        return f"<RemoteProcessGroup along {', '.join(self.dims)}, of {self.size()} ranks>"


def _stacked(own: torch.Tensor, line: Sequence[int], group: Any, scatter: bool) -> torch.Tensor:
    dist: Any = torch.distributed
    rows = [torch.empty_like(own) for _ in line]
    dist.all_gather(rows, own, group=group)
    if scatter:
        index = line.index(here().rank)
        return torch.stack([row[index] for row in rows])
    return torch.stack(rows)


def real_view(tensor: torch.Tensor) -> torch.Tensor:
    """`aten::view_as_real`. The program does not know that a shard is conjugated, which torch refuses to look at."""
    return torch.view_as_real(tensor.resolve_conj())


class Unsent:
    """Stands for a function that could not be sent."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self) -> Any:
        raise RuntimeError(self._why)


class OfUsers:
    """A function of the user's, or the name of one of a module."""

    def __init__(self, function: Callable[..., Any] | str, is_kept: bool) -> None:
        self._function = function
        self._is_kept = is_kept

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function: Any = self._function
        if isinstance(function, str):
            function = _found(function)
        args, kwargs = pytree.tree_map_only(RemoteProcessGroup, RemoteProcessGroup.own, (args, kwargs))
        result = function(*args, **kwargs)
        return result if self._is_kept else None


def _found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise NameError(f"there is no function {path!r} here: {error}") from None


class Boxed(OfUsers):
    """The same, which gives a reference to what it gives."""

    def __call__(self, *args: Any, **kwargs: Any) -> OpaqueRef:
        return OpaqueRef(super().__call__(*args, **kwargs))


class Described:
    """A tensor without its values: the fields of a `Form`."""

    def __init__(self, tensor: torch.Tensor) -> None:
        place = tensor.stride(), int(tensor.storage_offset())
        self.form = tensor.size(), *place, tensor.dtype, tensor.device, tensor.layout


def described(ref: OpaqueRef) -> Any:
    """What it refers to, with descriptions of tensors."""
    return pytree.tree_map_only(torch.Tensor, Described, ref.value)


def unboxed(ref: OpaqueRef) -> Any:
    """What it refers to."""
    return ref.value
