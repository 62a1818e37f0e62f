"""One set of tests for all kinds of links, then what only one kind has."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshbook.runtime.errors import LinkClosed
from meshbook.runtime.wire.inproc import InprocLink
from meshbook.runtime.wire.link import LARGEST, Address, Link, PairLink
from meshbook.runtime.wire.reactor import Reactor
from meshbook.runtime.wire.wiring import wiring
from meshbook.runtime.wire.zmq_hub import ZmqHub
from meshbook.runtime.wire.zmq_link import ZmqLink

Kind = Literal["pair", "inproc", "zmq", "zmq-tcp"]
KINDS: list[Kind] = ["pair", "inproc", "zmq", "zmq-tcp"]
PROCESS_KINDS: list[Kind] = ["pair", "zmq", "zmq-tcp"]


@dataclass
class Ends:
    """Both ends of a link: `near` as a controller has it, `far` as a rank does."""

    kind: Kind
    near: Link
    far: Link

    @property
    def is_zmq(self) -> bool:
        return self.kind.startswith("zmq")


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor()
    yield reactor
    reactor.close()


@contextlib.contextmanager
def connected(kind: Kind, reactor: Reactor) -> Iterator[Ends]:
    if kind == "inproc":
        near, far = InprocLink.make(limit=64)
        ends = Ends(kind, near, far)
    elif kind == "pair":
        near, theirs = PairLink.make()
        ends = Ends(kind, near, PairLink(theirs))
    else:
        hub = wiring(kind, reactor)
        near, end = hub.open()
        hub.seal()
        assert end.address is not None
        ends = Ends(kind, near, ZmqLink(end.address))
    try:
        yield ends
    finally:
        ends.far.close()
        ends.near.close()
        if kind.startswith("zmq"):
            hub.close()  # pyright: ignore[reportPossiblyUnboundVariable]


@pytest.fixture(params=KINDS)
def ends(request: pytest.FixtureRequest, reactor: Reactor) -> Iterator[Ends]:
    with connected(request.param, reactor) as ends:
        yield ends


@pytest.fixture(params=["zmq", "zmq-tcp"])
def hub(request: pytest.FixtureRequest, reactor: Reactor) -> Iterator[ZmqHub]:
    hub = wiring(request.param, reactor)
    assert isinstance(hub, ZmqHub)
    yield hub
    hub.close()


def taken(link: Link, count: int) -> list[bytes]:
    return [bytes(link.recv()[0]) for _ in range(count)]


def all_of(link: Link) -> list[bytes]:
    """What comes until the other end is gone."""
    found: list[bytes] = []
    with contextlib.suppress(LinkClosed):
        while True:
            found.append(bytes(link.recv()[0]))
    return found


@contextlib.contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work)
    thread.start()
    yield thread
    thread.join()


# All kinds.


def test_datagrams_arrive_whole_and_in_order_both_ways(ends: Ends) -> None:
    sent = [bytes([n]) * (n + 1) for n in range(50)]
    for sender, receiver in ((ends.near, ends.far), (ends.far, ends.near)):
        for data in sent:
            sender.send([data])
        assert taken(receiver, 50) == sent


def test_parts_are_one_datagram_and_may_be_empty(ends: Ends) -> None:
    ends.near.send([b"", b"a", bytearray(b"bc"), b"", memoryview(b"d")])
    ends.far.send([memoryview(b"xyz")[1:]])
    assert taken(ends.far, 1) == [b"abcd"]
    assert taken(ends.near, 1) == [b"yz"]


def test_what_was_sent_may_change_afterwards(ends: Ends) -> None:
    data = bytearray(100_000)
    ends.near.send([data])
    data[:] = b"x" * len(data)
    assert taken(ends.far, 1) == [bytes(100_000)]


def test_the_largest_datagram_goes_through(ends: Ends) -> None:
    data = os.urandom(LARGEST)
    for sender, receiver in ((ends.near, ends.far), (ends.far, ends.near)):
        sender.send([data[:10], data[10:]])
        assert taken(receiver, 1) == [data]


def test_a_link_without_a_limit_takes_more(ends: Ends) -> None:
    if ends.near.largest is not None:
        assert ends.kind == "pair"
        return
    data = os.urandom(8 << 20)
    ends.far.send([data])
    assert taken(ends.near, 1) == [data]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(datagrams=st.lists(st.lists(st.binary(max_size=300), min_size=1).filter(any), max_size=30))
def test_any_datagrams_arrive_as_they_were(ends: Ends, datagrams: list[list[bytes]]) -> None:
    for parts in datagrams:
        ends.far.send(parts)
    assert taken(ends.near, len(datagrams)) == [b"".join(parts) for parts in datagrams]


def test_nothing_comes_of_nothing(ends: Ends) -> None:
    assert ends.near.recv_nowait() is None
    assert ends.far.recv_nowait() is None


def test_a_slow_receiver_loses_nothing(ends: Ends) -> None:
    data = bytes(1000)
    count = next((n for n in range(2000) if not ends.far.send_nowait([n.to_bytes(4, "big"), data])), 2000)
    assert (count == 2000) == ends.is_zmq, "zmq keeps all it is given, the others refuse at some point"
    assert taken(ends.near, count) == [n.to_bytes(4, "big") + data for n in range(count)]
    assert ends.far.send_nowait([b"again"])
    assert taken(ends.near, 1) == [b"again"]


def test_a_send_waits_for_a_slow_receiver(ends: Ends) -> None:
    with in_thread(lambda: [ends.near.send([n.to_bytes(4, "big"), bytes(2000)]) for n in range(2000)]):
        assert [data[:4] for data in taken(ends.far, 2000)] == [n.to_bytes(4, "big") for n in range(2000)]


def test_the_last_words_of_an_end_arrive_then_its_end(ends: Ends) -> None:
    ends.near.send([b"this is never read"])
    for n in range(20):
        ends.far.send([bytes([n])])
    with in_thread(ends.far.close):
        assert all_of(ends.near) == [bytes([n]) for n in range(20)]
    with pytest.raises(LinkClosed):
        ends.near.recv_nowait()
    with pytest.raises(LinkClosed):
        ends.near.send([b"too late"])


def test_who_waits_hears_that_the_controller_has_closed(ends: Ends) -> None:
    found: list[list[bytes]] = []
    with in_thread(lambda: found.append(all_of(ends.far))):
        ends.near.send([b"last"])
        ends.near.close()
    if ends.kind != "inproc":  # whose close takes with it what lies in its boxes
        assert found == [[b"last"]]
    with pytest.raises(LinkClosed):
        ends.far.send([b"too late"])


def test_a_closed_end_sends_nothing_and_can_be_closed_again(ends: Ends) -> None:
    for link in (ends.far, ends.near):
        link.close()
        link.close()
        with pytest.raises(LinkClosed):
            link.send([b"x"])


def test_threads_send_at_once_in_both_directions(ends: Ends) -> None:
    senders, count = 3, 150

    def send(link: Link, who: int) -> None:
        for n in range(count):
            link.send([bytes([who]), n.to_bytes(4, "big") * 50])

    with contextlib.ExitStack() as stack:
        for who in range(senders):
            for link in (ends.near, ends.far):
                stack.enter_context(in_thread(lambda link=link, who=who: send(link, who)))
        got: dict[str, list[bytes]] = {}
        stack.enter_context(in_thread(lambda: got.update(far=taken(ends.far, senders * count))))
        got["near"] = taken(ends.near, senders * count)
    for datagrams in got.values():
        for who in range(senders):
            mine = [data[1:] for data in datagrams if data[0] == who]
            assert mine == [n.to_bytes(4, "big") * 50 for n in range(count)]


def test_descriptors_travel_where_the_kind_says_so(ends: Ends) -> None:
    read_end, write_end = os.pipe()
    try:
        if not ends.near.carries_fds:
            with pytest.raises(AssertionError, match="no descriptors"):
                ends.near.send([b"x"], [write_end])
            return
        ends.near.send([b"x"], [write_end])
        _, (copy,) = ends.far.recv()
        os.write(copy, b"through")
        os.close(copy)
        assert os.read(read_end, 100) == b"through"
    finally:
        os.close(read_end)
        os.close(write_end)


@contextlib.contextmanager
def interrupts(interval: float) -> Iterator[list[str]]:
    """Raises KeyboardInterrupt in the main thread all the time, where it runs code of links, not of the test."""
    raised: list[str] = []
    is_on = False
    is_over = threading.Event()

    def interrupt(_: int, frame: FrameType | None) -> None:
        if (
            is_on
            and frame is not None
            and re.search(r"(?<!tests)/runtime/wire/|/zmq/|threading", frame.f_code.co_filename)
        ):
            raised.append(frame.f_code.co_name)
            raise KeyboardInterrupt

    def send_signals() -> None:
        while not is_over.wait(interval):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    former = signal.signal(signal.SIGUSR1, interrupt)
    with in_thread(send_signals):
        is_on = True  # not before: to start a thread is code of threading too, and the test's
        try:
            yield raised
        finally:
            is_on = False
            is_over.set()
    signal.signal(signal.SIGUSR1, former)


def test_who_waits_can_be_interrupted_and_wait_again(ends: Ends) -> None:
    with interrupts(0.02), pytest.raises(KeyboardInterrupt):
        ends.far.recv()
    ends.near.send([b"after"])
    assert taken(ends.far, 1) == [b"after"]


@pytest.mark.parametrize("kind", PROCESS_KINDS)  # what only joins threads has Python's conditions, which do tear
def test_an_interrupt_tears_no_datagram(kind: Kind, reactor: Reactor) -> None:
    with connected(kind, reactor) as ends:
        found: list[bytes] = []

        def receive() -> None:
            while (data := taken(ends.far, 1)[0]) != b"end":
                found.append(data)

        with in_thread(receive):
            with interrupts(0.001) as raised:
                sent = 0
                while sent < 3000 or len(raised) < 5:  # a fast machine sends 3000 before the first interrupt
                    with contextlib.suppress(KeyboardInterrupt):
                        ends.near.send([sent.to_bytes(4, "big"), b"x" * 50])
                    sent += 1
            ends.near.send([b"end"])
        assert {data[4:] for data in found} == {b"x" * 50}
        assert len(found) >= sent - len(raised)


@pytest.mark.parametrize("kind", PROCESS_KINDS)
def test_a_loop_is_told_of_everything(kind: Kind, reactor: Reactor) -> None:
    with connected(kind, reactor) as ends:
        near: Any = ends.near
        found: list[bytes] = []
        is_over = threading.Event()

        def on_ready() -> None:
            try:
                while (datagram := near.recv_nowait()) is not None:
                    found.append(bytes(datagram[0]))
                    with contextlib.suppress(LinkClosed):
                        near.send([b"echo"])  # a send may swallow what zmq has to tell
            except LinkClosed:
                near.unwatch(reactor)
                is_over.set()

        near.watch(reactor, on_ready)
        for n in range(300):
            ends.far.send([n.to_bytes(4, "big")])
            if n % 3 == 0:
                assert taken(ends.far, 1) == [b"echo"]
        ends.far.close()
        assert reactor.wait(is_over, timeout=5)
        assert found == [n.to_bytes(4, "big") for n in range(300)]


# Only zmq.


def test_what_is_sent_before_the_rank_has_come_waits_for_it(hub: ZmqHub) -> None:
    near, end = hub.open()
    near.send([b"one"])
    near.send([b"two"])
    assert end.address is not None
    far = ZmqLink(end.address)
    assert taken(far, 2) == [b"one", b"two"]
    far.close()


def test_the_name_is_private_and_gone_when_all_have_come(reactor: Reactor, until: Callable[..., Any]) -> None:
    hub = ZmqHub(reactor)
    (_, first), (second_near, second) = hub.open(), hub.open()
    hub.seal()
    assert first.address is not None and second.address is not None
    folder = Path(first.address.endpoint.removeprefix("ipc://")).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    links = [ZmqLink(first.address)]
    assert folder.exists()
    links.append(ZmqLink(second.address))
    links[1].send([b"here"])
    assert taken(second_near, 1) == [b"here"]
    until(lambda: not folder.exists())  # the first may come after the second
    assert hub.open()[1].address != second.address, "a rank that comes later finds another name"
    for link in links:
        link.close()
    hub.close()


def test_a_name_to_which_nobody_came_goes_with_the_hub(reactor: Reactor) -> None:
    hub = ZmqHub(reactor)
    _, end = hub.open()
    assert end.address is not None
    folder = Path(end.address.endpoint.removeprefix("ipc://")).parent
    assert folder.exists()
    hub.close()
    assert not folder.exists()


def _with_other_keys(address: Address) -> Address:
    import zmq

    public, secret = zmq.curve_keypair()
    return msgspec.structs.replace(address, public_key=public, secret_key=secret)


def _without_keys(address: Address) -> Address:
    return Address(address.endpoint, address.id)


@pytest.mark.parametrize("forge", [_with_other_keys, _without_keys])
def test_who_has_no_key_is_not_let_in(reactor: Reactor, forge: Callable[[Address], Address]) -> None:
    hub = ZmqHub(reactor, "tcp")
    near, end = hub.open()
    assert end.address is not None
    with pytest.raises(LinkClosed, match="did not accept"):
        ZmqLink(forge(end.address), timeout=5)
    far = ZmqLink(end.address)
    far.send([b"mine"])
    assert taken(near, 1) == [b"mine"]
    far.close()
    hub.close()


def test_a_raw_connection_gets_nothing_through(reactor: Reactor) -> None:
    hub = ZmqHub(reactor, "tcp")
    near, end = hub.open()
    assert end.address is not None
    host, _, port = end.address.endpoint.removeprefix("tcp://").partition(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(os.urandom(4096))
        stranger.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):  # the greeting, then the end
                pass
    assert near.recv_nowait() is None
    hub.close()


def test_who_does_not_know_an_identity_reaches_no_lane(hub: ZmqHub) -> None:
    near, end = hub.open()
    assert end.address is not None
    stranger = ZmqLink(msgspec.structs.replace(end.address, id=b"guessed"))
    stranger.send([b"injected"])
    far = ZmqLink(end.address)
    far.send([b"mine"])
    assert taken(near, 1) == [b"mine"]
    assert near.recv_nowait() is None
    stranger._free()  # pyright: ignore[reportPrivateUsage] - nobody would answer its farewell
    far.close()


_RANK = """
import os, sys, msgspec
from meshbook.runtime.wire.link import Address
from meshbook.runtime.wire.zmq_link import ZmqLink
link = ZmqLink(msgspec.msgpack.decode(bytes.fromhex(sys.argv[1]), type=Address))
for n in range(5000):
    link.send([n.to_bytes(4, "big"), bytes(100)])
