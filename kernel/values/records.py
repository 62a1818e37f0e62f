"""Records: values with named entries, such as `{"loss": loss, "norm": norm}`, each of which is a column of a table."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeGuard, cast

from .gist import numbers_of
from .odd_tensors import as_it_lies, partial_of, shard_of
from .size import is_array, is_tensor

Entry = int | float | bool | str | None

MAX_ENTRIES = 12
"""A record of more is no row of a table that one can read."""

_MAX_NAME = 40
_MAX_TEXT = 60
_MAX_NUMBERS = 4


def record_of(value: object) -> dict[str, Entry]:
    """The entries of a dict, dataclass or named tuple of numbers, short texts and tensors; empty for anything else.

    One entry alone is no record. A tensor of one number is that number, one of a few is their text, of a larger one
    type and shape are told.

    Example:
        >>> record_of({"loss": 0.25, "step": 3, "name": "warm-up"})
        {'loss': 0.25, 'step': 3, 'name': 'warm-up'}
        >>> record_of({"loss": 0.25, "steps": [1, 2]}), record_of([1, 2])
        ({}, {})
    """
    named = _named(value)
    if not 1 < len(named) <= MAX_ENTRIES:
        return {}
    found: dict[str, Entry] = {}
    for name, entry in named.items():
        if not isinstance(name, str) or len(name) > _MAX_NAME or "\n" in name:
            return {}
        try:
            found[name] = _entry(entry)
        except Exception:  # noqa: BLE001 - also what odd tensors and users' classes raise: it is shown as any value
            return {}
    return found


def names_of(records: Iterable[Mapping[str, Entry]]) -> list[str]:
    """The names of all entries, as they come; none if there are too many."""
    names = list(dict.fromkeys(name for record in records for name in record))
    return names if len(names) <= MAX_ENTRIES else []


def entry_text(entry: Entry) -> str:
    """An entry as a table shows it.

    Example:
        >>> entry_text(0.123456), entry_text(1_000_000), entry_text("a"), entry_text(None)
        ('0.1235', '1000000', 'a', 'None')
    """
    return f"{entry:.4g}" if isinstance(entry, float) else str(entry)


def is_number(entry: Entry) -> TypeGuard[int | float]:
    """Is it a number? (True is none.)"""
    return isinstance(entry, int | float) and not isinstance(entry, bool)


def is_finite(entry: Entry) -> TypeGuard[int | float]:
    """Is it a number that can be compared with others?"""
    return is_number(entry) and math.isfinite(entry)


def _named(value: Any) -> Mapping[Any, object]:
    """Its entries by name: only of plain dicts, dataclasses and named tuples, whose entries are what they show."""
    if type(value) is dict:
        return cast("dict[Any, object]", value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in fields(value) if field.repr}
    names = getattr(value, "_fields", None)
    is_named_tuple = isinstance(value, tuple) and isinstance(names, tuple)
    return dict(zip(cast("Any", names), cast("Any", value), strict=True)) if is_named_tuple else {}


def _entry(value: Any) -> Entry:
    """Raises `TypeError` for what is no entry of a table."""
    if value is None or type(value) is bool or type(value) is float:
        return value
    if type(value) is int:
        return value if abs(value) < 1 << 63 else str(value)
    if type(value) is str:
        if len(value) > _MAX_TEXT or "\n" in value:
            raise TypeError("a long text")
        return value
    if is_tensor(value) or is_array(value):
        return _of_numbers(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _entry(value.item())
    raise TypeError("a table shows no such entries")


def _of_numbers(value: Any) -> Entry:
    """Of those that are looked at without running anybody's code, as for a gist.

    What a rank has of a sum over ranks is a number, and told as what it is: it is not the sum.
    """
    shape = list(value.shape)
    if not shape and (combined := partial_of(value)):
        return f"{entry_text(as_it_lies(value.detach()).item())} of {combined}"
    is_short = math.prod(shape) <= _MAX_NUMBERS and len(shape) < 2
    numbers = numbers_of(value) if is_short and not shard_of(value) else None
    if numbers is None or not numbers.numel():
        return f"{str(value.dtype).removeprefix('torch.')} {shape}"
    if not shape:
        return _entry(numbers.item())
    return f"[{', '.join(entry_text(number) for number in numbers.tolist())}]"
