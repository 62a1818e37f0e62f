"""Worker loops and those who dial them: addresses, keys, and what is said when one is not there."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from meshbook.runtime.engines.summons import Summons
from meshbook.runtime.engines.worker_address import WorkerAddress, read_address
from meshbook.runtime.engines.worker_key import key_file, own_keys
from meshbook.runtime.engines.worker_loop import START, WorkerLoop, named_here
from meshbook.runtime.engines.workers import Talk, WorkersLauncher, end_loops
from meshbook.runtime.wire.link import Address
from meshbook.runtime.wire.reactor import Reactor

Listen = Callable[[str], WorkerLoop]


@pytest.mark.parametrize(
    ("text", "expected", "transport", "far"),
    [
        ("tcp://node7:1", WorkerAddress("tcp://node7:1", "tcp://node7:1"), "tcp", "node7"),
        ("tcp://localhost:1", WorkerAddress("tcp://localhost:1", "tcp://localhost:1"), "tcp", ""),
        ("tcp://a:1@tcp://0.0.0.0:2", WorkerAddress("tcp://a:1", "tcp://0.0.0.0:2"), "tcp", "a"),
        ("tcp://127.0.0.1:fd9", WorkerAddress("tcp://127.0.0.1:fd9", "tcp://127.0.0.1:fd9", 9), "tcp", ""),
        ("ipc:///tmp/me@here", WorkerAddress("ipc:///tmp/me@here", "ipc:///tmp/me@here"), "ipc", ""),
        ("inproc://7", WorkerAddress("inproc://7", "inproc://7"), "inproc", ""),
    ],
)
def test_addresses(text: str, expected: WorkerAddress, transport: str, far: str) -> None:
    read = read_address(text)
    assert (read, read.transport, read.host) == (expected, transport, far)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node7:26600", r"say tcp://HOST:PORT, ipc://PATH or inproc://NAME"),
        ("metatls://node7:26600", r"is no address of a worker loop"),
        ("ipc://", r"is no address of a worker loop"),
        ("ipc:///" + "x" * 100, r"at most 100 bytes"),
        ("tcp://node7", r"names no host and port"),
        ("tcp://node7:0", r"names no host and port"),
        ("tcp://node 7:1", r"names no host and port"),
        ("tcp://[::1]:1", r"names no host and port"),
        ("tcp://node7:66666", r"names no host and port"),
        ("tcp://*:26600", r"say tcp://NAME:26600@tcp://0\.0\.0\.0:26600"),
        ("tcp://a:fd3@tcp://0.0.0.0:1", r"cannot be dialled"),
    ],
)
def test_addresses_that_are_none(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        read_address(text)
    assert "\n" not in str(caught.value)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of a user who has had no worker loops."""
    monkeypatch.setenv("MESHBOOK_STATE", str(tmp_path))
    return tmp_path


def test_the_keys_of_a_user_are_made_once_and_for_him_alone(home: Path) -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(own_keys())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [own_keys()] * 8
    assert os.listdir(home) == ["worker.key"]
    assert key_file().stat().st_mode & 0o777 == 0o600


