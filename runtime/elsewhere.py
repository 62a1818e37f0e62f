"""Names of Monarch that mean something on other engines only: here they do nothing, or say what to do instead."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from .future import Future, done


class ChannelTransport(Enum):
    """How Monarch's processes may talk; here links are chosen by the engine."""

    TcpWithLocalhost = "tcp://localhost"
    TcpWithHostname = "tcp"
    MetaTlsWithHostname = "metatls"
    MetaTlsWithIpV6 = "metatls-ipv6"
    Tls = "tls"
    Quic = "quic"
    MetaQuicWithHostname = "metaquic"
    MetaQuicWithIpV6 = "metaquic-ipv6"
    Local = "local"
    Unix = "ipc"


def enable_transport(transport: ChannelTransport | str) -> None:
    """Accepted: the engine chooses its links itself. The same one may be enabled again.

    Raises `ValueError` for a transport there is none of, `RuntimeError` where another one was enabled before, or hosts
    or meshes are in use already.
    """
    global _enabled
    check_transport(transport)
    wanted = _named(transport)
    if _enabled not in (None, wanted):
        known = f"Currently enabled transport type is `{_enabled}`. Attempted to enable transport type `{wanted}`."
        raise RuntimeError(f"Only one transport type may be enabled at one time. {known}")
    if _enabled is None and _is_in_use() and wanted != ChannelTransport.Unix.value:
        raise RuntimeError(
            "`enable_transport()` must be called before any other calls in the monarch API, as the first enables "
            "`ChannelTransport.Unix`: call it first, before hosts and meshes are used"
        )
    _enabled = wanted


_enabled: str | None = None
"""The transport that this program has enabled, if any."""


def _named(transport: ChannelTransport | str) -> str:
    """One name for each: `ipc` for `unix`, `ChannelTransport.Unix` and `Unix`; addresses stay what they are."""
    if isinstance(transport, ChannelTransport):
        return transport.value
    by_name = {**{each.name: each.value for each in ChannelTransport}, "unix": ChannelTransport.Unix.value}
    return by_name.get(transport, transport)


def check_transport(transport: ChannelTransport | str) -> None:
    """Raises `ValueError` for a transport there is none of, `TypeError` for what is none."""
    names = {each.value for each in ChannelTransport} | {each.name for each in ChannelTransport} | {"unix", "inproc"}
    if not isinstance(transport, ChannelTransport):
        if not isinstance(transport, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a program may err
            raise TypeError(f"a transport is a ChannelTransport or a str such as 'tcp', not {transport!r}")
        if transport.partition("://")[0] not in names:
            raise ValueError(f"there is no transport {transport!r}: known are {', '.join(sorted(names))}")


def _is_in_use() -> bool:
    """Has this program asked for a host or a mesh? `%load_ext` alone prepares, and uses nothing."""
    from . import host, session  # they need every module that says what a name means

    return host.is_in_use() or session.has_meshes()


def shutdown_context(host_timeout: float | None = None) -> Future[None]:
    """End all meshes of this process, and what they need."""
    from . import session  # the session needs every module that says what a name means

    session.close()
    return done(None)


def debug_controller() -> NoReturn:
    """Monarch's debugger is a server beside the notebook; here it is in the notebook."""
    raise NotImplementedError("there is no debug controller: a rank's prompt comes to the notebook itself")


def attach(addr: str) -> NoReturn:
    """Reach a mesh through a gateway."""
    raise NotImplementedError(f"there is no gateway to attach to, such as {addr!r}: use attach_to_workers(...)")
