"""What endpoints of actors give as distributed tensors: it stays on its rank, where an operation takes it over.

The call goes straight to the actors, in order with all others; the operation waits on each rank for what its actor
gives. What is given is copied: the actor may go on to write to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .transfer import Take, own_arrivals


@dataclass(frozen=True, slots=True)
class Keep:
    """Goes with a call: what the endpoint gives is put aside on its rank under this number."""

    number: int

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method as it is to be called. What it raises goes to the controller, as of any other call."""

        def kept(*args: Any, **kwargs: Any) -> Any:
            given = method(*args, **kwargs)
            return self._awaited(given) if inspect.isawaitable(given) else self._put(given)

        return kept

    async def _awaited(self, given: Awaitable[Any]) -> None:
        self._put(await given)

    def _put(self, given: Any) -> None:
        import torch
        from torch.utils import _pytree as pytree

        copied = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), given)
        own_arrivals().put(self.number, copied)


class TakeOver(Take):
    """An operation: what was kept under this number."""
