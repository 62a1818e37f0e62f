"""Names that mean something on other engines only: they are there, and say what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

from meshbook.runtime import (
    ChannelTransport,
    attach,
    config,
    debug_controller,
    enable_transport,
    this_host,
)


@pytest.mark.parametrize(("call", "kwargs"), [(attach, {"addr": "tcp://x:1"}), (debug_controller, {})])
def test_what_is_not_here_says_so_in_one_line(call: Any, kwargs: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match=r"^\S.{20,}") as caught:
        call(**kwargs)
    assert "\n" not in str(caught.value)


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that has just begun."""
    monkeypatch.setattr("meshbook.runtime.host._this_host", None)
    monkeypatch.setattr("meshbook.runtime.session.settled", lambda: None)
    monkeypatch.setattr("meshbook.runtime.elsewhere._enabled", None)


@pytest.mark.parametrize(
    "transport", ["tcp", "ipc", "unix", "inproc://1", "tcp://127.0.0.1:0", ChannelTransport.Unix, ChannelTransport.Quic]
)
def test_transports_are_accepted_and_it_stays_at_the_first(transport: Any, unused: None) -> None:
    enable_transport(transport)
    enable_transport(transport)
    with pytest.raises(RuntimeError, match="Only one transport type may be enabled"):
        enable_transport("inproc://2")


def test_no_transport_is_chosen_after_the_first_use(unused: None) -> None:
    this_host()
    with pytest.raises(RuntimeError, match=r"enable_transport\(\)` must be called before any other calls"):
        enable_transport("tcp")
    enable_transport("unix")  # it is that one
    enable_transport(ChannelTransport.Unix)
    with config.configured(default_transport="tcp") as keys:
        assert keys["default_transport"] == "tcp", "configuration may be changed at any time"


def test_one_transport_may_be_enabled_as_often_as_one_likes(unused: None) -> None:
    enable_transport("tcp")
    this_host()
    enable_transport(ChannelTransport.TcpWithHostname)
    with pytest.raises(RuntimeError, match=r"Only one transport type .* is `tcp`. Attempted .* `ipc`"):
        enable_transport("ipc")


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no transport 'pigeon': known are"):
        enable_transport("pigeon")
    with pytest.raises(TypeError, match="a transport is a ChannelTransport or a str such as 'tcp', not 3"):
        enable_transport(3)  # pyright: ignore[reportArgumentType]
