"""Threads that connect to an address ask no name server; those that connect to a name do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from meshbook.runtime.groups.names import ask_no_names
from meshbook.runtime.system.libc import libc

pytestmark = pytest.mark.skipif(
    not hasattr(libc(), "gnu_get_libc_version"), reason="other C libraries have other resolvers"
)

FIRST_SERVER = struct.calcsize("=iiQi")
"""Where glibc's `struct __res_state` has the address of the first name server."""


class NameServer:
    """Knows no name, and remembers how often it was asked."""

    def __init__(self) -> None:
        self.num_asked = 0
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            question, who = self._sock.recvfrom(4096)
            if not question:
                return
            self.num_asked += 1
            self._sock.sendto(question[:2] + b"\x81\x83" + question[4:], who)  # an answer: there is no such name

    def close(self) -> None:
        self._sock.sendto(b"", self._sock.getsockname())
        self._thread.join()
        self._sock.close()

    def serve_this_thread(self) -> None:
        """Put this server in the place of the first one that the thread knows, however many those are."""
        state = getattr(libc(), "__res_state")
        state.restype = ctypes.c_void_p
        port = self._sock.getsockname()[1]
        address = struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton("127.0.0.1")
        ctypes.memmove(state() + FIRST_SERVER, address, len(address))


def is_asked(server: NameServer, prepare: Callable[[], None]) -> bool:
    """Whether a thread, `prepare`d so, asks the server for the name of an address, as torch does at each connection."""

    def work() -> None:
        prepare()
        server.serve_this_thread()
        with contextlib.suppress(socket.gaierror):
            socket.getnameinfo(("::ffff:127.0.0.1", 80, 0, 0), socket.NI_NUMERICSERV)

    before = server.num_asked
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return server.num_asked > before


@pytest.fixture
def server() -> Iterator[NameServer]:
    server = NameServer()
    try:
        if not is_asked(server, libc().__res_init):
            pytest.skip("this system asks no name server itself")
        yield server
    finally:
        server.close()


@pytest.mark.parametrize(("address", "asks"), [("a.host.of.the.cluster", True), ("127.0.0.1", False), ("::1", False)])
def test_who_connects_to_an_address_asks_nobody(server: NameServer, address: str, asks: bool):
    assert is_asked(server, lambda: ask_no_names(address)) == asks


def test_threads_that_connect_at_once_leave_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RES_OPTIONS", raising=False)
    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask_no_names, ["127.0.0.1"] * 1000))  # raises what one of them has raised
    finally:
        sys.setswitchinterval(former)
    assert "RES_OPTIONS" not in os.environ
