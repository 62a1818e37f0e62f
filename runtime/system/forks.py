"""What a forked child of the controller lets go of: the ranks, the zygote and the loop are its parent's.

A child (of `os.fork`, of `multiprocessing`) has copies of all descriptors and objects, and none of the threads. It must
not keep ranks alive by holding their lifeline, nor read answers that are meant for its parent.
"""

from __future__ import annotations

import gc
import os
from typing import Protocol
from weakref import WeakSet


class Holder(Protocol):
    """Something of the controller that its children must not use."""

    def let_go(self) -> None:
        """In the child, right after the fork: close what was inherited. Locks may be held by threads that are gone."""
        ...


_holders: WeakSet[Holder] = WeakSet()


def let_go_in_child(holder: Holder) -> None:
    """Call `holder.let_go()` in each child that this process forks while `holder` exists."""
    _holders.add(holder)


def _let_all_go() -> None:
    # What is garbage now is the parent's: a process group among it would wait, in its destructor, for threads that are
    # gone. A cell that failed leaves such, in the frames of its error.
    gc.freeze()
    for holder in list(_holders):
        holder.let_go()


os.register_at_fork(after_in_child=_let_all_go)
