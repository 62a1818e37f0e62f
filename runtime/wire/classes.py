"""Classes that travel by value, to where they are known already.

With each instance cloudpickle sends all of its class, and where that has come before it is set again: what was counted
up or kept in class attributes there would be as it is here, and an answer of a rank would change a class of the
program's own. So each attribute goes with a mark, a new one whenever it has been given another value. A class is never
changed in the process that made it; elsewhere those attributes are set that have got another mark, but for those that
were changed there, too.

Marks know nothing of what is changed in place: an item of a dict that is an attribute, or that a method finds in a
global. So a class that actors are about to be made of comes whole, as in Monarch: they are to see what is here now.
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MemberDescriptorType
from typing import Any, Final, cast
from weakref import ref

from cloudpickle import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

_set_all: Any = cloudpickle._class_setstate  # pyright: ignore
_make_class: Any = cloudpickle._make_skeleton_class  # pyright: ignore

KEPT_AS: Final = "_abc_meshbook"
"""The attribute of a class that its marks are kept as. Protocols take no notice of what is called so, for `abc`."""

_REGISTRY: Final = "_abc_impl"  # cloudpickle's, made anew each time

_State = tuple[dict[str, Any], dict[str, Any], dict[str, str]]  # attributes, slots, marks

_numbers = itertools.count(1)
_process = (0, "")


class Marks:
    """What is known of the attributes of one class."""

    def __init__(self, is_copy: bool) -> None:
        self.is_copy = is_copy
        """Whether it was made elsewhere."""
        self._known: dict[str, tuple[tuple[object, ...], str]] = {}

    def __reduce__(self) -> tuple[type[Marks], tuple[bool]]:
        return Marks, (True,)  # somebody else pickles the class

    def of(self, attributes: Mapping[str, Any]) -> dict[str, str]:
        """Their marks, new ones for those that have changed since they were asked for last."""
        found: dict[str, str] = {}
        for name, value in attributes.items():
            if name != _REGISTRY:
                parts, (former, mark) = tuple(_parts(value)), self._known.get(name, ((), ""))
                if len(parts) != len(former) or not all(map(operator.is_, parts, _now(former))):
                    mark = _new_mark()
                    self._known[name] = _kept(parts), mark
                found[name] = mark
        return found

    def fresh(self, cls: type, attributes: Mapping[str, Any], marks: Mapping[str, str]) -> dict[str, Any]:
        """Those of the attributes that have come with other marks than before, and were not changed here."""
        return {name: value for name, value in attributes.items() if self._is_fresh(cls, name, marks.get(name))}

    def _is_fresh(self, cls: type, name: str, mark: str | None) -> bool:
        if mark is None or name not in self._known:
            return True
        parts, known = self._known[name]
        return known != mark and cls.__dict__.get(name, self) is next(_now(parts))

    def gone(self, attributes: Mapping[str, Any]) -> list[str]:
        """What had come before, and is no attribute any more."""
        return [name for name in self._known if name not in attributes]

    def learn(self, attributes: Mapping[str, Any], marks: Mapping[str, str]) -> None:
        """These have been set."""
        for name, value in attributes.items():
            if name in marks:
                self._known[name] = _kept(_parts(value)), marks[name]

    def forget(self, name: str) -> None:
        """It was deleted."""
        del self._known[name]


def with_marks(cls: type, reduced: object, is_whole: bool = False) -> object:
    """What cloudpickle has made of a class that goes by value, with a mark for each attribute.

    A copy elsewhere takes of it what is new there; all of it, where it `is_whole`.
    """
    parts: tuple[Any, ...] = cast("Any", reduced) if isinstance(reduced, tuple) else ()
    if len(parts) != 6 or parts[5] is not _set_all:
        return cast("object", reduced)
    make, args, (attributes, slots), *_ = parts
    attributes.pop(KEPT_AS, None)
    if "__slots__" in attributes and make is _make_class:
        args = _with_slots(cls, args, attributes)
    marks = cls.__dict__.get(KEPT_AS) or _keep(cls, Marks(is_copy=False))
    state = attributes, slots, marks.of(attributes)
    return make, args, state, None, None, settle_whole if is_whole else settle


def _with_slots(cls: type, args: tuple[Any, ...], attributes: dict[str, Any]) -> tuple[Any, ...]:
    """What a class is made with, its slots too: cloudpickle would make one without, whose instances do not fit here."""
    own = {name: each for name, each in vars(cls).items() if isinstance(each, MemberDescriptorType)}
    for name in own:
        attributes.pop(name, None)
    if not own:
        return args
    kind, name, bases, body, *rest = args
    return kind, name, bases, {**body, "__slots__": attributes["__slots__"]}, *rest


def settle(cls: type, state: _State, is_whole: bool = False) -> type:
    """A class has come, new or known: set what is new of it."""
    attributes, slots, came = state
    marks: Marks = cls.__dict__.get(KEPT_AS) or _keep(cls, Marks(is_copy=True))
    if marks.is_copy:
        for name in marks.gone(attributes):
            marks.forget(name)
            if name in cls.__dict__:
                delattr(cls, name)
        fresh = attributes if is_whole else marks.fresh(cls, attributes, came)
        _set_all(cls, (fresh, slots))
        marks.learn(fresh, came)
    return cls


def settle_whole(cls: type, state: _State) -> type:
    """A class has come of which actors are about to be made: where it is known, it is as it is there from now on."""
    return settle(cls, state, is_whole=True)


def _keep(cls: type, marks: Marks) -> Marks:
    type.__setattr__(cls, KEPT_AS, marks)  # a metaclass may have its own
    return marks


def _new_mark() -> str:
    global _process
    if _process[0] != os.getpid():  # ranks are forked
        _process = os.getpid(), secrets.token_hex(8)
    return f"{_process[1]}-{next(_numbers)}"


def _kept(parts: Iterable[object]) -> tuple[object, ...]:
    """What parts are known by: a method may name hundreds of MB, which are to go when the program lets go of them."""
    return tuple(ref(each) if type(each).__weakrefoffset__ else each for each in parts)


def _now(kept: Iterable[object]) -> Iterator[object]:
    """The parts; those that are gone are like nothing else."""
    for each in kept:
        if isinstance(each, ref):
            there = cast("object", each())
            yield _GONE if there is None else there
        else:
            yield each


_GONE = object()


def _parts(value: object) -> Iterator[object]:
    """What an attribute consists of, as far as it is replaced and not changed: itself, and what its functions use."""
    yield value
    seen: set[int] = set()
    for function in _functions(value):
        yield from _used(function, seen)


def _functions(value: object) -> Iterator[FunctionType]:
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, classmethod | staticmethod):
        yield from _functions(value.__func__)  # pyright: ignore
    elif isinstance(value, property):
        for each in (value.fget, value.fset, value.fdel):
            yield from _functions(each)
    elif isinstance(value, type):
        return  # it has marks of its own
    else:
        yield from (each for each in getattr(value, "__dict__", {}).values() if isinstance(each, FunctionType))


def _used(function: FunctionType, seen: set[int]) -> Iterator[object]:
    """Its code, and the globals and free variables that it names; of functions that stand beside it theirs too."""
    if id(function) in seen:
        return
    seen.add(id(function))
    yield function.__code__
    yield function.__defaults__
    own = function.__globals__
    named = [own[name] for name in _names(function.__code__) if name in own]
    for cell in function.__closure__ or ():
        named += _content(cell)
    for each in named:
        yield each
        if isinstance(each, FunctionType) and each.__globals__ is own:
            yield from _used(each, seen)


def _content(cell: Any) -> list[object]:
    try:
        return [cell.cell_contents]
    except ValueError:  # it is empty yet
        return []


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[str, ...]:
    """The names of globals, and of attributes, in a function and those within it."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return tuple(dict.fromkeys(itertools.chain(code.co_names, *inner)))
