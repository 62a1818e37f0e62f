"""Pickles that are for comparison only: two processes get the same bytes for values that are alike.

Ordinary pickles name each class of a notebook with a random number, by which a process knows it again.
"""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, cast

from ...runtime.wire import codec
from ...runtime.wire.classes import KEPT_AS

_NOT_ITS_OWN = {"__dict__", "__weakref__", "__module__", "__firstlineno__", "_abc_impl", KEPT_AS}
"""What Python puts into a class by itself: the same in all, different in each, or not to be pickled."""


def likeness(value: object) -> bytes:
    """The bytes that stand for a value. Raises what pickling it raises.

    Example:
        >>> class Point: ...
        >>> likeness(Point()) == likeness(Point()), likeness(Point) == likeness(int)
        (True, False)
    """
    return codec.dumps(value, _BY_WORDS)


class _ByWords(dict[type, Any]):
    """Reducers for classes, of whatever metaclass."""

    def get(self, kind: type, default: Any = None, /) -> Any:
        return _as_it_says if issubclass(kind, type) else default


def _as_it_says(cls: type) -> Any:
    """A class that no module can give: what its body has defined. Others by name."""
    if cls.__module__ != "__main__" and "<locals>" not in cls.__qualname__:
        return NotImplemented
    own = {name: each for name, each in vars(cls).items() if name not in _NOT_ITS_OWN}
    told = {name: name if _is_slot(each) else each for name, each in own.items()}
    # The last part is pickled when the class is known already: its methods may refer to it.
    return str, (cls.__qualname__,), (cls.__bases__, told)


def _is_slot(value: object) -> bool:
    return isinstance(value, cast("Any", (GetSetDescriptorType, MemberDescriptorType)))


_BY_WORDS = _ByWords({type: _as_it_says})
