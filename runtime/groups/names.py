"""Name servers, which a thread need not ask where all it meets are addresses.

At each connection torch asks for the name of the other end (`::ffff:127.0.0.1`), only to log it. Where the name server
is slow, out of reach or loses one question of many, the rank waits for it: one of 64 ranks that come up together is
enough to make all of them wait for a second.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import os
import socket
import threading

from ..system.libc import libc

codecs.lookup("idna")  # the first connection of a process loads it: better the zygote once than each rank

_INTS = ctypes.POINTER(ctypes.c_int)

_NUM_SERVERS = 4
"""Which `int` of glibc's `struct __res_state` says how many name servers there are (resolv.h)."""

_environment = threading.Lock()  # of two threads that connect at once the second would take our options for the user's


def ask_no_names(address: str) -> None:
    """From here on this thread, which will connect to `address`, asks no name server (glibc only).

    Where it has to, as the address is a name itself, it waits one second for an answer instead of ten and more.
    """
    if not (hasattr(libc(), "__res_init") and hasattr(libc(), "__res_state")):
        return
    with _environment:
        _read_options("timeout:1 attempts:1")
    if _is_number(address):
        state = libc().__res_state
        state.restype = _INTS
        state()[_NUM_SERVERS] = 0


def _read_options(options: str) -> None:
    """Have glibc read these for this thread: it looks for them in the environment of the process."""
    before = os.environ.get("RES_OPTIONS")
    os.environ["RES_OPTIONS"] = options
    try:
        libc().__res_init()
    finally:
        if before is None:
            del os.environ["RES_OPTIONS"]
        else:
            os.environ["RES_OPTIONS"] = before


def _is_number(address: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            return bool(socket.inet_pton(family, address))
    return False
