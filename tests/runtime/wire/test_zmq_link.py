"""The rank's end of a zmq link. What all kinds of links have in common: `test_link`."""

from __future__ import annotations

import os
import select
import socket

import pytest

from meshbook.runtime.errors import LinkClosed
from meshbook.runtime.wire.link import Address
from meshbook.runtime.wire.reactor import Reactor
from meshbook.runtime.wire.zmq_hub import ZmqHub
from meshbook.runtime.wire.zmq_link import ZmqLink


def test_who_gives_up_a_link_that_is_closed_writes_to_no_file_of_another():
    reactor = Reactor()
    hub = ZmqHub(reactor)
    _, end = hub.open()
    assert end.address is not None
    link = ZmqLink(end.address)
    link.close()
    pipes = [os.pipe() for _ in range(20)]  # they get the numbers of the descriptors that are closed
    link.give_up()
    assert select.select([read_end for read_end, _ in pipes], [], [], 0)[0] == []
    for read_end, write_end in pipes:
        os.close(read_end)
        os.close(write_end)
    hub.close()
    reactor.close()


def test_where_nobody_listens_the_address_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:  # by somebody who says nothing
        port = taken.getsockname()[1]
        with pytest.raises(LinkClosed, match=rf"^nobody has answered at tcp://127.0.0.1:{port} within 0.05 s$"):
            ZmqLink(Address(f"tcp://127.0.0.1:{port}", b"1"), timeout=0.05)
