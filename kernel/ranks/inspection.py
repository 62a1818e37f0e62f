"""What a name on a rank stands for: kind, signature, documentation, size, told without running the user's code.

A control thread answers this while cells run, so properties are not asked for, and a default value whose `repr` would
be the user's is named by its type.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from ..sources.source import name_of
from ..values.names import held_in
from .completion import NOTHING, looked_up

_LONGEST = 20_000
"""Characters of a documentation that are told."""

_mro: Any = type.__dict__["__mro__"]
_PLAIN = (int, float, bool, complex, str, bytes, type(None), type(...))


def inspect_name(path: str, names: Mapping[str, object]) -> str:
    """What a dotted name stands for, in lines; empty if reading it would run code, or there is none.

    Example:
        >>> def area(r, *, pi=3.14):
        ...     "Of a circle."
        >>> print(inspect_name("area", {"area": area}))
        Signature: area(r, *, pi=3.14)
        Docstring: Of a circle.
        Type: function
    """
    *owners, last = path.split(".")
    found = looked_up(owners, names) if owners else names.get(last, NOTHING)
    if owners and found is not NOTHING:
        found = _member(found, last)
    return "" if found is NOTHING else "\n".join(_lines(last, found))


def _member(owner: Any, name: str) -> Any:
    if isinstance(owner, ModuleType):
        return vars(owner).get(name, NOTHING)
    found = inspect.getattr_static(owner, name, NOTHING)
    return found.__func__ if type(found) in (staticmethod, classmethod) else found


def _lines(name: str, found: Any) -> Iterator[str]:
    function = _function_of(found)
    if function is not None:
        yield f"Signature: {name}{_signature(function, is_bound=type(found) is not FunctionType)}"
    [held] = held_in({"it": found}, {})
    facts = [("Value", held.value), ("Shape", held.shape), ("Dtype", held.dtype), ("Device", held.device)]
    facts += [("Length", held.length), ("Parameters", held.num_params), ("Bytes", held.nbytes)]
    yield from (f"{label}: {fact}" for label, fact in facts if fact is not None)
    if documentation := _documentation(found):
        text = inspect.cleandoc(documentation)[:_LONGEST]
        yield f"Docstring:\n{text}" if "\n" in text else f"Docstring: {text}"
    yield f"Type: {'class' if held.kind == 'class' else held.type_name}"
    code = function.__code__ if type(function) is FunctionType else None
    if code is not None and (cell := name_of(code.co_filename)):
        yield f"File: {cell}, line {code.co_firstlineno}"


def _function_of(found: Any) -> Any:
    """What is called when this is called, where that is known without asking it."""
    if type(found) in (FunctionType, BuiltinFunctionType):
        return found
    if type(found) is MethodType:
        return found.__func__
    if type in _mro.__get__(type(found)):
        init = inspect.getattr_static(found, "__init__", None)
        return init if type(init) is FunctionType else None
    return None


def _signature(function: Any, is_bound: bool) -> str:
    if type(function) is not FunctionType:
        return str(getattr(function, "__text_signature__", None) or "(...)").replace("$module, ", "")
    code, defaults, named = function.__code__, function.__defaults__ or (), function.__kwdefaults__ or {}
    words = list(code.co_varnames[: code.co_argcount])
    given = dict(zip(words[len(words) - len(defaults) :], defaults, strict=True))
    count = code.co_argcount
    parts = [_parameter(word, given) for word in words]
    if code.co_posonlyargcount:
        parts.insert(code.co_posonlyargcount, "/")
    keywords = code.co_varnames[count : count + code.co_kwonlyargcount]
    rest = list(code.co_varnames[count + code.co_kwonlyargcount :])
    if code.co_flags & inspect.CO_VARARGS:
        parts.append(f"*{rest.pop(0)}")
    elif keywords:
        parts.append("*")
    parts += [_parameter(word, named) for word in keywords]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append(f"**{rest.pop(0)}")
    return f"({', '.join(parts[1:] if is_bound and parts else parts)})"


def _parameter(word: str, defaults: Mapping[str, object]) -> str:
    if word not in defaults:
        return word
    value = defaults[word]
    return f"{word}={repr(value) if type(value) in _PLAIN else f'<{type(value).__name__}>'}"


def _documentation(found: Any) -> str:
    if type(found) in (FunctionType, BuiltinFunctionType, MethodType):
        return found.__doc__ or ""
    if isinstance(found, ModuleType):
        return str(vars(found).get("__doc__") or "")
    if type(found) is property:
        return found.__doc__ or ""
    kinds: tuple[type, ...] = _mro.__get__(found if type in _mro.__get__(type(found)) else type(found))
    own = [cast("object", vars(kind).get("__doc__")) for kind in kinds if kind is not object]
    return next((each for each in own if type(each) is str), "")
