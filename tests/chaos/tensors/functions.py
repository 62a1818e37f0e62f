"""What is computed in random programs: on distributed tensors and on ordinary ones by the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from meshbook.runtime import Actor, endpoint


def _unless_scalar(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x) if x.dim() else x


def _of_matrix(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x) if x.dim() == 2 else x


UNARY: dict[str, Callable[[Any], Any]] = {
    "plus_one": lambda x: x + 1,
    "twice": lambda x: x * 2,
    "neg": lambda x: -x,
    "remainder": lambda x: x.remainder(7),
    "clamp": lambda x: x.clamp(max=50),
    "where": lambda x: torch.where(x > 3, x, -x),
    "flat": lambda x: x.reshape(-1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "expand": lambda x: x.expand(2, *x.shape),
    "detach": lambda x: x.detach(),
    "clone": lambda x: x.clone(),
    "sum": lambda x: x.sum(),
    "stack": lambda x: torch.stack([x, x + 1]),
    "transpose": _of_matrix(lambda x: x.T),
    "tril": _of_matrix(lambda x: x.tril()),
    "diag": lambda x: torch.diag(x) if x.dim() in (1, 2) else x,
    "row": _unless_scalar(lambda x: x[0]),
    "tail": _unless_scalar(lambda x: x[1:] if x.shape[0] > 1 else x),
    "chunk": _unless_scalar(lambda x: x.chunk(2)[0]),
    "flip": _unless_scalar(lambda x: x.flip(0)),
    "cumsum": _unless_scalar(lambda x: x.cumsum(0)),
    "cat": _unless_scalar(lambda x: torch.cat([x, x])),
    "sort": _unless_scalar(lambda x: x.sort(0).values),
    "max": _unless_scalar(lambda x: x.max(0).values),
}
"""New tensors, and views."""

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "maximum": lambda x, y: torch.maximum(x, y),
    "outer": lambda x, y: x.reshape(-1)[:3, None] * y.reshape(-1)[None, :3],
    "cat_flat": lambda x, y: torch.cat([x.reshape(-1), y.reshape(-1)]),
}

NEED_BROADCAST = {"add", "sub", "maximum"}


def set_first(x: Any) -> None:
    if x.dim() and x.shape[0]:
        x[0] = 9


WRITES: dict[str, Callable[[Any], object]] = {
    "add_": lambda x: x.add_(1),
    "mul_": lambda x: x.mul_(3),
    "fill_": lambda x: x.fill_(2),
    "clamp_": lambda x: x.clamp_(max=20),
    "set_first": set_first,
}


def weighted(x: Any, y: Any) -> Any:
    """For `remote`."""
    return x.sum() + y * 2


def except_one(x: Tensor, rank: Tensor) -> Tensor:
    """For `remote`: a function that fails on some ranks."""
    if int(rank) == 1:
        raise ZeroDivisionError("of rank one")
    return x + 1


class Keeper(Actor):
    """Takes the shards of its rank in messages, and remembers."""

    def __init__(self) -> None:
        self.total = 0.0

    @endpoint
    def absorb(self, *shards: Tensor) -> tuple[float, list[Any]]:
        self.total += sum(float(shard.sum()) for shard in shards)
        return self.total, [shard.tolist() for shard in shards]
