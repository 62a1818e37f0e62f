"""Distributed tensors moved from one mesh to another, with their gradients moved back."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Generator
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree

from ..errors import checks_for_caller
from ..mesh import ProcMesh
from .dispatch import dispatcher_of
from .movement import mapped, reduce
from .program import Ref
from .streams import Stream
from .tensor import Shared, Tensor, words, wrapped
from .transfer import Receive, Send

_numbers = itertools.count(1)

_issuing = threading.Lock()


@contextlib.contextmanager
def transfer() -> Generator[int]:
    """The number of a transfer that is issued in the `with` block.

    Of two transfers the one with the lower number is issued first, whatever thread issues it: ranks count on that.
    """
    with _issuing:
        yield next(_numbers)


@checks_for_caller
def to_mesh(tensors: Any, mesh: ProcMesh, stream: Stream | None = None) -> Any:
    """The distributed tensors in `tensors` (lists, dicts, ...) on another mesh, or another slice of the same one.

    Each shard goes straight to the rank at the same place there, when its operations have been computed; nobody waits.
    Along axes that only that mesh has, all ranks get it. Gradients come back the same way, of those ranks their sum.
    What comes is on `stream`, by default that of the tensor. A tensor that is there already is given as it is.

    Raises:
        ValueError: that mesh has not all axes of the tensor's, or they have other sizes.
        TypeError: it is no mesh of processes.

    Example:
        >>> from meshbook.runtime import this_host
        >>> from meshbook.runtime.tensors import inspect
        >>> with this_host().spawn_procs({"dp": 2}) as procs:
        ...     with procs.slice(dp=0).activate():
        ...         x = torch.ones(3)
        ...     inspect(to_mesh(x, procs.slice(dp=1)) + 1)
        tensor([2., 2., 2.])
    """
    if not isinstance(cast("object", mesh), ProcMesh):
        raise TypeError(f"to_mesh takes processes: procs.slice(...), tensor.mesh, m.procs of a notebook; not {mesh!r}")
    for leaf in pytree.tree_leaves(tensors):  # here, and not among frames of autograd's
        if isinstance(leaf, Tensor):
            _check(leaf._procs, mesh)

    def move(tensor: Tensor) -> Any:
        target = stream or tensor._stream
        is_there = tensor._procs == mesh and tensor._stream is target
        return tensor if is_there else cast("Any", _Move).apply(tensor, mesh, target)

    return mapped(move, Tensor, tensors)


class _Move(torch.autograd.Function):
    """To autograd a copy, of which the gradient is one back."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, mesh: ProcMesh, stream: Stream) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.source, ctx.stream = tensor._procs, tensor._stream
        return _moved(tensor, mesh, stream)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if several := [axis for axis in gradient._procs.sizes if axis not in ctx.source.sizes]:
            gradient = reduce(gradient, several).slice_mesh(**dict.fromkeys(several, 0))
        return to_mesh(gradient, ctx.source, ctx.stream), None, None


def _check(source: ProcMesh, mesh: ProcMesh) -> None:
    if not source.sizes.items() <= mesh.sizes.items():
        raise ValueError(
            f"a tensor of {words(source)} cannot go to a mesh of {words(mesh)}: each rank sends to those at the same "
            f"place, so the mesh must have {words(source)}, as a slice() of one may, or slice_mesh() of the tensor"
        )


def _moved(tensor: Tensor, mesh: ProcMesh, stream: Stream) -> Tensor:
    source = tensor._procs
    tensor._memory.check()
    sender, taker, value = dispatcher_of(source), dispatcher_of(mesh), tensor._alive()
    receivers = sender.link(taker)._new_with_shape(mesh._shape)
    made = Shared(taker, mesh)
    with transfer() as number:
        sender.issue(source._shape, Send(number, receivers), (Ref(value.number),), {}, [None])
        taker.issue(mesh._shape, Receive(number, str(tensor.device)), (), {}, [made.number])
    return wrapped(tensor._form.contiguous(), made, mesh, stream)
