"""Where the links of a crew come from: both ends of each, of the kind that was asked for."""

from __future__ import annotations

import sys
from typing import Literal, Protocol

from .link import FarEnd, NearLink, PairLink
from .reactor import Reactor

LinkKind = Literal["auto", "pair", "zmq", "zmq-tcp"]
"""`auto` is `pair` on Linux and `zmq` elsewhere; `zmq` uses files in a private folder, `zmq-tcp` ports and keys."""


class Wiring(Protocol):
    """Makes the links of one crew."""

    carries_fds: bool

    def open(self) -> tuple[NearLink, FarEnd]:
        """A new link: the end that stays here, and what the rank gets."""
        ...

    def seal(self) -> None:
        """All links are made: nobody but those who were given an end is to come."""

    def pump(self) -> None:
        """Report now, on the thread that runs the loop, what has arrived."""

    def close(self) -> None:
        """Let go of what it holds."""


class PairWiring(Wiring):
    """Socket pairs: they have no name by which to come, what arrives lies in them, and nothing else is held."""

    carries_fds = True

    def open(self) -> tuple[NearLink, FarEnd]:
        link, theirs = PairLink.make()
        return link, FarEnd(theirs)


def wiring(kind: LinkKind, reactor: Reactor, platform: str = sys.platform) -> Wiring:
    """The wiring of a kind; zmq is imported only for its own.

    Example:
        >>> import meshbook.runtime.wire.reactor as reactors
        >>> reactor = reactors.Reactor()
        >>> type(wiring("auto", reactor, "linux")).__name__
        'PairWiring'
        >>> wiring("smoke", reactor)
        Traceback (most recent call last):
            ...
        ValueError: link must be auto, pair, zmq or zmq-tcp, not 'smoke'
        >>> reactor.close()
    """
    if kind == "pair" or (kind == "auto" and platform == "linux"):
        return PairWiring()
    if kind not in ("auto", "zmq", "zmq-tcp"):
        raise ValueError(f"link must be auto, pair, zmq or zmq-tcp, not {kind!r}")
    from .zmq_hub import ZmqHub

    return ZmqHub(reactor, "tcp" if kind == "zmq-tcp" else "ipc")
