"""What a rank is told of the process groups it is to make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class GroupPlan:
    """Where a rank stands in its mesh, and where the ranks of the mesh meet.

    `axes` are the named axes of the whole mesh and their sizes, the last one varying fastest over the ranks.
    Rank `store_rank` serves the store at `master_port`. At birth that is rank 0, with a TCP socket that listens there
    already as `listen_fd`, which it owns from then on; later (`generation` 1 and up) whoever was asked to open a
    door, at its `host_addr`. A `master_port` of 0 says that the place is told later: there are no groups until
    `Groups.rebuild`.

    Raises:
        ValueError: the axes do not hold exactly `world_size` ranks, or `rank` is not one of them.

    Example:
        >>> plan = GroupPlan(5, 8, {"dp": 2, "tp": 4}, "auto", "cpu", "127.0.0.1", 29500)
        >>> plan.peers("dp"), plan.peers("tp")
        ((1, 5), (4, 5, 6, 7))
    """

    rank: int
    world_size: int
    axes: dict[str, int]
    backend: Literal["auto", "gloo", "nccl", "none"]
    device: str
    master_addr: str
    master_port: int
    listen_fd: int | None = None
    generation: int = 0
    store_rank: int = 0
    host_addr: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if math.prod(self.axes.values()) != self.world_size:
            raise ValueError(f"axes {self.axes} hold {math.prod(self.axes.values())} ranks, not {self.world_size}")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must be in 0..{self.world_size - 1}, not {self.rank}")

    def peers(self, axis: str) -> tuple[int, ...]:
        """The ranks on this rank's line along `axis`: those that differ from it in no other coordinate."""
        names = list(self.axes)
        stride = math.prod(self.axes[name] for name in names[names.index(axis) + 1 :])
        first = self.rank - self.rank // stride % self.axes[axis] * stride
        return tuple(range(first, first + self.axes[axis] * stride, stride))

    @property
    def device_type(self) -> str:
        """`"cpu"` or `"cuda"`."""
        return self.device.partition(":")[0]

    @property
    def torch_backend(self) -> str:
        """The backend in torch's spelling; `"auto"` on a GPU serves CPU tensors too."""
        if self.backend != "auto":
            return self.backend
        return "gloo" if self.device_type == "cpu" else "cpu:gloo,cuda:nccl"

    @property
    def plain_device(self) -> str:
        """Where tensors are for collectives of a few numbers: on the CPU, unless the groups are of NCCL alone."""
        return self.device if self.backend == "nccl" else "cpu"
