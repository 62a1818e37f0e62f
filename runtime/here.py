"""Which node of the net of processes the running code belongs to."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .node import Node

_of_process: Node | None = None
_of_thread: ContextVar[Node] = ContextVar("meshbook_node")
_make_root: Callable[[], Node] | None = None


def node() -> Node:
    """The node of the running code: of its thread (ranks that are threads), else of its process.

    In a process that is no rank, the first use makes the root: the controller of meshes.
    """
    found = settled()
    if found is not None:
        return found
    if _make_root is None:
        from . import session  # says how the root is made, when it is imported

        assert session
    assert _make_root is not None
    return _make_root()


def settled() -> Node | None:
    """The node of the running code, where there is one already."""
    return _of_thread.get(_of_process)


def settle(node: Node, *, whole_process: bool = True) -> None:
    """Make this the node of the process, or of this thread (and what it starts) only."""
    global _of_process
    if whole_process:
        _of_process = node
    else:
        _of_thread.set(node)


def unsettle() -> None:
    """Forget the node of this process."""
    global _of_process
    _of_process = None


def make_root_by(make: Callable[[], Node]) -> None:
    """How to make the root when nobody is settled here yet."""
    global _make_root
    _make_root = make
