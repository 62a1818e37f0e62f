"""What the error that ended a cell has left for a debugger: its frames, and the memory that only they hold.

Of an error for want of memory nothing is kept but a text: to run the cell again would else need twice the memory.
"""

from __future__ import annotations

import gc
import inspect
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, cast

from ...runtime.ranks.failure import plain_name, plain_traceback
from ...runtime.ranks.users import is_users
from ..values.size import bytes_of_data, is_array, is_tensor, walk
from .brief import safe_text
from .places import line_text, place_of

MOST_SECONDS = 0.005
"""The search for what frames hold ends after this; what was found until then is told."""

_MOST_LOCALS = 40
_MOST_FRAMES = 16
_OF_TORCH = ("can't allocate memory", "not enough memory")


def num_bytes(error: BaseException, names: Mapping[str, object], enough: int = 1) -> int:
    """Bytes of tensors, arrays and texts that the frames of an error hold, and the namespace `names` does not.

    Where they hold less than `enough`, it is not looked up what the namespace holds.

    Example:
        >>> def fail():
        ...     batch = bytearray(1_000_000)
        ...     raise ValueError
        >>> try:
        ...     fail()
        ... except ValueError as error:
        ...     num_bytes(error, {}) // 1_000_000
        1
    """
    own = dict(_stores(value for frame, _ in _functions(error) for value in list(frame.f_locals.values())))
    if sum(own.values()) < enough:
        return sum(own.values())
    return sum(own[key] for key, _ in own.items() - {*_stores(list(names.values()))})


def _stores(values: Iterable[object]) -> Iterator[tuple[int, int]]:
    """Where data lies that these hold, and how large it is: two views of one tensor give the same."""
    end = time.monotonic() + MOST_SECONDS
    for value in walk(values):
        if time.monotonic() > end:
            return
        size = bytes_of_data(value)
        if size:
            yield _store_of(value, size)


def _store_of(value: Any, size: int) -> tuple[int, int]:
    if is_tensor(value):
        try:
            storage = value.untyped_storage()
            return storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError):  # a tensor without one: functional, meta, of a subclass
            return id(value), 0
    while is_array(value) and is_array(value.base):
        value = value.base
    return id(value), size if not is_array(value) else int(value.nbytes)


def is_out_of_memory(error: BaseException) -> bool:
    """Did memory run out, of the host or of a GPU?

    Example:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError())
        (True, False)
    """
    is_by_type = issubclass(type(error), MemoryError) or plain_name(error) == "OutOfMemoryError"
    return is_by_type or (type(error) is RuntimeError and any(words in str(error) for words in _OF_TORCH))


def summary_of(error: BaseException) -> str:
    """The frames of an error with their locals, as a text that keeps none of them. Runs no code of the user's."""
    entries = list(traceback.walk_tb(plain_traceback(error)))
    users = [entry for entry in entries if is_users(entry[0].f_code.co_filename)]
    lines: list[str] = []
    for frame, line in (users or entries)[-_MOST_FRAMES:]:
        lines += [f"{place_of(frame, line)}   {line_text(frame, line)}".rstrip(), *locals_of(frame)]
    return "\n".join(lines)


def locals_of(frame: FrameType) -> list[str]:
    """The local variables of a function's frame, a line each; of a cell's own lines none: they are its names."""
    if not is_function(frame.f_code):
        return []
    found = list(cast("dict[str, object]", frame.f_locals).items())
    more = [f"    … {len(found) - _MOST_LOCALS} more"] if len(found) > _MOST_LOCALS else []
    return [*(f"    {name} = {safe_text(value)}" for name, value in found[:_MOST_LOCALS]), *more]


def is_function(code: CodeType) -> bool:
    """Has it variables of its own?"""
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def let_go(error: BaseException) -> None:
    """Free what the frames of an error hold, also where somebody keeps the error.

    `traceback.clear_frames` is not enough before Python 3.13: a frame whose `f_locals` was read keeps a copy.
    """
    for each in _family(error):
        for frame, _ in traceback.walk_tb(plain_traceback(each)):
            _clear(frame)
        BaseException.__dict__["__traceback__"].__set__(each, None)
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()


def _clear(frame: FrameType) -> None:
    try:
        frame.clear()
    except RuntimeError:  # it runs: a frame of ours, or of a coroutine that went on
        return
    if is_function(frame.f_code):
        _ = frame.f_locals  # reading it again brings the copy up to date: nothing is left in it


def _functions(error: BaseException) -> list[tuple[FrameType, int]]:
    entries = [entry for each in _family(error) for entry in traceback.walk_tb(plain_traceback(each))]
    return [entry for entry in entries if is_function(entry[0].f_code)]


def _own(cls: type, name: str, error: BaseException) -> Any:
    """An attribute as Python has it, whatever the class of the error makes of it."""
    return cls.__dict__[name].__get__(error)


def _family(error: BaseException) -> list[BaseException]:
    """An error with its causes, and those that it groups."""
    found: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in found:
            continue
        found[id(each)] = each
        left += [_own(BaseException, "__cause__", each), _own(BaseException, "__context__", each)]
        if issubclass(type(each), BaseExceptionGroup):
            left += _own(BaseExceptionGroup, "exceptions", each)
    return list(found.values())
