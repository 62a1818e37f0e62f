"""What tests of distributed tensors run on ranks. Ranks import this file by name."""

from __future__ import annotations

from typing import Any

import torch

from meshbook.runtime import Actor, endpoint
from meshbook.runtime.here import node
from meshbook.runtime.tensors import transfer, worker


class Holder(Actor):
    """Is given shards, and looks at those of its rank."""

    @endpoint
    def total(self, *tensors: torch.Tensor, scale: float = 1.0) -> float:
        return sum(tensor.sum().item() for tensor in tensors) * scale

    @endpoint
    def num_values(self) -> int:
        return len(worker._values[node().address])  # pyright: ignore[reportPrivateUsage]

    @endpoint
    def num_arrived(self) -> int:
        return len(transfer.own_arrivals()._values)  # pyright: ignore[reportPrivateUsage]


def norms(tensor: torch.Tensor, power: float = 2.0) -> dict[str, Any]:
    return {"norm": tensor.norm(power).reshape(1), "of": tensor}


def shapes_of_norms(tensor: torch.Tensor, power: float = 2.0) -> dict[str, Any]:
    return {"norm": tensor.new_empty(1), "of": tensor}


def clear(tensor: torch.Tensor) -> None:
    tensor.zero_()


def itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
