"""A number behind a name on a rank, read while the rank works: `loss`, `history[-1]`, `stats["loss"]`, `model.scale`.

A control thread reads it, so nothing of the user's may run: no calls, no properties, no `__getitem__` of a class of
theirs. Variables, attributes that are stored, items of plain containers, and of tensors the one number of a CPU tensor.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping
from types import ModuleType
from typing import Any, cast

_PATH = re.compile(r"([^\W\d]\w*)((?:\.[^\W\d]\w*|\[\s*(?:-?\d+|'[^']*'|\"[^\"]*\"|\w+)\s*\])*)")
_STEP = re.compile(r"\.(\w+)|\[\s*(?:(-?\d+)|['\"]?(.*?)['\"]?)\s*\]")
_mro: Any = type.__dict__["__mro__"]
_MAPPINGS = (dict, OrderedDict, defaultdict)
_ROWS = (list, tuple, deque)

Step = tuple[bool, str | int]
"""Is it an attribute, and its name or index?"""


class Unreadable(Exception):
    """Why there is no number there, in a few words."""


def steps_of(path: str) -> tuple[str, tuple[Step, ...]]:
    """A path cut into its variable and the steps from there. Raises `ValueError` if it is none.

    Example:
        >>> steps_of('run.losses["a"][-1]')
        ('run', ((True, 'losses'), (False, 'a'), (False, -1)))
    """
    found = _PATH.fullmatch(path.strip())
    if found is None:
        raise ValueError(f"'{path}' is not a name, an attribute or an item, such as loss, history[-1] or model.scale")
    steps: list[Step] = []
    for attribute, index, key in _STEP.findall(found[2]):
        steps.append((True, attribute) if attribute else (False, int(index) if index else key))
    return found[1], tuple(steps)


def number_at(path: str, names: Mapping[str, object]) -> float:
    """The number there. Raises `Unreadable`.

    Example:
        >>> number_at("history[-1]", {"history": [3, 0.5]})
        0.5
    """
    name, steps = steps_of(path)
    if name not in names:
        raise Unreadable("not defined")
    found = names[name]
    for is_attribute, key in steps:
        found = attribute_of(found, str(key)) if is_attribute else item_of(found, key)
    return number_of(found)


def attribute_of(owner: Any, name: str) -> object:
    """An attribute that is stored. Raises `Unreadable`."""
    if type(owner) is ModuleType:
        if name not in vars(owner):
            raise Unreadable(f"no attribute {name}")
        return vars(owner)[name]
    found = inspect.getattr_static(owner, name, Unreadable)
    for table in ("_parameters", "_buffers", "_modules") if found is Unreadable else ():  # of a torch module
        held = inspect.getattr_static(owner, table, None)
        if type(held) in _MAPPINGS and name in cast("dict[str, object]", held):
            return cast("dict[str, object]", held)[name]
    if found is Unreadable:
        raise Unreadable(f"no attribute {name}")
    if hasattr(cast("object", type(found)), "__get__"):
        raise Unreadable(f"{name} is computed")
    return found


def item_of(owner: Any, key: str | int) -> object:
    """An item of a plain container. Raises `Unreadable`."""
    if type(owner) not in (*_MAPPINGS, *_ROWS) or (type(owner) in _ROWS and isinstance(key, str)):
        raise Unreadable(f"{type(owner).__name__} has no item {key!r} that can be read")
    try:
        return owner[key]
    except (KeyError, IndexError):
        raise Unreadable(f"no item {key!r}") from None


def number_of(found: Any) -> float:
    """What was found as a number, a tensor of one element too. Raises `Unreadable`."""
    if type(found) in (int, float, bool):
        return float(found)
    kind = cast("type[object]", type(found))
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kinds: tuple[type, ...] = _mro.__get__(kind)
    if numpy is not None and kind.__module__ == "numpy" and numpy.number in kinds:
        return float(found)
    if torch is not None and torch.Tensor in kinds:
        return _of_tensor(torch, found)
    raise Unreadable(f"a {kind.__name__}, not a number")


def _of_tensor(torch: Any, tensor: Any) -> float:
    base = torch._C.TensorBase
    with torch._C.DisableTorchFunctionSubclass():
        if base.numel(tensor) != 1:
            raise Unreadable(f"a tensor of {base.numel(tensor):,} elements")
        if str(base.device.__get__(tensor)) != "cpu":  # reading it would wait for the device
            raise Unreadable(f"on {base.device.__get__(tensor)}: assign its `.item()` to a name")
        return float(base.item(tensor))