def test_keys_that_cannot_be_put_in_their_place_are_left_nowhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(draft: Path, path: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported", str(draft), None, str(path))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match=r"Operation not supported: .*worker\.key"):
        own_keys()
    assert os.listdir(home) == []


def test_keys_that_others_can_read_are_refused(home: Path) -> None:
    own_keys()
    key_file().chmod(0o640)
    with pytest.raises(PermissionError, match=r"others than you can read these keys: chmod 600"):
        own_keys()


def test_a_file_of_something_else_is_refused(home: Path) -> None:
    key_file().touch(0o600)
    with pytest.raises(ValueError, match=r"worker\.key holds no keys of worker loops: remove it"):
        own_keys()


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor()
    yield reactor
    reactor.close()


@pytest.fixture
def listen(reactor: Reactor) -> Iterator[Listen]:
    """Makes worker loops, which end with the test."""
    loops: list[WorkerLoop] = []

    def listening(address: str) -> WorkerLoop:
        loops.append(WorkerLoop(reactor, address))
        return loops[-1]

    yield listening
    for loop in loops:
        loop.close()


def say(reactor: Reactor, address: str, text: str, patience: float = 10.0) -> str:
    """Ask a loop for an agent; what it says of its end."""
    said: list[str] = []
    talk = Talk(reactor, read_address(address), own_keys(), START, text, patience, said.append)
    try:
        assert reactor.wait(talk.over, 20)
    finally:
        talk.close()
    return said[0]


def test_a_summons_that_is_none_is_told(reactor: Reactor, listen: Listen, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/loop"
    listen(address)
    assert say(reactor, address, "nonsense").startswith("its worker loop could not start an agent: this is no summons")


@pytest.mark.real
def test_the_end_of_an_agent_is_told_with_its_words(reactor: Reactor, listen: Listen) -> None:
    listen("inproc://short")
    said = say(reactor, "inproc://short", Summons(()).text(), 20)
    assert "exited with code 1" in said
    assert "no agent on" in said


def test_where_nobody_answers_it_is_asked_whether_one_runs(reactor: Reactor, home: Path, tmp_path: Path) -> None:
    said = say(reactor, f"ipc://{tmp_path}/nobody", "", 0.3)
    assert said == (
        "no worker loop has answered there within 0.3 s: is one running, as you, "
        f"with the keys of {home / 'worker.key'}?"
    )


def test_who_has_other_keys_is_not_heard(reactor: Reactor, listen: Listen, home: Path) -> None:
    listen("inproc://mine")
    key_file().unlink()
    said = say(reactor, "inproc://mine", "", 0.5)
    assert said == f"what listens there is no worker loop with the keys of {home / 'worker.key'}"


def test_who_answers_something_else_is_no_worker_loop(reactor: Reactor, home: Path) -> None:
    """zmq lets go of it, and would have whoever sends to nobody wait for ever: here that is the loop."""

    def answer() -> None:
        with server.accept()[0] as caller:
            caller.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 9)

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(answer)
        launcher = WorkersLauncher(reactor, [f"tcp://127.0.0.1:{server.getsockname()[1]}"], 0.5)
        ended, said = threading.Event(), list[str]()

        def on_end(hosts: Sequence[int], why: str) -> None:
            launcher.forget(hosts[0])  # as an engine does
            said.append(why)
            reactor.announce(ended)

        launcher.start([0], Summons((Address("tcp://127.0.0.1:9", b"x"),)), on_end)
        assert reactor.wait(ended, 10)
        launcher.close()
    assert said == [f"what listens there is no worker loop with the keys of {home / 'worker.key'}"]


@pytest.mark.real
def test_the_end_of_a_loop_is_seen_at_once(reactor: Reactor, tmp_path: Path) -> None:
    """Also where it was killed before its agent came: no one would say anything of it."""
    address = f"ipc://{tmp_path}/loop"
    argv = [sys.executable, "-m", "meshbook.runtime.engines.worker_loop", address]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as loop:
        summons = Summons((Address("tcp://127.0.0.1:9", b"x"),)).text()
        said: list[str] = []
        talk = Talk(reactor, read_address(address), own_keys(), START, summons, 20, said.append)
        assert reactor.wait(talk.is_heard, 20)
        agents = psutil.Process(loop.pid).children()
        loop.kill()
        assert reactor.wait(talk.over, 5)
        talk.close()
    assert psutil.wait_procs(agents, 20)[1] == []  # an agent looks whether its loop is there when it has started
    assert said == ["its worker loop is gone"]


def test_a_loop_ends_when_it_is_told_to(reactor: Reactor, listen: Listen, tmp_path: Path) -> None:
    loops = [listen("inproc://one"), listen(f"ipc://{tmp_path}/two")]
    assert not any(loop.over.is_set() for loop in loops)
    end_loops(reactor, ["inproc://one", f"ipc://{tmp_path}/two"])
    for loop in loops:
        loop.serve()


def test_a_place_that_is_taken_is_left_to_who_has_it(listen: Listen, tmp_path: Path) -> None:
    path = tmp_path / "loop"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))  # of a process that was killed: nobody listens there
    listen(f"ipc://{path}")
    listen("inproc://name")
    with pytest.raises(OSError, match="another process listens there"):
        listen(f"ipc://{path}")
    with pytest.raises(OSError, match="another worker loop of this process has this name"):
        listen("inproc://name")
    assert list(named_here) == ["inproc://name"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="Address already in use: tcp://127"):
            listen(f"tcp://127.0.0.1:{taken.getsockname()[1]}")


def test_a_socket_that_listens_is_adopted(reactor: Reactor, listen: Listen) -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    port, fd = listening.getsockname()[1], listening.detach()
    listen(f"tcp://127.0.0.1:fd{fd}")
    assert "this is no summons" in say(reactor, f"tcp://127.0.0.1:{port}", "nonsense")


def test_a_descriptor_that_does_not_listen_is_refused_and_left_open(listen: Listen) -> None:
    with socket.socket() as bound, socket.socket(socket.AF_UNIX) as other:
        bound.bind(("127.0.0.1", 0))
        for each in (bound, other):
            with pytest.raises(OSError, match=rf"^fd{each.fileno()} is no socket that listens at a port$"):
                listen(f"tcp://127.0.0.1:fd{each.fileno()}")
            assert os.fstat(each.fileno())


def test_a_loop_is_one_host(reactor: Reactor) -> None:
    with pytest.raises(ValueError, match="inproc://a is named twice: a worker loop is one host"):
        WorkersLauncher(reactor, ["inproc://a", "inproc://b", "inproc://a"])
    assert WorkersLauncher(reactor, ["inproc://a"]).refusal(2) == "its worker loops are those that were named"
