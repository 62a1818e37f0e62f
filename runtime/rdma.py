"""Buffers: memory of one process that others read and write, without the actor that made it taking part.

Names and meanings follow `monarch.rdma`. What travels goes as the contents of messages do: within a host through shared
memory, between hosts by way of the controller. There is no RDMA hardware underneath, and on hosts of their own large
arrays are better sent by `torch.distributed`.
"""

# pyright: reportPrivateUsage=false
# Meshes keep their members private: every public one is a name that no endpoint of an actor can have.

from __future__ import annotations

import contextvars
import ctypes
import pickle
import secrets
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn, Self

from .actor import Actor, endpoint
from .adverbs import view_of
from .errors import checks_for_caller
from .future import Future, Promise, check_timeout
from .here import node
from .mesh import ActorMesh
from .node import frames_of, to_nobody
from .numbers import KEEPER
from .scope import context
from .wire import codec, torch_forms
from .wire.messages import Spawn

if TYPE_CHECKING:
    import torch

PIECE = 64 << 20
"""Bytes that travel in one message: a buffer may be larger than what is free of the shared memory."""

_held: dict[int, _Memory] = {}
"""The memory of this process that others can reach, by number."""

_making = threading.Lock()  # of the keeper of this process: actors make their first buffers on different threads


class RDMATcpFallbackWarning(RuntimeWarning):
    """Monarch's, for buffers without hardware; here none is ever given."""


class RDMAReadTransferWarning(RuntimeWarning):
    """Monarch's; here none is ever given."""


class RDMAWriteTransferWarning(RuntimeWarning):
    """Monarch's; here none is ever given."""


def get_rdma_backend() -> str:
    """What carries the bytes: `"tcp"` is Monarch's word for anything but hardware."""
    return "tcp"


def is_ibverbs_available() -> bool:
    """Whether hardware carries the bytes: never."""
    return False


def is_rdma_available() -> bool:
    """The same, by an older name."""
    warnings.warn("is_rdma_available is deprecated: use get_rdma_backend()", DeprecationWarning, stacklevel=2)
    return False


class RDMABuffer:
    """A handle to memory of the process that makes it: a tensor of one dimension, or a memoryview. Can be sent.

    Nothing is copied: who reads gets what the memory holds then. The memory is kept until `drop`, or the process ends.

    Raises `ValueError` for memory that is empty, not contiguous or of several dimensions.

    Example:
        >>> weights = memoryview(bytearray(b"1234"))
        >>> buffer = RDMABuffer(weights)  # send it to an actor, which reads it
        >>> copy = memoryview(bytearray(4))
        >>> buffer.read_into(copy).get()
        >>> bytes(copy), buffer.size()
        (b'1234', 4)
        >>> buffer.drop().get()
    """

    backend = "tcp"

    @checks_for_caller
    def __init__(self, data: torch.Tensor | memoryview) -> None:
        memory = _Memory.of(data)
        if not memory.nbytes:
            raise ValueError("Cannot create RDMABuffer with size 0.")
        self._size = memory.nbytes
        self._number = secrets.randbits(62)
        self._keeper = _own_keeper()
        self.owner = f"{context().actor_instance.proc_id}.buffers"
        """The process that has the memory, as text."""
        _held[self._number] = memory

    def size(self) -> int:
        """Bytes."""
        return self._size

    def read_into(self, dst: torch.Tensor | memoryview, *, timeout: float = 60) -> Future[None]:
        """Copy it into memory of this process, which may be larger. Begins at once; done when it is there.

        Raises `ValueError` for memory that is smaller, or cannot be written.
        """
        return RDMAAction().read_remote(dst, self).submit(timeout=timeout)

    def write_from(self, src: torch.Tensor | memoryview, *, timeout: float = 60) -> Future[None]:
        """Copy memory of this process into it, from its beginning. Begins at once; done when it is there.

        Raises `ValueError` for memory that is larger.
        """
        return RDMAAction().write_remote(self, src).submit(timeout=timeout)

    def drop(self) -> Future[None]:
        """Let go of the memory; reads and writes fail from then on. Again, it does nothing."""
        return self._keeper.drop.call_one(self._number)

    def _read(self, memory: _Memory, left: Callable[[], float]) -> None:
        own = _held.get(self._number)
        for start, size in _pieces(self._size):
            piece = own.read(start, size) if own else self._keeper.read.call_one(self._number, start, size).get(left())
            memory.write(start, piece)

    def _write(self, memory: _Memory, left: Callable[[], float]) -> None:
        own = _held.get(self._number)
        for start, size in _pieces(memory.nbytes):
            piece = memory.read(start, size)
            if own is not None:
                own.write(start, piece)
            else:
                self._keeper.write.call_one(self._number, start, pickle.PickleBuffer(piece)).get(left())

    def __repr__(self) -> str:
        return f"<RDMABuffer of {self._size} bytes at {self.owner}>"


