"""Objects of any kind that stay on their ranks, between functions that are called there."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from ..errors import marked

_values: Any = WeakTensorKeyDictionary()
"""By their keys: beside them, as a key that is fetched goes without its value."""


class OpaqueRef:
    """What a function on the ranks wraps to give it to the next one: the program has only this, the ranks the value.

    It goes as a distributed number does, of which the value is a part on each rank.

    Example:
        >>> from meshbook.runtime import this_host
        >>> from meshbook.runtime.tensors import OpaqueRef, remote
        >>> make = remote(lambda: OpaqueRef({"steps": 1}), propagate=lambda: OpaqueRef())
        >>> with this_host().spawn_procs({"dp": 2}) as procs, procs.activate():
        ...     state = make()
        ...     remote(lambda ref: ref.value["steps"]).call(state).get().values()
        [1, 1]
    """

    def __init__(self, value: object = None) -> None:
        self._key = torch.zeros((), dtype=torch.int64)
        _values[self._key] = value

    @property
    def value(self) -> Any:
        """What it was made of; on its rank only. Raises `RuntimeError` elsewhere."""
        if self._key not in _values:
            raise marked(RuntimeError("the value is on the ranks: give this to a function that is called by remote"))
        return _values[self._key]

    def __repr__(self) -> str:
        return f"OpaqueRef({_values[self._key]!r})" if self._key in _values else f"<OpaqueRef {self._key!r}>"


def _unflatten(keys: Any, _: object) -> OpaqueRef:
    made = OpaqueRef.__new__(OpaqueRef)
    (made._key,) = keys  # pyright: ignore[reportPrivateUsage]
    return made


pytree.register_pytree_node(
    OpaqueRef,
    lambda ref: ([ref._key], None),  # pyright: ignore[reportPrivateUsage]
    _unflatten,
    serialized_type_name="meshbook.OpaqueRef",
)