link.close()
os._exit(0)
"""


@pytest.mark.slow
def test_a_process_that_leaves_loses_no_message(hub: ZmqHub) -> None:
    near, end = hub.open()
    address = msgspec.msgpack.encode(end.address).hex()
    with subprocess.Popen([sys.executable, "-c", _RANK, address]):
        found = all_of(near)
    assert [int.from_bytes(data[:4], "big") for data in found] == list(range(5000))


_CONTROLLER = """
import sys, msgspec
from meshbook.runtime.wire.reactor import Reactor
from meshbook.runtime.wire.zmq_hub import ZmqHub
hub = ZmqHub(Reactor(), sys.argv[1])
near, end = hub.open()
hub.seal()
near.send([b"hello"])
print(msgspec.msgpack.encode(end.address).hex(), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_a_rank_sees_its_controller_killed(transport: str) -> None:
    command = [sys.executable, "-c", _CONTROLLER, transport]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout
        address = msgspec.msgpack.decode(bytes.fromhex(controller.stdout.readline()), type=Address)
        far = ZmqLink(address)
        assert taken(far, 1) == [b"hello"]
        if transport == "ipc":  # it goes when all ranks have come, and so before a kill could leave it
            folder = Path(address.endpoint.removeprefix("ipc://")).parent
            deadline = time.monotonic() + 10
            while folder.exists():
                assert time.monotonic() < deadline, "the folder stays although all have come"
        controller.kill()
        assert all_of(far) == []
    far.close()


@pytest.mark.slow
def test_zmq_is_imported_only_for_its_links() -> None:
    program = (
        "import sys; from meshbook.runtime import session; from meshbook.runtime.ranks import worker;"
        "from meshbook.runtime.wire.wiring import wiring; from meshbook.runtime.wire.reactor import Reactor;"
        "wiring('pair', Reactor()); print('zmq' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
