"""Which mesh is the active one: torch code within computes there, and not here."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar
from importlib import import_module
from typing import Any, ClassVar

from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import checks_for_caller
from ..mesh import ProcMesh
from ..wire.deferred import untorn, wholly
from .dispatch import dispatcher_of
from .forms import fake_mode

_active: ContextVar[tuple[Activation, ...]] = ContextVar("meshbook_active_mesh", default=())


class Mode(TorchDispatchMode):
    """Makes tensors of a mesh of what is made while it is active."""

    compute: ClassVar[Callable[[Any, Any, Any], Any]]
    """How; tensors themselves say that, which need this module."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        __tracebackhide__ = True
        kwargs = kwargs or {}
        return Mode.compute(func, args, kwargs) if active_mesh() is not None else func(*args, **kwargs)


class _Modes(threading.local):
    """One mode a thread, however many activations there are, also of tasks that take turns: each costs every call."""

    def __init__(self) -> None:
        self._mode: Any = None
        self._count = 0

    def enter(self) -> None:
        self._count += 1
        if self._count == 1:
            self._mode = Mode()
            self._mode.__enter__()

    def leave(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._mode.__exit__(None, None, None)


_modes = _Modes()


class Activation(contextlib.AbstractContextManager["Activation"]):
    """A mesh, or none, is the active one from now on: until the end of the `with` block, where there is one."""

    def __init__(self, procs: ProcMesh | None) -> None:
        if procs is not None:
            _import_compiler()
            dispatcher_of(procs)
        self.procs = procs
        self._is_block = False
        wholly(self._begin, undo=self._end)

    @property
    def is_over(self) -> bool:
        """Was the mesh taken down, with no block that ends it?"""
        return self.procs is not None and not self._is_block and self.procs._fleet.is_stopped

    def __enter__(self) -> Activation:
        self._is_block = True
        return self

    def __exit__(self, *raised: Any) -> None:
        self._end()

    def _begin(self) -> None:
        self._token = _active.set((*(each for each in _active.get() if not each.is_over), self))
        _modes.enter()

    @untorn
    def _end(self) -> None:
        _modes.leave()
        _active.reset(self._token)


@untorn
def _import_compiler() -> None:
    """Torch imports it at its first operation under a mode: for a second, in which Ctrl-C would leave it in pieces."""
    import_module("torch._dynamo")


class _NoMesh:
    """`with no_mesh.activate():` computes here, within the block of a mesh."""

    def activate(self) -> Activation:
        return Activation(None)


no_mesh = _NoMesh()


def active_mesh() -> ProcMesh | None:
    """The mesh on which tensors are made now; None where they are made here."""
    for each in reversed(_active.get()):
        if not each.is_over:
            return each.procs
    return None


@checks_for_caller
def get_active_mesh() -> ProcMesh:
    """The mesh on which tensors are made now. Raises `ValueError` where they are made here."""
    procs = active_mesh()
    if procs is None:
        raise ValueError("no device mesh is active: `with procs.activate():` makes one that")
    return procs


@contextlib.contextmanager
def faking() -> Generator[None]:
    """Torch code in this block computes shapes and types only."""
    with no_mesh.activate(), fake_mode():
        yield
