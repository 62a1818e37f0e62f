"""Gloo collectives that a signal can interrupt.

torch waits for a collective in C++, where Python's signal handlers do not run: a rank whose peer never comes
cannot be interrupted for as long as the group's timeout. `install` makes `Work.wait` wait in slices, between
which Python handles signals. A slice that runs out does no harm to the collective: it stays queued, and when
the peers join later, it completes and the group's order is kept.

Not covered, because they wait in C++ without `Work.wait`: gradients in DistributedDataParallel's backward,
`monitored_barrier` (of which at least is known who waits in it), functional collectives (DTensor, FSDP2). Not sliced,
because it would break them: `send` and `recv` (a timed wait closes gloo's connection), `reduce_scatter` on gloo
(ignores the timeout), everything on NCCL (a timed wait aborts it; its wait does not block the CPU).
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

SLICE = timedelta(milliseconds=50)
FOREVER = timedelta(0)
"""What torch takes for "no timeout"."""


_Others = tuple[ref[Any], int | None]
"""A group, and a place in it; None for all of its ranks."""


class Wait(NamedTuple):
    """A thread waits in an operation since a moment, by `time.monotonic()`."""

    call: str
    since: float
    others: _Others | None = None
    """Of what torch keeps no record of, the group, and who in it is at the other end; None where that is not known."""

    @property
    def peers(self) -> tuple[int, ...]:
        """Whom it waits for, as ranks of the whole."""
        group, place = (self.others[0](), self.others[1]) if self.others is not None else (None, None)
        if group is None:
            return ()
        dist = sys.modules["torch.distributed"]
        ranks = dist.get_process_group_ranks(group)
        return tuple({*ranks} - {dist.get_rank()} if place is None else ranks[place : place + 1])


# Actors have threads of their own: each takes away what it has set, so that it hides nobody who still waits.
_by_thread: dict[int, Wait] = {}

_EXCHANGES = ("send", "recv")
_UNRECORDED = (*_EXCHANGES, "monitored_barrier")
_others: WeakKeyDictionary[Any, _Others] = WeakKeyDictionary()
"""Of what is sent or received, its group and who in it is at the other end: no `Work` tells."""

# torch/csrc/distributed/c10d/Types.hpp, `enum class OpType`, which has no Python face.
_COLLECTIVES = {
    0: "broadcast",
    1: "all_reduce",
    2: "all_reduce_coalesced",
    3: "reduce",
    4: "all_gather",
    5: "all_gather_into_tensor",
    6: "all_gather_coalesced",
    7: "gather",
    8: "scatter",
    9: "reduce_scatter",
    10: "all_to_all_single",
    11: "all_to_all",
    15: "barrier",
    16: "reduce_scatter_tensor",
}
_OTHERS = {12: "send", 13: "recv", 14: "recv", 17: "coalesced", 100: "reduce_scatter"}
_TIMED_OUT = "Operation timed out!"
_NEEDED = ("wait", "_get_op_type", "_get_duration")

Waiting = Callable[[Any, timedelta], bool]

ACTOR_THREADS = "meshbook-actor-"
"""How the names of the threads begin on which actors run."""


def current(thread: int, is_at_work: bool = False) -> Wait | None:
    """What this thread waits in, or whoever else waits longest; but no actor, where this thread `is_at_work` itself.

    None while nobody waits. A sliced wait shows up after its first slice, so a quick one costs nothing.
    """
    waiting = _by_thread.copy()
    if not waiting or thread in waiting:
        return waiting.get(thread)
    actors = {each.ident for each in threading.enumerate() if is_at_work and each.name.startswith(ACTOR_THREADS)}
    others = [wait for who, wait in waiting.items() if who not in actors]
    return min(others, key=lambda wait: wait.since, default=None)


def own(thread: int) -> str:
    """The call that this thread waits in; empty while it does not."""
    wait = _by_thread.get(thread)
    return "" if wait is None else wait.call


def exchanges() -> dict[int, Wait]:
    """By thread, who waits in what torch keeps no record of."""
    return {thread: wait for thread, wait in list(_by_thread.items()) if wait.call in _UNRECORDED}


def install() -> bool:
    """Make gloo's collectives interruptible in this process; False if this torch lacks what that takes.

    Harmless to call twice. A rank interrupted in a collective is one operation ahead of its peers' results:
    the operation stays queued, and the peers still have to call theirs.
    """
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    work: Any = getattr(c10d, "Work", None)
    if not all(hasattr(work, name) for name in _NEEDED):
        return False
    if not hasattr(work.wait, "__wrapped__"):
        work.wait = _sliced(work.wait, sys.modules["torch"].cuda.is_initialized)
        group: Any = c10d.ProcessGroup
        for call in _UNRECORDED:
            setattr(group, call, _noted(call, getattr(group, call)))
    return True


def _noted(call: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """What waits in here: a `monitored_barrier`, and the first exchange of two ranks, until the other one connects."""

    @functools.wraps(original)
    def exchange(self: Any, *args: Any, **kwargs: Any) -> Any:
        others = _whom(call, self, args)
        thread = threading.get_ident()
        _by_thread[thread] = Wait(call, time.monotonic(), others)
        try:
            work = original(self, *args, **kwargs)
        finally:
            _by_thread.pop(thread, None)
        if others is not None and work is not None:  # nccl gives nothing for one of several that go together
            _others[work] = others
        return work

    return exchange


def _whom(call: str, group: Any, args: tuple[Any, ...]) -> _Others | None:
    if call not in _EXCHANGES:
        return ref(group), None
    return (ref(group), args[1]) if len(args) > 1 else None  # tensors, peer, tag: so torch itself calls it


def _sliced(original: Waiting, has_cuda: Callable[[], bool]) -> Waiting:
    @functools.wraps(original)
    def wait(self: Any, timeout: timedelta = FOREVER) -> bool:
        kind: int = self._get_op_type()
        can_slice = kind in _COLLECTIVES
        if not can_slice or (has_cuda() and not _is_gloo(self)):
            return _wait_whole(original, self, timeout, kind)
        if FOREVER < timeout <= SLICE:
            return original(self, timeout)
        done, error = _try(original, self, SLICE)
        return done if error is None else _wait_on(original, self, timeout, kind)

    return wait


def _wait_on(original: Waiting, work: Any, timeout: timedelta, kind: int) -> bool:
    """The rest of a wait whose first slice has run out."""
    thread, start = threading.get_ident(), time.monotonic() - SLICE.total_seconds()
    _by_thread[thread] = Wait(_COLLECTIVES[kind], start)
    try:
        while True:
            left = start + timeout.total_seconds() - time.monotonic() if timeout else SLICE.total_seconds()
            last = left <= SLICE.total_seconds() and bool(timeout)
            done, error = _try(original, work, timedelta(seconds=max(left, 0.001)) if last else SLICE)
            if error is None:
                return done
            if last:
                raise error
    finally:
        _by_thread.pop(thread, None)  # None: a signal handler that waited in here has taken it away


def _try(original: Waiting, work: Any, timeout: timedelta) -> tuple[bool, RuntimeError | None]:
    """Wait for one slice: (what `wait` gave, None), or (False, the error) if just the slice ran out."""
    try:
        return original(work, timeout), None
    except RuntimeError as caught:
        # No call in here: Python would handle a pending SIGINT in it and chain KeyboardInterrupt to this
        # error.
        error = caught
    if str(error) != _TIMED_OUT:
        raise error
    return False, error


def _wait_whole(original: Waiting, work: Any, timeout: timedelta, kind: int) -> bool:
    thread = threading.get_ident()
    call = _COLLECTIVES.get(kind) or _OTHERS.get(kind, "collective")
    _by_thread[thread] = Wait(call, time.monotonic(), _others.get(work) if call in _EXCHANGES else None)
    try:
        return original(work, timeout)
    finally:
        _by_thread.pop(thread, None)


def _is_gloo(work: Any) -> bool:
    """Whether `work` is certainly not NCCL's, which alone measures durations: no `Work` names its backend."""
    try:
        work._get_duration()
    except RuntimeError as error:
        return "doesn't support" in str(error)
    return False
