"""Numbers of meshes: no two are alike, and a program knows its own by how they begin. And those of our own actors.

A reference to a mesh may come before the mesh does, from the rank that has asked for it. What waits for it must not
wait for one that nobody will start: a mesh of another program, or of what was shut down in this one.
"""

from __future__ import annotations

import secrets

SERVICES = 1
"""The number of `RootServices`, in the root."""
STEWARD = 2
"""The number of the `Steward` of every rank."""
KEEPER = 3
"""The number of the actor that each process with RDMA buffers has."""

_RANDOM_BITS = 42
_own = 0


def new_mesh() -> int:
    """A number for a mesh that this program, or a rank of its meshes, is to start."""
    return _own << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)


def is_own(mesh: int) -> bool:
    """Was this number given by this program since it began, or began anew?

    Example:
        >>> before = new_mesh()
        >>> is_own(before)
        True
        >>> begin_anew()
        >>> is_own(before), is_own(new_mesh())
        (False, True)
    """
    return mesh >> _RANDOM_BITS == _own


def begin_anew() -> None:
    """Meshes of before are not this program's any more."""
    global _own
    _own = secrets.randbits(20)


def join(mesh: int) -> None:
    """This process is a rank of this mesh: what it asks for belongs to the same program."""
    global _own
    _own = mesh >> _RANDOM_BITS


begin_anew()
