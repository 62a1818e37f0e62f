"""How tensors travel: their memory beside the stream, without a copy; on arrival on the CPU, writable and private.

torch is not imported to look whether something is a tensor.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


class Sent(dict[tuple[object, int, int], Any]):
    """What goes with one message: device, address and size of a tensor's bytes to the tensor."""

    undo: tuple[Callable[[], object], ...] = ()
    """What is to be done if the message cannot be sent: something was put aside for it."""

    def take_back(self) -> None:
        for each in self.undo:
            each()


torch_reducers: dict[type, Callable[[Any, Sent], Any]] = {}
"""By type, how tensors travel that have been met, and such as are known to other modules."""


def learn(kind: type) -> Callable[[Any, Sent], Any] | None:
    """The reducer for a type of torch that is met for the first time; torch is not imported to look."""
    reducer = _TORCH.get((kind.__module__, kind.__name__))
    if reducer is not None:
        torch_reducers[kind] = reducer
    return reducer


def _plainly(function: Function) -> Function:
    """Torch's modes, such as that of distributed tensors, are for the user's code, and messages come within it too."""

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        import torch._C as engine

        if not cast("Any", engine)._len_torch_dispatch_stack():
            return function(*args)
        with cast("Any", engine)._DisableTorchDispatch():
            return function(*args)

    return cast("Function", run)


@_plainly
def _reduce_tensor(tensor: Any, sent: Sent) -> Any:
    """Dense tensors; torch's own code reduces the others, subclasses too, down to tensors and storages."""
    import torch

    is_dense = tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta)
    if not is_dense or tensor.__dict__:
        return NotImplemented
    dtype, shape, nbytes = str(tensor.dtype)[6:], tuple(tensor.shape), tensor.nbytes
    if not nbytes:
        return _empty, (dtype, shape, tensor.requires_grad)
    if not has_memory(tensor):
        return NotImplemented
    address = tensor.data_ptr()
    in_order, stride = tensor, None
    if tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous():
        in_order, stride = _in_memory_order(tensor)
    form = (dtype, shape, stride, tensor.requires_grad)
    if in_order is tensor or stride is not None:  # not a copy: others may be made of the same bytes
        first = sent.setdefault((tensor.device, address, nbytes), tensor)
        if first is not tensor:
            return _alias, (first, *form)
    if not tensor.is_cpu:
        in_order = in_order.detach().cpu()
    return _tensor, (pickle.PickleBuffer(bytes_of(in_order, nbytes)), *form)


def _in_memory_order(tensor: Any) -> tuple[Any, tuple[int, ...] | None]:
    """The tensor with its dimensions in the order of its memory and its strides; or a contiguous copy, None.

    The first where there are no gaps and no overlaps (`x.T`, channels-last): that layout is worth keeping.
    """
    plain = tensor.detach()
    if not (tensor.is_conj() or tensor.is_neg()):
        stride = plain.stride()
        turned = plain.permute(sorted(range(plain.dim()), key=stride.__getitem__, reverse=True))
        if turned.is_contiguous():
            return turned, stride
    return plain.resolve_conj().resolve_neg().contiguous(), None


def has_memory(tensor: Any) -> bool:
    """Whether its storage was not emptied, as FSDP does: `data_ptr()` of a view is not null then, and leads nowhere."""
    storage = tensor.untyped_storage()
    return storage.data_ptr() != 0 and storage.nbytes() > 0


def bytes_of(tensor: Any, nbytes: int) -> Any:
    """The memory of a contiguous tensor as a buffer. NumPy has no bfloat16, and need not be there."""
    memory: Any = (ctypes.c_char * nbytes).from_address(tensor.data_ptr())
    memory.owner = tensor  # keeps the address valid as long as the buffer is used
    return memory


def _reduce_untyped_storage(storage: Any, sent: Sent) -> Any:
    import torch

    return _untyped_storage, (torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage),)


def _reduce_typed_storage(storage: Any, sent: Sent) -> Any:
    return _typed_storage, (storage._untyped_storage, str(storage.dtype)[6:])


_TORCH = {
    ("torch", "Tensor"): _reduce_tensor,
    ("torch.storage", "UntypedStorage"): _reduce_untyped_storage,
    ("torch.storage", "TypedStorage"): _reduce_typed_storage,
}


@_plainly
def _tensor(buffer: Any, dtype: str, shape: Any, stride: Any, requires_grad: bool) -> Any:
    import torch

    flat = torch.frombuffer(buffer, dtype=getattr(torch, dtype))
    return _alias(flat, dtype, shape, stride, requires_grad)


@_plainly
def _alias(tensor: Any, dtype: str, shape: Any, stride: Any, requires_grad: bool) -> Any:
    """Another tensor over the same bytes; not a view, which autograd would tie to the first."""
    import torch

    other = torch.empty(0, dtype=getattr(torch, dtype), device="cpu")
    other.set_(tensor.untyped_storage(), 0, shape, stride or ())
    return other.requires_grad_() if requires_grad else other


@_plainly
def _empty(dtype: str, shape: Any, requires_grad: bool) -> Any:
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype), device="cpu", requires_grad=requires_grad)


def _untyped_storage(tensor: Any) -> Any:
    return tensor.untyped_storage()


def _typed_storage(storage: Any, dtype: str) -> Any:
    import torch

    return torch.storage.TypedStorage(wrap_storage=storage, dtype=getattr(torch, dtype), _internal=True)
