"""What the debugger wants of a mesh, whether it runs cells or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...runtime.controller.roster import Roster
    from .desk import Desk


class Stoppable(Protocol):
    """A mesh whose ranks can be stopped: `Mesh`, or `BareMesh`."""

    roster: Roster
    desk: Desk

    @property
    def axes(self) -> Mapping[str, int]: ...

    @property
    def num_ranks(self) -> int: ...

    @property
    def is_down(self) -> bool: ...

    @property
    def last_cell(self) -> int:
        """The number of the cell that was sent last."""
        ...

    def tell_debugger(self, ranks: Sequence[int], step: str, *args: Any, timeout: float = 0.5) -> dict[int, Any]: ...

    def interrupt(self, ranks: Sequence[int] | None = None, call: int = 0, timeout: float = 0.5) -> dict[int, bool]: ...
