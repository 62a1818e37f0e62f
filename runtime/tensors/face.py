"""What meshes of processes have of distributed tensors; loads torch when it is used."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from ..errors import checks_for_caller

if TYPE_CHECKING:
    from ..mesh import ProcMesh
    from ..shape import Selector
    from .on_ranks import RemoteProcessGroup
    from .tensor import Tensor


class TensorMesh:
    """What makes a mesh of processes one of distributed tensors."""

    @checks_for_caller
    def activate(self) -> AbstractContextManager[object]:
        """Torch makes tensors on these ranks, and computes there: from now on, or inside of the `with` block.

        (docs/tensors.md)
        """
        from .activation import Activation

        return Activation(cast("ProcMesh", self))

    def rank_tensor(self, dim: str | Sequence[str]) -> Tensor:
        """A distributed number: the index of each rank on an axis, or its place among the ranks of several.

        Raises `KeyError` for an axis that is none.
        """
        from .movement import rank_tensor

        return rank_tensor(cast("ProcMesh", self), dim)

    def rank(self, dims: str | Sequence[str]) -> Tensor:
        """`rank_tensor`, as Monarch calls it on `tensor.mesh`."""
        return self.rank_tensor(dims)

    def process_group(self, dims: str | Sequence[str] = ()) -> RemoteProcessGroup:
        """For functions called by `remote`: where one is given it, it finds the process group of its rank.

        That of the ranks along these axes, by default all. Raises `KeyError` for an axis that is none.
        """
        from .movement import process_group

        return process_group(cast("ProcMesh", self), dims)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes, as Monarch has them on `tensor.mesh`."""
        return tuple(cast("ProcMesh", self).sizes)

    def __call__(self, **selectors: Selector) -> ProcMesh:
        """`slice`, as Monarch writes it on `tensor.mesh`."""
        return cast("ProcMesh", self).slice(**selectors)

    def to_table(self) -> str:
        """The ranks by their places, as text."""
        from .device_table import device_table

        procs = cast("ProcMesh", self)
        return device_table(procs.sizes, procs._shape.ranks())

    def rank_tensors(self) -> dict[str, Tensor]:
        """The same for each axis."""
        return {axis: self.rank_tensor(axis) for axis in cast("Any", self).sizes}
