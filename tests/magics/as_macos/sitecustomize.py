"""A Python that starts with this on its path finds the names and files missing that macOS does not have.

What cannot be tried here is macOS itself; what can: that meshbook gets along without what Linux alone offers.
"""

import errno
import os
import select
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def _drop(module: str, *names: str) -> None:
    found = import_module(module)
    for name in names:
        if hasattr(found, name):
            delattr(found, name)


def _without_proc(call: Callable[..., Any]) -> Callable[..., Any]:
    def refusing(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return call(path, *args, **kwargs)

    return refusing


_drop("select", *(name for name in dir(select) if name.lower().startswith("epoll")))  # before asyncio looks for it
_drop("os", "sched_getaffinity", "memfd_create", "pidfd_open", "pipe2", "eventfd", "eventfd_read", "eventfd_write")
_drop("signal", "pidfd_send_signal", "SIGRTMIN", "SIGRTMAX", "sigtimedwait", "sigwaitinfo")
_drop("socket", "MSG_NOSIGNAL", "MSG_CMSG_CLOEXEC", "SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK")
_drop("fcntl", "F_SETPIPE_SZ", "F_GETPIPE_SZ")

# Some libraries look at the platform, or at /proc, when they are imported.
for _name in ("platform", "psutil", "sysconfig", "subprocess", "urllib.request", "zmq.asyncio"):
    import_module(_name)
import_module("sysconfig").get_config_vars()

for _module, _names in (("builtins", ("open",)), ("io", ("open",)), ("os", ("open", "listdir", "readlink", "stat"))):
    for _name in _names:
        _found = import_module(_module)
        setattr(_found, _name, _without_proc(getattr(_found, _name)))

_socket = import_module("socket")
_socketpair: Any = _socket.socketpair


def _stream_pair(family: Any = None, kind: Any = _socket.SOCK_STREAM, proto: int = 0) -> Any:
    if kind == _socket.SOCK_SEQPACKET:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))
    return _socketpair(family, kind, proto)


setattr(_socket, "socketpair", _stream_pair)  # noqa: B010 - a type checker would rather not see it

if any(word.startswith("meshbook.") for word in sys.orig_argv):  # a rank; in a notebook a cell says so
    sys.platform = "darwin"
