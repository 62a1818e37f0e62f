"""What a forked child still sees is not given back before the child has ended: its memory would change under its hands.

A child of `os.fork`, as `multiprocessing` makes them, has the same view of shared memory as its parent. Who writes a
checkpoint there while the parent goes on would write what has come to the parent since. So what is held at a fork is
lent to the child, until nobody has its end of a pipe any more: neither it nor a child of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class Lender(Protocol):
    """Has memory that children see."""

    @property
    def holds_any(self) -> bool: ...

    def lend(self, lease: Lease) -> None:
        """A child is about to be forked: what is held now is its own too, until the lease is over."""
        ...


class Lease:
    """Lasts as long as what one fork has made."""

    def __init__(self) -> None:
        try:
            self._end, self._theirs = os.pipe()  # not inherited by other programs: they see no memory of ours
        except OSError:  # too many files are open: it lasts for good
            self._end = self._theirs = -1
            return
        os.set_blocking(self._end, False)

    @property
    def is_over(self) -> bool:
        """Whether the child has ended, and all that it has forked itself."""
        if self._end < 0:
            return False
        try:
            os.read(self._end, 1)
        except BlockingIOError:
            return False
        return True

    def begin(self) -> None:
        """The child is there: only it has its end from now on."""
        if self._theirs >= 0:
            os.close(self._theirs)

    def keep(self) -> None:
        """In the child, whose end stays open."""
        if self._end >= 0:
            os.close(self._end)
        self._end = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._end >= 0:
            close(self._end)


def lend_to_children(lender: Lender) -> None:
    """Ask `lender` to lend what it holds whenever this process forks, while it exists."""
    _lenders.add(lender)


_lenders: WeakSet[Lender] = WeakSet()

_beginning: dict[int, Lease] = {}
"""By the thread that forks: two may at once."""


def _lend() -> None:
    lenders = [lender for lender in list(_lenders) if lender.holds_any]
    if lenders:
        lease = _beginning[threading.get_ident()] = Lease()
        for lender in lenders:
            lender.lend(lease)


def _begin() -> None:
    if (lease := _beginning.pop(threading.get_ident(), None)) is not None:
        lease.begin()


def _keep() -> None:
    if (lease := _beginning.pop(threading.get_ident(), None)) is not None:
        lease.keep()
    _beginning.clear()


os.register_at_fork(before=_lend, after_in_parent=_begin, after_in_child=_keep)
