"""Which node of the net of processes the running code belongs to."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .node import Node

_of_process: list[Node] = []
_of_thread: ContextVar[Node] = ContextVar("meshbook_node")
_make_root: list[Callable[[], Node]] = []


def node() -> Node:
    """The node of the running code: of its thread (ranks that are threads), else of its process.

    In a process that is no rank, the first use makes the root: the controller of meshes.
    """
    found = settled()
    if found is not None:
        return found
    if not _make_root:
        from . import session  # says how the root is made, when it is imported

        assert session and _make_root
    return _make_root[0]()


def settled() -> Node | None:
    """The node of the running code, where there is one already."""
    return _of_thread.get(_of_process[0] if _of_process else None)


def settle(node: Node, *, whole_process: bool = True) -> None:
    """Make this the node of the process, or of this thread (and what it starts) only."""
    if whole_process:
        _of_process[:] = [node]
    else:
        _of_thread.set(node)


def unsettle() -> None:
    """Forget the node of this process."""
    _of_process.clear()


def make_root_by(make: Callable[[], Node]) -> None:
    """How to make the root when nobody is settled here yet."""
    _make_root[:] = [make]
