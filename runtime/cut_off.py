"""Failures that are another rank's: a collective whose peer has died raises on those that were connected to it.

Such a failure may be here before it is known that the peer is gone: a socket closes sooner than its process ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .wire.lane import Frames
from .wire.messages import Answer, Reply
from .wire.post import Post
from .wire.reactor import Reactor

_SAID = re.compile(
    r"gloo/.*(closed by peer|reset by peer|[Bb]roken pipe|Connection refused|closed pair|pair closure|connectFullMesh)"
    r"|Connection was likely closed|[Cc]onnection (was )?(closed|reset) by peer",
    re.DOTALL,
)
"""What gloo and torch's store say when a peer has gone (torch 2.13; gloo names its source file)."""

_TYPES = ("DistBackendError", "DistNetworkError", "DistStoreError")

_MARKS = ("gloo/", "c10d", "Connection was likely closed")
"""What tells a `RuntimeError` of theirs from that of a user, who has connections of other kinds."""

_GRACE = 0.1
"""Seconds that a peer's end may be known later than the failure of who lost it; measured: up to 20 ms."""

_MOST_LOOKS = 20
"""So often is that time given again, while a process is seen to end: on a machine under load it is long."""


def lost_peer(type_name: str, message: str) -> bool:
    """Whether this is the exception of a collective that has lost a peer.

    Example:
        >>> said = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]"
        >>> lost_peer("RuntimeError", said), lost_peer("ConnectionResetError", "[Errno 104] Connection reset by peer")
        (True, False)
        >>> lost_peer("RuntimeError", "database: connection reset by peer")
        False
    """
    is_torchs = type_name in _TYPES or (type_name == "RuntimeError" and any(mark in message for mark in _MARKS))
    return is_torchs and _SAID.search(message) is not None


class Doubts:
    """Hands answers over, failures of who lost a peer not before it is known whether that peer has died.

    A call whose ranks include the dead one is told of its death so, and not of what that did to the others.
    """

    def __init__(self, post: Post, reactor: Reactor, is_one_ending: Callable[[], bool]) -> None:
        """`is_one_ending` tells whether a rank ends, or has ended, whose end is not known yet."""
        self._post = post
        self._reactor = reactor
        self._is_one_ending = is_one_ending
        self._kept: list[tuple[int, Reply | Answer, Frames]] = []

    def deliver(self, rank: int, message: Reply | Answer, frames: Frames) -> None:
        """On the loop, as all of this."""
        if message.ok or not _SAID.search(bytes(frames[0]).decode(errors="replace")):
            self._post.deliver(rank, message, frames)
            return
        if not self._kept:
            self._kept = []
            self._wait_for(self._kept, _MOST_LOOKS)
        self._kept.append((rank, message, frames))

    def _wait_for(self, kept: list[tuple[int, Reply | Answer, Frames]], num_looks: int) -> None:
        """Release these answers when the time is over, if that was not done by then."""

        def look() -> None:
            if self._kept is kept and num_looks and self._is_one_ending():
                self._wait_for(kept, num_looks - 1)
            elif self._kept is kept:
                self.release()

        self._reactor.later(_GRACE, look)

    def release(self) -> None:
        """A rank has ended, and who waits for it was told; or it has been long enough."""
        kept, self._kept = self._kept, []
        for each in kept:
            self._post.deliver(*each)
