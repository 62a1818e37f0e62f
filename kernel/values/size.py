"""How large a value is, before anything of it is copied or pickled."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MethodType, ModuleType
from typing import Any, cast

_BY_NAME = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)
"""What holds much that a pickle does not: a class or function is a name, or a little code."""


def pickles_to_at_least(value: object, enough: int) -> int:
    """Bytes that a pickle of `value` needs, at the least; the count stops once it is over `enough`.

    Sees tensors, arrays and text in containers and in the attributes of objects (a model, an optimizer), and
    runs no code of theirs. Takes time for `enough` bytes only, however large the value is.

    >>> pickles_to_at_least([b"abc", {"k": b"de"}], 100)
    11
    >>> pickles_to_at_least([0] * 1_000_000, 100) > 100
    True
    """
    total, seen, left = 0, set[int](), [value]
    while left and total <= enough:
        item = left.pop()
        total += 1  # for a small number or for the mention of something that was there before
        if _is(item, int, float) or id(item) in seen:
            continue
        seen.add(id(item))
        data = bytes_of_data(item)
        if data is not None:
            total += data
        elif (length := _length(item)) > enough:
            total += length
        else:
            left.extend(_inside(item))
    return total


def walk(values: Iterable[object]) -> Iterator[object]:
    """These values and what is in them (items, attributes), each once, the outer ones first. Runs no code of theirs."""
    seen, left = set[int](), deque(values)
    while left:
        item = left.popleft()
        if _is(item, int, float) or id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        left.extend(_inside(item))


def bytes_of_data(value: object) -> int | None:
    """The size of a text's, array's or dense tensor's data; None for anything else.

    >>> bytes_of_data("abc"), bytes_of_data([1])
    (3, None)
    """
    if _is(value, str, bytes, bytearray):
        return len(cast("str", value))
    if is_tensor(value):
        tensor = getattr(value, "_local_tensor", cast("Any", value))  # of a DTensor the part that is here
        return int(tensor.nbytes) if tensor.layout is sys.modules["torch"].strided else None
    if is_array(value):
        return int(cast("Any", value).nbytes)
    return None


def is_tensor(value: object) -> bool:
    """Is it a `torch.Tensor`? torch is never imported to find out: without it there are none."""
    torch = sys.modules.get("torch")
    return torch is not None and _is(value, torch.Tensor)


def is_array(value: object) -> bool:
    """Is it a `numpy.ndarray`? numpy is never imported to find out."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and _is(value, numpy.ndarray)


def _is(value: object, *kinds: type) -> bool:
    """What `isinstance` says, without asking for `__class__`: of a proxy that is a property, which may raise."""
    return issubclass(type(value), kinds)


def _length(value: Any) -> int:
    return len(value) if _is(value, dict, list, tuple, set, frozenset) else 0


def _inside(value: Any) -> list[object]:
    """What a container or an object holds, one step deep."""
    if _is(value, *_BY_NAME) or is_tensor(value):
        return []
    attributes = _attributes(value).values()
    if _is(value, dict):
        return [*value, *value.values(), *attributes]
    if _is(value, list, tuple, set, frozenset):
        return [*value, *attributes]
    return list(attributes)


def _attributes(value: object) -> dict[str, object]:
    """Those that it has of its own; none if it has slots, or is written in C. A class may make more of `__dict__`."""
    mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(type(value))
    for cls in mro:
        own = cls.__dict__.get("__dict__")
        if type(own) is GetSetDescriptorType:
            return own.__get__(value)
    return {}
