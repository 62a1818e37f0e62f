"""Answers of the ranks of one host on their way to the controller: those to one call go together. Pure, but for a lock.

An answer waits here until all ranks of the host that owe one to this call have given it, and no longer than `HOLD`.
What is said otherwise, errors and text for a start, does not wait, and never overtakes an answer of the same rank.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from ..wire.lane import INLINE, Frames
from ..wire.messages import AnyMessage, Replies, Reply

HOLD = 0.005
"""Seconds for which a rank that is slow may hold back the answers of others."""


class Parcel(NamedTuple):
    """What goes to the controller as one message: answers, and the frames they are made of."""

    replies: Replies
    bodies: list[bytes]


@dataclass(slots=True, eq=False)
class _Bundle:
    """Answers to one call that wait for each other."""

    number: int
    seq: int
    since: float
    replies: list[tuple[int, int, Reply]] = field(default_factory=list[tuple[int, int, Reply]])  # rank, body, answer
    bodies: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def add(self, rank: int, reply: Reply, body: bytes) -> None:
        self.replies.append((rank, self.bodies.setdefault(body, len(self.bodies)), reply))

    def parcel(self, crew: int) -> Parcel:
        ranks, bodies, replies = zip(*self.replies, strict=True)
        seconds, talked = tuple(each.seconds for each in replies), tuple(each.talked for each in replies)
        return Parcel(Replies(crew, self.seq, ranks, bodies, seconds, talked), list(self.bodies))


class Bundles:
    """The answers of one crew that wait. What a method returns is to be sent, in this order, before anything else."""

    def __init__(self, crew: int) -> None:
        self._crew = crew
        self._held: deque[_Bundle] = deque()  # the oldest first: none leaves before those that stand before it
        self._open: dict[int, _Bundle] = {}  # by call, the last one
        self._last: dict[int, _Bundle] = {}  # by rank, the last one it is in
        self._count = 0
        self._owing: dict[int, set[int]] = {}
        self._gone: set[int] = set()
        self._lock = threading.Lock()  # of those two: calls go out on another thread than answers come in

    def expect(self, seq: int, ranks: Iterable[int]) -> None:
        """These ranks are about to be sent a call that they answer. On any thread."""
        with self._lock:
            if owing := set(ranks) - self._gone:
                self._owing[seq] = owing

    def welcome(self, ranks: Iterable[int]) -> None:
        """These ranks are new, or there again. On any thread."""
        with self._lock:
            self._gone.difference_update(ranks)

    def renumber(self, numbers: Mapping[int, int]) -> list[Parcel]:
        """Ranks have other numbers from now on, by their old ones; those left out have ended, and are forgotten."""
        released = self._release(self._held[-1]) if self._held else []
        with self._lock:
            owing = {seq: {numbers[rank] for rank in ranks if rank in numbers} for seq, ranks in self._owing.items()}
            self._owing = {seq: ranks for seq, ranks in owing.items() if ranks}
            self._gone = {numbers[rank] for rank in self._gone if rank in numbers}
        return released

    @property
    def since(self) -> float | None:
        """When the oldest began to wait; None where nothing waits."""
        return self._held[0].since if self._held else None

    def hold(self, rank: int, reply: Reply, body: bytes, now: float) -> list[Parcel]:
        """A rank has given an answer that may wait (`may_wait`)."""
        bundle, last = self._open.get(reply.seq), self._last.get(rank)
        if bundle is None or (last is not None and last.number > bundle.number):
            self._count += 1
            bundle = self._open[reply.seq] = _Bundle(self._count, reply.seq, now)
            self._held.append(bundle)
        bundle.add(rank, reply, body)
        self._last[rank] = bundle
        return self._release(bundle) if self._is_last(reply.seq, rank) else []

    def before(self, rank: int) -> list[Parcel]:
        """This rank is going to say something that does not wait."""
        return self._release(self._last.get(rank))

    def settle(self, rank: int, seq: int) -> list[Parcel]:
        """It was its answer to this call: nobody is to wait for another."""
        return self._release(self._open.get(seq)) if self._is_last(seq, rank) else []

    def leave(self, rank: int) -> list[Parcel]:
        """This rank has ended, and owes nothing any more."""
        with self._lock:
            self._gone.add(rank)
            for seq, owing in list(self._owing.items()):
                owing.discard(rank)
                if not owing:
                    del self._owing[seq]
        return self._release(self._held[-1]) if self._held else []

    def tire(self, now: float) -> list[Parcel]:
        """What has waited long enough."""
        tired = [bundle for bundle in self._held if bundle.since + HOLD <= now]
        return self._release(tired[-1]) if tired else []

    def _is_last(self, seq: int, rank: int) -> bool:
        """Does nobody owe an answer to this call, now that this rank has given its own?"""
        with self._lock:
            owing = self._owing.get(seq)
            if owing is None:
                return True
            owing.discard(rank)
            if owing:
                return False
            del self._owing[seq]
            return True

    def _release(self, last: _Bundle | None) -> list[Parcel]:
        """All up to this one."""
        released: list[Parcel] = []
        while last is not None and self._held and self._held[0].number <= last.number:
            bundle = self._held.popleft()
            released.append(bundle.parcel(self._crew))
            if self._open[bundle.seq] is bundle:
                del self._open[bundle.seq]
            for rank, _, _ in bundle.replies:
                if self._last.get(rank) is bundle:
                    del self._last[rank]
        return released


def may_wait(message: AnyMessage, frames: Frames) -> TypeGuard[Reply]:
    """Whether this is an answer that says that all is well, in few words."""
    return isinstance(message, Reply) and message.ok and len(frames) == 1 and len(frames[0]) <= INLINE
