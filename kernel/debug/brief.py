"""A value in one line, to be compared between ranks: of a tensor its type, size and what its numbers are like."""

from __future__ import annotations

import reprlib
from typing import Any

from ..values.inventory import size_text, type_text
from ..values.names import held_of
from ..values.rows import facts_text
from ..values.size import is_tensor

_MOST = 1 << 22
"""Elements of a tensor that are looked at: more would be waited for."""

_FEW = 8


def brief_text(value: object) -> str:
    """Example: `float32 [2, 3]  mean 0.5  min 0  max 1`; `3 nan` is said where there are some.

    >>> brief_text([1, 2]), brief_text(list(range(100)))[:20]
    ('[1, 2]', '[0, 1, 2, 3, 4, 5, 6')
    """
    return _tensor_text(value) if is_tensor(value) else _short.repr(value)


def safe_text(value: object) -> str:
    """A value in a line without a call of any code of its class: of a number itself, of a tensor its type and size.

    >>> safe_text(3), safe_text("a" * 100), safe_text([1, 2]), safe_text(safe_text)
    ('3', 'str length 100', 'list length 2', 'function safe_text')
    """
    held = held_of("", value)
    if held.value is not None:
        return held.value
    if held.kind == "function":
        return f"function {object.__getattribute__(value, '__name__')}"
    return f"{type_text(held)} {size_text(held)}".rstrip()


def _tensor_text(tensor: Any) -> str:
    facts = facts_text(str(tensor.dtype), tuple(tensor.shape), str(tensor.device))
    if tensor.numel() <= _FEW:
        return f"{facts}  {tensor.tolist()}"
    numbers = tensor.detach().flatten()[:_MOST].to("cpu").double() if not tensor.is_complex() else None
    if numbers is None:
        return facts
    finite = numbers[numbers.isfinite()]
    num_odd = numbers.numel() - finite.numel()
    odd = f"  {num_odd:,} nan or inf" if num_odd else ""
    if not finite.numel():
        return facts + odd
    mean, least, most = finite.mean().item(), finite.min().item(), finite.max().item()
    return f"{facts}  mean {mean:.6g}  min {least:.6g}  max {most:.6g}{odd}"


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 84
_short.maxlist = _short.maxtuple = _short.maxdict = 20
