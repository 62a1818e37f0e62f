"""What a function of the user's says of the form of a result: it is called with tensors that have no values.

Ctrl-C may end it anywhere but inside of an operation on these: torch's fake tensors would be of no use any more.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import checks_for_caller
from ..wire.deferred import Deferred, untorn
from .activation import faking
from .tensor import Tensor


@checks_for_caller
def propagated(title: str, propagate: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Fake tensors in the form of what is given for these arguments; None: nothing is kept.

    Raises `TypeError` where `propagate` says nothing of that.
    """
    if propagate == "inspect":
        return None
    if not callable(propagate):
        raise TypeError(
            f"{title}: propagate={propagate!r} does not say what it gives: write a function of the same arguments, "
            "which is called with tensors that have no values, such as propagate=lambda x: x"
        )
    interrupt = Deferred()
    try:
        with interrupt, faking(), _Whole():
            return _called(propagate, _fakes_of(args), _fakes_of(kwargs), interrupt)
    finally:
        if interrupt.came:
            interrupt.deliver()


def _called(function: Callable[..., Any], args: Any, kwargs: Any, interrupt: Deferred) -> Any:
    with interrupt.paused():
        return function(*args, **kwargs)


def _fakes_of(values: Any) -> Any:
    """The same, with fake tensors in place of distributed ones."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor._fake, values)


class _Whole(TorchDispatchMode):
    """No operation is ended in the middle."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


@untorn
def _computed(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)
