"""What is asked for when a mesh of processes is to be started, by a program or by an actor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .engines.spec import HOME, Site
from .system.binding import Binding

NAMELESS = "anon"
"""The name of processes that were given none."""


@dataclass(frozen=True)
class MeshSpec:
    """A mesh of processes that is to be: what `HostMesh.spawn_procs` was told, and where it is to be."""

    axes: dict[str, int]
    """All of them, those of the hosts first."""
    name: str = NAMELESS
    bootstrap: Callable[[], Any] | None = None
    """What runs in each process before any actor is made there."""
    bindings: tuple[Binding, ...] = ()
    """What the processes of each host are bound to, in the order of their local ranks; or nothing for any of them."""
    site: Site = HOME
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that its processes are born with, besides those of the environment there."""
