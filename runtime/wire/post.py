"""The post office of a mesh: numbers what goes out and knows which ranks still owe an answer to it.

Pure bookkeeping: no sockets, no clock. Whoever sends opens an entry first; whoever receives hands in replies and
deaths.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from .lane import Frames
from .messages import Answer, Note, Reply
from .reactor import contained

_numbers = itertools.count(1)
"""Of calls: unlike all others of this process."""


def next_number() -> int:
    """A number that no call has: less than those of all that are made from now on."""
    return next(_numbers)


class Hearer(Protocol):
    """Who takes what an actor says unasked."""

    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...


class Caller(Hearer, Protocol):
    """Who waits for the answers to one call. Called on the thread that runs the loop, once for each rank."""

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None: ...

    def on_lost(self, rank: int, why: str) -> None:
        """The rank ended before it answered."""
        ...


class Nobody:
    """The caller of calls that want no answer."""

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None: ...
    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...
    def on_lost(self, rank: int, why: str) -> None: ...


NOBODY = Nobody()


class Post:
    """Open calls by number, with the ranks that owe an answer."""

    def __init__(self) -> None:
        # Callers open entries on any thread, and answers come on the loop's. There is no lock: each step is one
        # operation on a dict or a set, which Python does as a whole.
        self._open: dict[int, tuple[Caller, set[int]]] = {}

    def open(self, ranks: Iterable[int], caller: Caller) -> int:
        """A number for a call that these ranks will answer."""
        seq = next(_numbers)
        if owing := set(ranks):
            self._open[seq] = (caller, owing)
        return seq

    def deliver(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        """Hand an answer to the one who waits for it."""
        caller = self._settle(reply.seq, rank)
        if caller is not None:
            caller.on_reply(rank, reply, frames)

    def deliver_note(self, rank: int, note: Note, frames: Frames, late: Hearer | None = None) -> None:
        """Hand over something that is said before the answer; after it `late` hears it, if there is one."""
        entry = self._open.get(note.seq)
        if entry is not None:
            entry[0].on_note(rank, note, frames)
        elif late is not None:
            late.on_note(rank, note, frames)

    def lose(self, rank: int, why: str) -> None:
        """The rank has ended: all that it owed is lost, and those who wait are told."""
        tell_lost(self.strike(rank), rank, why)

    def lose_one(self, seq: int, rank: int, why: str) -> None:
        """This call has found nobody there: who waits for its answer is told, and no other."""
        caller = self._settle(seq, rank)
        if caller is not None:
            caller.on_lost(rank, why)

    def strike(self, rank: int) -> list[Caller]:
        """The rank owes nothing any more: who waits for it, to be told. On any thread."""
        callers = [self._settle(seq, rank) for seq in self.owed_by(rank)]
        return [caller for caller in callers if caller is not None]

    def drop(self, seq: int) -> None:
        """The call did not go out: nobody owes an answer."""
        self._open.pop(seq, None)

    def caller(self, seq: int) -> Caller | None:
        """Who waits for the answers to call `seq`; None when all are there."""
        entry = self._open.get(seq)
        return entry[0] if entry else None

    def owed(self, seq: int) -> frozenset[int]:
        """The ranks that have not answered call `seq` yet."""
        entry = self._open.get(seq)
        return frozenset(entry[1]) if entry else frozenset()

    def owed_by(self, rank: int) -> list[int]:
        """The calls that a rank has not answered yet."""
        return [seq for seq, (_, ranks) in list(self._open.items()) if rank in ranks]

    def _settle(self, seq: int, rank: int) -> Caller | None:
        entry = self._open.get(seq)
        if entry is None:
            return None
        caller, owing = entry
        try:
            owing.remove(rank)
        except KeyError:  # it was told already that the rank is gone
            return None
        if not owing:
            self._open.pop(seq, None)
        return caller


def tell_lost(callers: Iterable[Caller], rank: int, why: str) -> None:
    """Tell each that the rank has ended before it answered. One that raises keeps it from none of the others."""
    for caller in callers:
        contained(partial(caller.on_lost, rank, why))
