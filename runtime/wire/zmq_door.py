"""Who may come in where a link has a port: those who hold a key that was made here."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import zmq
from zmq.utils import z85

from ..errors import LinkClosed
from .reactor import Reactor
from .zmq_socket import GuardedSocket

_ZAP = "inproc://zeromq.zap.01"


class Keys(NamedTuple):
    """A pair of CurveZMQ keys, as Z85 text in bytes."""

    public: bytes
    secret: bytes


class Door:
    """Lets into a socket whoever holds a key that was made here (ZAP, https://rfc.zeromq.org/spec/27/)."""

    def __init__(self, context: Any, reactor: Reactor, keys: Keys | None = None) -> None:
        self._reactor = reactor
        self.keys = keys or Keys(*zmq.curve_keypair())
        """Those of this end. Whoever has them can be taken for it."""
        self._admitted: set[bytes] = set()
        self._socket = GuardedSocket(context.socket(zmq.REP), lambda: None)  # every answer is followed by a look
        self._socket.bind(_ZAP)
        reactor.add(self._socket.fd, self._answer_all)

    def guard(self, socket: Any) -> None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.keys.secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, b"meshbook")  # without a domain zmq admits all when nobody answers

    def admit(self, keys: Keys | None = None) -> Keys:
        """Let in who holds these keys; without any, new ones."""
        keys = keys or Keys(*zmq.curve_keypair())
        self._admitted.add(keys.public)
        return keys

    def _answer_all(self) -> None:
        while (frames := self._socket.recv()) is not None:
            version, request, _, _, _, mechanism, *credentials = (frame.bytes for frame in frames)
            known = mechanism == b"CURVE" and z85.encode(credentials[0]) in self._admitted
            verdict = (b"200", b"OK") if known else (b"400", b"unknown key")
            with contextlib.suppress(LinkClosed):  # the crew was closed while somebody knocked
                self._socket.send(version, request, *verdict, b"", b"")

    def close(self) -> None:
        self._reactor.remove(self._socket.fd)
        self._socket.close()