class RDMAAction:
    """Reads and writes that are done together, in the order in which they were added.

    Example:
        >>> one, two = memoryview(bytearray(b"one")), memoryview(bytearray(b"two"))
        >>> source, target = RDMABuffer(one), RDMABuffer(two)
        >>> copy = memoryview(bytearray(3))
        >>> RDMAAction().read_remote(copy, source).write_remote(target, copy).submit().get()
        >>> bytes(two)
        b'one'
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[Callable[[], float]], None]] = []
        self._targets: list[tuple[int, int]] = []  # memory of this process that is written to: where, and how much

    def read_remote(self, dst: torch.Tensor | memoryview, src: RDMABuffer) -> Self:
        """Add a copy of a buffer into memory of this process.

        Raises `ValueError` for memory that is smaller, cannot be written, or overlaps with that of another read.
        """
        memory = _Memory.of(dst)
        if memory.nbytes < src.size():
            raise ValueError(
                f"destination local memory size ({memory.nbytes}) must be >= remote buffer size ({src.size()})"
            )
        if memory.is_readonly:
            raise ValueError("the destination cannot be written: it is a read-only memoryview")
        start, end = memory.address, memory.address + src.size()
        if any(start < other + size and other < end for other, size in self._targets):
            raise ValueError("the destination overlaps with that of another read of this action")
        self._targets.append((start, src.size()))
        self._steps.append(lambda left: src._read(memory, left))
        return self

    def write_remote(self, dst: RDMABuffer, src: torch.Tensor | memoryview) -> Self:
        """Add a copy of memory of this process into a buffer. Raises `ValueError` for memory that is larger."""
        memory = _Memory.of(src)
        if memory.nbytes > dst.size():
            raise ValueError(f"source local memory size ({memory.nbytes}) must be <= remote buffer size ({dst.size()})")
        self._steps.append(lambda left: dst._write(memory, left))
        return self

    def submit(self, *, timeout: float = 60) -> Future[None]:
        """Begin; done when all are, and fails with the first that fails, or `TimeoutError`. May be submitted again."""
        check_timeout(timeout)
        promise: Promise[None] = Promise()
        deadline, steps = time.monotonic() + timeout, list(self._steps)

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        def work() -> None:
            try:
                for step in steps:
                    step(left)
            except Exception as error:  # noqa: BLE001 - it is the caller's, who gets it from the future
                promise.fail(error)
            else:
                promise.resolve(None)

        run = contextvars.copy_context().run  # it calls as who submits it
        threading.Thread(target=run, args=(work,), name="meshbook-buffers", daemon=True).start()
        return promise.future

    def fetch_add(self, src: RDMABuffer, dst: torch.Tensor | memoryview, add: int) -> NoReturn:
        """Not here, as in Monarch."""
        raise NotImplementedError("fetch_add needs hardware: call an endpoint of the owner instead")

    def compare_and_swap(self, src: RDMABuffer, dst: torch.Tensor | memoryview, compare: int, swap: int) -> NoReturn:
        """Not here, as in Monarch."""
        raise NotImplementedError("compare_and_swap needs hardware: call an endpoint of the owner instead")


class _Keeper(Actor):
    """Hands out the memory of its process, whatever the other actors there are doing."""

    _is_careful = True

    @endpoint
    def read(self, number: int, start: int, size: int) -> Any:
        return pickle.PickleBuffer(_find(number).read(start, size))

    @endpoint
    def write(self, number: int, start: int, piece: Any) -> None:
        _find(number).write(start, piece)

    @endpoint
    def drop(self, number: int) -> None:
        _held.pop(number, None)


def _find(number: int) -> _Memory:
    if number not in _held:
        raise ValueError("there is no such RDMABuffer any more: it was dropped, or has gone with its process")
    return _held[number]


def _own_keeper() -> Any:
    """The keeper of this process, made at the first buffer."""
    here = node()
    own = here.own_procs()
    with _making:
        if KEEPER not in here.residents:
            payload = codec.encode((_Keeper, (), dict[str, Any](), None))
            here.receive(Spawn(0, KEEPER, "buffers", view_of(own._shape)), frames_of(payload), to_nobody)
    return ActorMesh(own._fleet, own._shape, KEEPER, "buffers", _Keeper)


def _pieces(size: int) -> Generator[tuple[int, int]]:
    """Where each piece begins, and how long it is."""
    for start in range(0, size, PIECE):
        yield start, min(PIECE, size - start)


class _Memory:
    """Contiguous bytes: of a memoryview, or of a tensor on whatever device."""

    def __init__(self, view: memoryview | None, tensor: Any, address: int) -> None:
        self.nbytes: int = view.nbytes if view is not None else tensor.nbytes
        self.address = address
        self.is_readonly = view is not None and view.readonly
        self._view = view
        self._tensor = tensor  # bytes on an accelerator; copied by way of the host

    @classmethod
    def of(cls, data: Any) -> _Memory:
        """Raises `ValueError` for what is no contiguous memory of one dimension."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(data, torch.Tensor):
            return cls._of_tensor(data, torch)
        if not isinstance(data, memoryview):
            raise _unfit(f"a {type(data).__name__}")
        if data.ndim != 1 or not data.c_contiguous:
            raise _unfit(f"a memoryview of shape {data.shape}")
        view = data.cast("B")
        return cls(view, None, _address(view))

    @classmethod
    def _of_tensor(cls, tensor: Any, torch: Any) -> _Memory:
        if tensor.dim() != 1 or not tensor.is_contiguous():
            how = "" if tensor.is_contiguous() else ", which is not contiguous"
            raise _unfit(f"a tensor of shape {tuple(tensor.shape)}{how}")
        if tensor.is_conj() or tensor.is_neg():
            raise ValueError(
                "a tensor that is conjugated or negated when it is read has other numbers in its memory: "
                "lend tensor.resolve_conj().resolve_neg()"
            )
        if tensor.nbytes and not (tensor.data_ptr() and torch_forms.has_memory(tensor)):
            raise ValueError(
                f"there is no memory here behind {tensor!r}: give an actor its shards, and lend these there"
            )
        if tensor.is_cpu:
            return cls(memoryview(torch_forms.bytes_of(tensor, tensor.nbytes)).cast("B"), None, tensor.data_ptr())
        return cls(None, tensor.detach().view(torch.uint8), tensor.data_ptr())

    def read(self, start: int, size: int) -> memoryview:
        if self._view is not None:
            return self._view[start : start + size]
        piece = self._tensor[start : start + size].cpu()
        return memoryview(torch_forms.bytes_of(piece, size)).cast("B")

    def write(self, start: int, piece: Any) -> None:
        if self._view is not None:
            self._view[start : start + len(piece)] = memoryview(piece).cast("B")
        else:
            import torch

            data = torch.frombuffer(bytearray(piece), dtype=torch.uint8)
            self._tensor[start : start + len(data)].copy_(data)


def _unfit(what: str) -> ValueError:
    return ValueError(
        f"RDMABuffer only supports 1d contiguous torch.Tensor or 1d c-contiguous memoryview, not {what}: "
        "say tensor.view(torch.uint8).flatten()"
    )


def _address(view: memoryview) -> int:
    """Where it begins; of one that cannot be written it is of no interest."""
    return 0 if view.readonly or not view.nbytes else ctypes.addressof(ctypes.c_char.from_buffer(view))
