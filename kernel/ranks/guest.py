"""Functions of the notebook that run on a rank: they come by value, and live in the namespace of its cells.

A function of a notebook is pickled with the names of the notebook that it uses. cloudpickle rebuilds it over a
dictionary of its own, where nothing that cells have made on the rank can be found, and from which `global` leads
nowhere. Here its globals are the namespace of the cells.
"""

from __future__ import annotations

import inspect
import io
import linecache
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from ...runtime.cells import cell_of
from ...runtime.wire import codec
from ..sources.source import remember, renamed

OF_RANKS = frozenset({"mesh", "rank", "world_size", "local_rank", "device", "coord", "group", "get_ipython", "display"})
"""Names that mean something else on every rank: those of the notebook stay at home."""

Lines = tuple[str, str, str]
"""A file of the notebook, the file name that stands for it on ranks, and its text."""

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def pack(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> codec.Encoded:
    """A call, as `Guests.admit` takes it.

    Raises:
        EncodeError: the function uses, or an argument holds, what cannot be pickled.
    """
    return codec.encode((_without_names_of_ranks(function), args, kwargs))


def cells_among(files: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Those of these files that are cells of this notebook: file, name (`cell 5`) and text."""
    for file in files:
        if name := cell_of(file):
            yield file, name, "".join(linecache.getlines(file))


class Guests:
    """Lets functions in, one call at a time, and tidies up after them.

    What such a function finds under a name: what the rank is born with (`rank`, `device`, ...); else what the
    notebook had when it was called; else what cells have made here. What it makes `global` stays. A name that came
    with it stays as well, unless the rank has one of its own: that holds again after the call.

    Example:
        >>> def total():
        ...     return [base, step]
        >>> total = FunctionType(total.__code__, {"__name__": "__main__", "step": 2, "total": None}, "total")
        >>> names = {"__name__": "__main__", "rank": 3}
        >>> guests = Guests(names)
        >>> names.update(base=40, step=1)
        >>> packed = pack(total, (), {})
        >>> with guests.admit(packed.head, packed.buffers, ()) as (function, args, kwargs):
        ...     function()
        [40, 2]
        >>> names["step"]
        1
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._born = frozenset(names) | OF_RANKS | {"__builtins__"}
        self.brought: dict[str, object] = {}
        """What came with functions and stands here still, by name."""
        self._files: dict[str, str] = {}

    @contextmanager
    def admit(self, head: bytes, buffers: Sequence[Any], lines: Sequence[Lines]) -> Generator[Call]:
        """A call that `pack` has packed, with the names it came with."""
        for file, here, text in lines:
            if self._files.setdefault(file, here) is here:
                remember(text, here, 1)
        before = self._names.copy()
        came: dict[str, object] = {}
        try:
            try:
                call: Call = self._load(head, buffers)
            finally:
                came = {name: value for name, value in self._names.items() if before.get(name, came) is not value}
                self._put_back(before, [name for name in came if name in self._born])
            yield call
        finally:
            unbound = [name for name, value in came.items() if self._names.get(name) is value]
            own = [name for name in unbound if name in before and before[name] is not self.brought.get(name, came)]
            self._put_back(before, own)
            self.brought.update({name: came[name] for name in unbound if name not in own})

    def forget_gone(self) -> None:
        """Something has run here: what it has deleted or replaced is to be freed."""
        self.brought = {name: value for name, value in self.brought.items() if self._names.get(name) is value}

    def _put_back(self, before: Mapping[str, object], names: Sequence[str]) -> None:
        for name in names:
            if name in before:
                self._names[name] = before[name]
            else:
                self._names.pop(name, None)

    def _load(self, head: bytes, buffers: Sequence[Any]) -> Any:
        writable = [bytearray(each) if memoryview(each).readonly else each for each in buffers]
        return _Unpickler(io.BytesIO(head), writable, self._housed).load()

    def _housed(self, make: Callable[..., FunctionType]) -> Callable[..., FunctionType]:
        """A maker of functions that gives those of the notebook the namespace of the cells."""

        def make_here(code: CodeType, names: dict[str, Any], *rest: Any) -> FunctionType:
            is_notebooks = names.get("__name__") == "__main__"
            return make(renamed(code, self._files), self._names if is_notebooks else names, *rest)

        return make_here


class _Unpickler(pickle.Unpickler):
    """Reads what cloudpickle wrote, with a maker of functions of ours around its own."""

    def __init__(self, file: io.BytesIO, buffers: Sequence[Any], housed: Callable[[Any], Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._housed = housed

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        found = super().find_class(module_name, global_name)
        is_maker = global_name == "_make_function" and module_name.startswith("cloudpickle")
        return self._housed(found) if is_maker else found


def _without_names_of_ranks(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the notebook that finds these names on the rank, whatever the notebook calls by them."""
    if not inspect.isfunction(function) or function.__module__ != "__main__":
        return function
    if not OF_RANKS.intersection(function.__code__.co_names, function.__globals__):
        return function
    names = {name: value for name, value in function.__globals__.items() if name not in OF_RANKS}
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    copy.__module__ = function.__module__
    copy.__dict__.update(function.__dict__)
    return copy
