"""Functions of the program that are called on every rank with its shards."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch.utils import _pytree as pytree

from .tensor import Tensor, fakes_of, faking, get_active_mesh, issue, mesh_of


class Remote:
    """A function that runs on the ranks. Its distributed arguments are shards there; what it gives is distributed."""

    def __init__(self, function: Callable[..., Any] | str, propagate: Callable[..., Any] | None) -> None:
        self._function = function
        self._propagate = propagate

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it on the mesh of the arguments, or on the active one.

        Raises `TypeError` where there is none.
        """
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        procs = mesh_of(tensors) if tensors else get_active_mesh()
        if procs is None:
            raise TypeError("on which ranks? Give it a distributed tensor, or call it under procs.activate()")
        results = None
        if self._propagate is not None:
            with faking():
                results = self._propagate(*fakes_of(args), **fakes_of(kwargs))
        return issue(procs, _Call(self._function, self._propagate is not None), args, kwargs, results)


def remote(function: Callable[..., Any] | str, *, propagate: Callable[..., Any] | None = None) -> Remote:
    """A function, or one that ranks import by its name (`"module.name"`), to call with distributed tensors.

    `propagate` is called here with tensors that have no values, and gives some of the shapes and types that the
    function will give; without it, what the function gives is not kept.

    Example:
        norm = remote(lambda x: x.norm().reshape(1), propagate=lambda x: x.new_empty(1))
    """
    if isinstance(function, str) and "." not in function:
        raise ValueError(f"{function!r} names no function: say 'module.name'")
    return Remote(function, propagate)


class _Call:
    """What ranks do with a function."""

    def __init__(self, function: Callable[..., Any] | str, is_kept: bool) -> None:
        self._function = function
        self._is_kept = is_kept

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function: Any = self._function
        if isinstance(function, str):
            module, _, name = function.rpartition(".")
            function = getattr(import_module(module), name)
        result = function(*args, **kwargs)
        return result if self._is_kept else None
