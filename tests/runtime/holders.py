"""Actors that hold what is large, and one that looks what of it is still there."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from meshbook.runtime import Actor, endpoint


class Load:
    """As a tensor would be: made anew in each process it comes to."""

    def __init__(self) -> None:
        alive.add(self)

    def __reduce__(self) -> Any:
        return Load, ()


alive: WeakSet[Load] = WeakSet()
"""The loads of this process."""


class Holder(Actor):
    def __init__(self, given: Load, keep: bool) -> None:
        self.held = [Load(), given] if keep else []

    @endpoint
    def ok(self) -> int:
        return len(self.held)

    @endpoint
    def fail(self) -> None:
        raise ValueError("overloaded")


class AsyncHolder(Actor):
    def __init__(self, given: Load, keep: bool) -> None:
        self.held = [Load(), given] if keep else []

    @endpoint
    async def ok(self) -> int:
        return len(self.held)

    @endpoint
    async def fail(self) -> None:
        raise ValueError("overloaded")


class Weigher(Actor):
    @endpoint
    def num_loads(self) -> int:
        return len(alive)
