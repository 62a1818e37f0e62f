"""Numbers of threads, frames and variables, which each debugger gives for itself, made one client's. Pure."""

from __future__ import annotations

from typing import Literal

NOTEBOOK = 0
"""The debugger of the notebook's own process: its numbers stay as they are."""

FIRST = 1 << 52
"""Where the numbers of ranks begin. debugpy's own are small or addresses; a browser knows whole numbers below 2**53."""

Kind = Literal["thread", "frame", "variables"]


class Numbers:
    """What the client calls what the debuggers of ranks have told of.

    Example:
        >>> numbers = Numbers()
        >>> here, there = (numbers.given(rank, "frame", 7) for rank in (1, 2))
        >>> numbers.meant("frame", there), numbers.meant("frame", 7)
        ((2, 7), (0, 7))
        >>> here == numbers.given(1, "frame", 7)
        True
    """

    def __init__(self) -> None:
        self._next = FIRST
        self._given: dict[tuple[int, Kind, int], int] = {}
        self._meant: dict[int, tuple[int, Kind, int]] = {}

    def given(self, adapter: int, kind: Kind, number: int) -> int:
        """The client's number for one of an adapter's. (0 stands for nothing, everywhere.)"""
        if adapter == NOTEBOOK or number == 0:
            return number
        key = adapter, kind, number
        if key not in self._given:
            self._given[key] = self._next
            self._meant[self._next] = key
            self._next += 1
        return self._given[key]

    def meant(self, kind: Kind, number: int) -> tuple[int, int]:
        """Which adapter's number it is, and that number. Raises `LookupError` where it means nothing any more."""
        if number < FIRST:
            return NOTEBOOK, number
        if number not in self._meant or self._meant[number][1] != kind:
            raise LookupError(f"{kind} {number} is of a rank that has gone on")
        adapter, _, own = self._meant[number]
        return adapter, own

    def forget(self, adapter: int, kinds: tuple[Kind, ...]) -> None:
        """These of an adapter mean nothing any more."""
        for key in [key for key in self._given if key[0] == adapter and key[1] in kinds]:
            del self._meant[self._given.pop(key)]
