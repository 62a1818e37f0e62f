"""Tensors that are more, or less, than bytes in a row: of subclasses, without memory, of types not computed with.

Who takes `data_ptr()` of one for its bytes kills the process.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


def as_it_lies(tensor: Any) -> Any:
    """The part of this rank of a distributed tensor (DTensor); what a functional collective comes to, waited for."""
    while True:
        if hasattr(tensor, "to_local"):
            tensor = tensor.to_local()
        elif hasattr(tensor, "trigger_wait"):  # AsyncCollectiveTensor
            tensor = tensor.wait()
        else:
            return tensor


def for_notebook() -> dict[type, Callable[[Any], Any]]:
    """Reducers (`codec.encode`) by which distributed tensors (DTensor) travel: as this rank's part, a plain tensor.

    A notebook has no process groups. A DTensor that came there whole would stack to a false one, and warn each time.
    """
    distributed: Any = sys.modules.get("torch.distributed.tensor")
    kind = getattr(distributed, "DTensor", None)
    return {} if kind is None else {kind: _as_part}


def _as_part(tensor: Any) -> Any:
    torch: Any = sys.modules["torch"]
    part = as_it_lies(tensor.detach()).detach()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter, (part, tensor.requires_grad)
    return _same, (part.requires_grad_(tensor.requires_grad),)


def _same(tensor: Any) -> Any:
    return tensor


def shard_of(tensor: Any) -> str:
    """Which part of a distributed tensor (DTensor) this rank has: `dp 1, tp 0`; empty where all have the same.

    One that is still to be summed up (`Partial`) counts as a part, too.
    """
    placements: Any = getattr(tensor, "placements", None)
    mesh: Any = getattr(tensor, "device_mesh", None)
    if not placements or mesh is None or (coordinate := mesh.get_coordinate()) is None:
        return ""
    names: Any = mesh.mesh_dim_names or range(mesh.ndim)
    axes: Any = zip(names, coordinate, placements, strict=True)
    return ", ".join(f"{name} {place}" for name, place, placement in axes if not placement.is_replicate())


def partial_of(tensor: Any) -> str:
    """How a distributed tensor (DTensor) is still to be combined, in torch's words: `Partial(sum)`; empty if it is not.

    What a rank has of it is no value yet: `clip_grad_norm_` of an FSDP model gives such a norm.
    """
    return ", ".join(repr(each) for each in getattr(tensor, "placements", ()) if each.is_partial())


def parts_of(tensor: Any) -> list[tuple[object, Any]]:
    """The tensors that one of a subclass is made of, where it says that (`__tensor_flatten__`), by name."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return []
    try:
        names, _ = tensor.__tensor_flatten__()
        return [(name, getattr(tensor, name)) for name in names]
    except Exception:  # noqa: BLE001 - of a user's class, or one of torch that is for its compiler only
        return []


def shape_of(tensor: Any) -> tuple[int, ...] | None:
    """The sizes, where all are known: one of a jagged tensor is a symbol."""
    sizes = tuple(tensor.shape)
    return sizes if all(type(size) is int for size in sizes) else None


def is_emptied(tensor: Any) -> bool:
    """Whether its memory was given back (`resize_(0)` of its storage, as FSDP does): to print it ends the process."""
    torch: Any = sys.modules["torch"]
    is_usual = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    is_odd = tensor.is_nested or tensor.is_meta or tensor.is_quantized
    return is_usual and not (is_odd or is_plain(tensor))


def is_plain(tensor: Any) -> bool:
    """Whether its numbers lie in memory, as its shape and strides say."""
    torch: Any = sys.modules["torch"]
    try:
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_meta:
            return False
        if 0 in tensor.shape:
            return True
        storage = tensor.untyped_storage()
        return bool(storage.data_ptr()) and storage.nbytes() > 0  # FSDP empties storages
    except Exception:  # noqa: BLE001 - lazy parameters have no shape, fakes no storage; a user's class may raise anything
        return False


@functools.cache
def is_computed_with(dtype: Any) -> bool:
    """Whether numbers of this type can be made ones that numpy knows (not so bits and 4-bit floats)."""
    torch: Any = sys.modules["torch"]
    try:
        torch.zeros(1, dtype=torch.uint8).repeat(dtype.itemsize).view(dtype).to(torch.complex64)
    except (RuntimeError, NotImplementedError):
        return False
    return True
