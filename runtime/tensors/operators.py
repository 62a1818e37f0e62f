"""Methods of distributed tensors that would not say what is wrong, or read memory that is not here."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..errors import marked
from .forms import NotHere

if TYPE_CHECKING:
    from .tensor import Tensor


def equip(cls: type[Tensor]) -> None:
    """Put our methods in place of torch's."""
    for name in ("__array__", "numpy", "share_memory_", "tolist"):
        setattr(cls, name, _not_here(name))
    for name in ("add", "sub", "mul", "pow", "matmul"):
        _take_operator(cls, name, getattr(torch, name))
    for name, function in {"truediv": torch.div, "floordiv": torch.floor_divide, "mod": torch.remainder}.items():
        _take_operator(cls, name, function)


def _not_here(name: str) -> Callable[..., Any]:
    """What needs memory that this process has not. Torch would say something else, or read where nothing is."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise marked(NotHere(f"{name}()"))

    return method


def _take_operator(cls: type[Tensor], name: str, function: Callable[..., Any]) -> None:
    """Let `a + b` say what is wrong: torch takes a `TypeError` there to mean that `b` may know how to add."""
    plain: dict[str, Callable[..., Any]] = {way: getattr(torch.Tensor, way) for way in (f"__{name}__", f"__r{name}__")}

    def forward(self: Tensor, other: Any) -> Any:
        __tracebackhide__ = True
        self._usable()
        return function(self, other) if isinstance(other, torch.Tensor) else plain[f"__{name}__"](self, other)

    def reflected(self: Tensor, other: Any) -> Any:
        __tracebackhide__ = True
        self._usable()
        return function(other, self) if isinstance(other, torch.Tensor) else plain[f"__r{name}__"](self, other)

    setattr(cls, f"__{name}__", forward)
    setattr(cls, f"__r{name}__", reflected)
