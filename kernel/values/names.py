"""What a namespace holds: names with type and size, found without running a line of the user's code.

A rank answers this on its control thread while its main thread works. So nothing here asks an object anything that
its class may have redefined: types are read by `type`'s own descriptors, sizes by those of the known base classes,
attributes from the instance's own dict. `isinstance` is not used either: it looks at `__class__`, which may be a
property.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, cast

import msgspec

Kind = Literal["value", "function", "class", "module"]

MOST = 2_000
"""Names of one rank that are told."""

_CONTAINERS = (list, tuple, dict, set, frozenset, str, bytes, bytearray)
_NUMBERS = (int, float, bool, complex, type(None))
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)
_qualname: Any = type.__dict__["__qualname__"]
_mro: Any = type.__dict__["__mro__"]


class Held(msgspec.Struct, frozen=True, array_like=True):
    """One name of a rank, and what stands behind it. What is not known is None."""

    name: str
    kind: Kind
    type_name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    nbytes: int | None = None
    length: int | None = None
    """Of a container or a text."""
    num_params: int | None = None
    """Of a torch module."""
    value: str | None = None
    """Of a number or short text."""


def held_in(names: Mapping[str, object], given: Mapping[str, object]) -> list[Held]:
    """What the user has put into a namespace: not what is there as `given`, and nothing with an underscore in front.

    Example:
        >>> [(each.name, each.type_name, each.length) for each in held_in({"rank": 0, "_x": 1, "a": [2]}, {"rank": 0})]
        [('a', 'list', 1)]
    """
    nothing = object()
    users = [
        name
        for name, value in dict(names).items()  # a copy: the main thread may add names meanwhile
        if not name.startswith("_") and given.get(name, nothing) is not value
    ]
    return [held_of(name, names[name]) for name in sorted(users)[:MOST] if name in names]


def held_of(name: str, value: object) -> Held:
    """What stands behind a name."""
    kind = type(value)
    bases: tuple[type, ...] = _mro.__get__(kind)
    type_name: str = _qualname.__get__(kind)
    if _is_among(ModuleType, bases):
        return Held(name, "module", "module")
    if _is_among(type, bases):
        return Held(name, "class", _qualname.__get__(value))
    if _is_among(kind, _FUNCTIONS):
        return Held(name, "function", type_name)
    return Held(name, "value", type_name, **_facts(value, bases))


def _is_among(base: Any, bases: tuple[type, ...]) -> bool:
    return any(each is base for each in bases)  # `in` would ask a metaclass whether they are equal


def _facts(value: Any, bases: tuple[type, ...]) -> dict[str, Any]:
    if _is_among(type(value), _NUMBERS):
        text = repr(value) if type(value) is not int or value.bit_length() < 128 else f"{value.bit_length()} bits"
        return {"value": text}
    for base in _CONTAINERS:
        if _is_among(base, bases):
            length = cast("Any", base).__len__(value)
            return {"length": length} | ({"value": repr(value)} if type(value) is str and length <= 40 else {})
    torch, numpy, pandas = (sys.modules.get(name) for name in ("torch", "numpy", "pandas"))
    if torch is not None and _is_among(torch.Tensor, bases):
        return _of_tensor(torch, value)
    if torch is not None and _is_among(torch.nn.Module, bases):
        return _of_module(torch, value)
    if numpy is not None and _is_among(numpy.ndarray, bases):
        array = numpy.ndarray
        nbytes = array.nbytes.__get__(value)
        return {"shape": array.shape.__get__(value), "dtype": str(array.dtype.__get__(value)), "nbytes": nbytes}
    if pandas is not None and _is_among(type(value), (pandas.DataFrame, pandas.Series)):
        return {"shape": value.shape}
    return {}


def _of_tensor(torch: Any, tensor: Any) -> dict[str, Any]:
    """What C knows of a tensor: a subclass may redefine its attributes, and its `__torch_function__` hears of each."""
    base = torch._C.TensorBase
    with torch._C.DisableTorchFunctionSubclass():
        try:
            sizes, dtype = tuple(base.shape.__get__(tensor)), str(base.dtype.__get__(tensor))
            device, nbytes = str(base.device.__get__(tensor)), base.numel(tensor) * base.element_size(tensor)
        except RuntimeError:  # nested tensors have no shape
            return {}
    shape = sizes if all(type(size) is int for size in sizes) else None  # of a jagged one, one is a symbol
    return {"shape": shape, "dtype": dtype, "device": device, "nbytes": nbytes}


def _of_module(torch: Any, module: Any) -> dict[str, Any]:
    found = {id(each): each for each in _parameters(torch.nn.Module.__dict__["__dict__"], module, set())}
    base = torch._C.TensorBase
    with torch._C.DisableTorchFunctionSubclass():
        sizes = [(base.numel(each), base.element_size(each)) for each in found.values()]
    return {"num_params": sum(count for count, _ in sizes), "nbytes": sum(count * size for count, size in sizes)}


def _parameters(own: Any, module: Any, seen: set[int]) -> Iterator[Any]:
    """Those of a module and of the modules in it, from their dicts; `own` is the descriptor of a module's dict."""
    if module is None or id(module) in seen:
        return
    seen.add(id(module))
    attributes: dict[str, dict[str, Any]] = own.__get__(module)
    yield from [each for each in _values(attributes.get("_parameters", {})) if each is not None]
    for below in _values(attributes.get("_modules", {})):
        yield from _parameters(own, below, seen)


def _values(held: dict[str, Any]) -> list[Any]:
    return list(cast("Any", dict).values(held))  # of `dict` itself, whatever its subclass does
