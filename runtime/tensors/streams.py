"""Streams: which tensors may be used together, and when. Ranks compute in the order of the program all the same.

In Monarch, whose names these are, streams of a GPU work at the same time; a program that is right there is right here.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

import torch

from ..cells import Line
from ..errors import checks_for_caller, marked
from .dispatch import place

if TYPE_CHECKING:
    from .tensor import Tensor


class Stream:
    """A line of operations on distributed tensors. Those that it makes are used by it alone, or by who borrows them.

    Example:
        >>> from meshbook.runtime import this_host
        >>> from meshbook.runtime.tensors import inspect
        >>> copies = Stream("copies")
        >>> with this_host().spawn_procs({"dp": 2}) as procs, procs.activate():
        ...     x = torch.ones(2)
        ...     borrowed, borrow = copies.borrow(x)
        ...     with copies.activate():
        ...         inspect(borrowed + 1)
        ...     borrow.drop()
        tensor([2., 2.])
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def activate(self) -> AbstractContextManager[object]:
        """Operations are those of this stream: from now on, or inside of the `with` block."""
        return _Activation(self)

    @checks_for_caller
    def borrow(self, t: Tensor, mutable: bool = False) -> tuple[Tensor, Borrow]:
        """The same memory as a tensor of this stream, without a gradient, until its borrow, given with it, is dropped.

        Meanwhile neither stream may write to it; with `mutable`, this one may, and the other may not read it either.

        Raises:
            RuntimeError: it is lent already, and one of the two could write.
            TypeError: it is no distributed tensor, or was dropped.
        """
        from .tensor import Tensor, wrapped

        if not isinstance(cast("object", t), Tensor):
            raise TypeError(f"a {type(t).__name__} has no stream: only distributed tensors can be borrowed")
        value = t._alive()
        t._memory.check_lend(mutable)
        borrow = Borrow(t._memory, mutable, place())
        return wrapped(t._form, value, t._procs, self, Memory(borrow)), borrow

    def __str__(self) -> str:
        return f"stream {self.name!r}"

    def __repr__(self) -> str:
        return f"<Stream({self.name!r})>"


class Borrow:
    """That a stream uses what another has made: until `drop()`, the end of a `with` block, or of its last reference."""

    def __init__(self, memory: Memory, is_mutable: bool, where: Line | None) -> None:
        self.memory = memory
        self.is_mutable = is_mutable
        self.where = where
        self.dropped_at = ""
        memory.lend(self)

    def drop(self) -> None:
        """Give it back: the borrowed tensor, and all views of it, cannot be used any more."""
        self.dropped_at = self.dropped_at or str(place())

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.drop()


class Memory:
    """What a tensor and its views have in common: who has borrowed it, and of whom it is borrowed."""

    __slots__ = ("_lent", "_origin", "is_mutable", "is_shared", "lender")

    def __init__(self, origin: Borrow | None = None) -> None:
        self.is_shared = origin is not None  # was it ever lent or borrowed? Mostly there is nothing to be checked
        self._lent: tuple[ref[Borrow], ...] = ()
        self._origin = None if origin is None else ref(origin)
        self.lender = None if origin is None else origin.memory
        self.is_mutable = origin is None or origin.is_mutable

    def lend(self, borrow: Borrow) -> None:
        """From now on it is lent, until the borrow is over or nobody has it any more."""
        self.is_shared = True
        self._lent = (*map(ref, self.lent), ref(borrow))

    @property
    def lent(self) -> list[Borrow]:
        """By which it is lent now."""
        return [borrow for each in self._lent if (borrow := each()) is not None and not borrow.dropped_at]

    @property
    def is_writable(self) -> bool:
        """Whether it is lent to nobody, and borrowed to be written to, if it is."""
        return not self.is_shared or (self.is_mutable and not self.lent)

    @property
    def dropped_at(self) -> str:
        """Where the borrow of what is borrowed was dropped; empty while it goes on."""
        if self._origin is None or self.lender is None:
            return ""
        origin = self._origin()
        return "the end of the last reference to it" if origin is None else origin.dropped_at or self.lender.dropped_at

    def check_lend(self, mutable: bool) -> None:
        """Raises `RuntimeError` where it cannot be lent now; `TypeError` where it is given back already."""
        self._check_kept()
        if mutable and not self.is_writable:
            raise RuntimeError("it cannot be borrowed to be written to: it, or a view of it, is lent already")
        if any(borrow.is_mutable for borrow in self.lent):
            raise RuntimeError("it cannot be borrowed: it, or a view of it, is lent to be written to")

    def _check_kept(self) -> None:
        if where := self.dropped_at:
            raise marked(TypeError(f"this distributed tensor was borrowed, and its borrow is dropped at {where}"))

    def check(self) -> None:
        """Raises `TypeError` where it cannot be read now."""
        self._check_kept()
        if taker := next((borrow for borrow in self.lent if borrow.is_mutable), None):
            why = f"this distributed tensor cannot be read: it is BORROWED, to be written to, at {taker.where}"
            raise marked(TypeError(why))

    def check_write(self) -> None:
        """Raises `TypeError` where it cannot be written to now."""
        if not self.is_writable:
            at = ", ".join(str(borrow.where) for borrow in self.lent)
            why = f"lent at {at}" if at else "borrowed without mutable=True"
            raise marked(TypeError(f"this distributed tensor would be mutated, and is read only: it is {why}"))


_main = Stream("main")

_active: ContextVar[Stream] = ContextVar("meshbook_active_stream", default=_main)


def get_active_stream() -> Stream:
    """The stream of the operations that are made now: `main`, where no other is active."""
    return _active.get()


class _Activation(AbstractContextManager[object]):
    def __init__(self, stream: Stream) -> None:
        self._token = _active.set(stream)

    def __exit__(self, *_: object) -> None:
        _active.reset(self._token)


def check_stream(stream: Stream) -> None:
    """Raises `TypeError` where another stream is active. A backward pass goes through those of the forward pass."""
    active = _active.get()
    backward: Any = torch._C
    if stream is not active and backward._current_graph_task_id() < 0:
        why = f"this distributed tensor is on {stream}, and {active} is active (WRONG_STREAM)"
        raise marked(TypeError(f"{why}: use it under activate() of its stream, or borrow() it"))
