"""What an agent hears from the ranks of one crew, and tells the controller: answers together, all else at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..wire.codec import Encoded
from ..wire.lane import Frames
from ..wire.messages import AnyMessage, Gone, Heard, Packet, Reply, Said, wants_reply
from ..wire.reactor import Reactor
from ..wire.tape import Event
from ..wire.unicode import packed
from .base import Exit
from .bundles import HOLD, Bundles, Parcel, may_wait


class Ears:
    """The listener of a crew; `say` sends to the controller."""

    def __init__(self, crew: int, reactor: Reactor, say: Callable[[AnyMessage, Encoded | None], object]) -> None:
        self._crew = crew
        self._reactor = reactor
        self._say = say
        self._bundles = Bundles(crew)
        self._is_armed = False

    # On any thread.

    def expect(self, message: AnyMessage, ranks: Iterable[int]) -> None:
        """This is about to be sent to these ranks."""
        if wants_reply(message):
            self._bundles.expect(message.seq, ranks)

    def welcome(self, ranks: Iterable[int]) -> None:
        """These ranks are about to be started."""
        self._bundles.welcome(ranks)

    # On the thread that runs the loop.

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Ranks are called by other numbers from now on, by their old ones: what was heard of them goes out before."""
        self._send(self._bundles.renumber(numbers))

    def on_message(self, rank: int, message: AnyMessage, frames: Frames) -> None:
        if may_wait(message, frames):
            self._send(self._bundles.hold(rank, message, bytes(frames[0]), time.monotonic()))
            self._arm()
            return
        self._send(self._bundles.before(rank))
        self._say(Heard(self._crew, rank, packed(Packet(message))), encoded(frames))
        if isinstance(message, Reply):
            self._send(self._bundles.settle(rank, message.seq))

    def on_output(self, rank: int, events: Sequence[Event]) -> None:
        self._send(self._bundles.before(rank))
        self._say(Said(self._crew, rank, tuple(events)), None)

    def on_exit(self, rank: int, exit: Exit) -> None:
        self._send(self._bundles.leave(rank))
        self._say(Gone(self._crew, rank, exit.code, exit.signum, exit.why), None)

    def _send(self, parcels: Sequence[Parcel]) -> None:
        for replies, bodies in parcels:
            self._say(replies, Encoded(bodies[0], [memoryview(body) for body in bodies[1:]]))

    def _arm(self) -> None:
        """See to it that nothing waits for too long."""
        since = self._bundles.since
        if since is not None and not self._is_armed:
            self._is_armed = True
            self._reactor.later(since + HOLD - time.monotonic(), self._on_time)

    def _on_time(self) -> None:
        self._is_armed = False
        self._send(self._bundles.tire(time.monotonic()))
        self._arm()


def encoded(frames: Frames) -> Encoded | None:
    """Frames that have come, to be sent on."""
    return Encoded(bytes(frames[0]), [memoryview(frame) for frame in frames[1:]]) if frames else None
