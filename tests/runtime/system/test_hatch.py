"""Who comes in by the hatch of a process: its user, and nobody else."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshbook.runtime.system import hatch
from meshbook.runtime.system.hatch import SUFFIX, Hatch, is_welcome, short_name
from meshbook.runtime.system.leftovers import tidy
from meshbook.runtime.wire.reactor import Reactor
from tests.holdings import no_descriptor_left

Until = Callable[..., None]


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor()
    yield reactor
    reactor.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ("long" * 40)  # more than an address of a socket can hold
    monkeypatch.setenv("MESHBOOK_STATE", str(folder))
    return folder


class Porter:
    """Answers with what it is told, in capitals."""

    @staticmethod
    def receive(guest: socket.socket) -> None:
        while said := guest.recv(100):
            guest.sendall(said.upper())


def knock(path: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_name(path) as name:
        stream.connect(name)
    return stream


def test_a_guest_is_answered_until_the_end(reactor: Reactor, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hatch, "porter", Porter)
    made = Hatch(reactor)
    made.open()
    [path] = folder.glob(f"{os.getpid()}-*{SUFFIX}")
    assert path.stat().st_mode & 0o077 == 0 and folder.stat().st_mode & 0o077 == 0
    with knock(path) as one, knock(path) as other:
        one.sendall(b"a word")
        other.sendall(b"another")
        assert (one.recv(100), other.recv(100)) == (b"A WORD", b"ANOTHER")
        made.close()
        assert (one.recv(100), other.recv(100)) == (b"", b"")
    assert not path.exists()
    made.close()


def test_a_folder_that_cannot_be_written_to_keeps_nothing_from_working(
    reactor: Reactor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MESHBOOK_STATE", str(tmp_path / "file" / "below"))
    made = Hatch(reactor)
    made.open()
    made.close()
    assert [*tmp_path.rglob("*")] == [tmp_path / "file"]


def test_a_forked_child_leaves_the_hatch_to_its_parent(reactor: Reactor, folder: Path) -> None:
    made = Hatch(reactor)
    made.open()
    if (pid := os.fork()) == 0:
        made.close()  # what a session of its own would do at its end
        os._exit(0)
    os.waitpid(pid, 0)
    [path] = folder.glob(f"*{SUFFIX}")
    knock(path).close()
    made.close()


_KILLED = """
import os, signal
from meshbook.runtime.system.hatch import Hatch
from meshbook.runtime.wire.reactor import Reactor
hatch = Hatch(Reactor())
hatch.open()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.real
def test_the_socket_of_a_process_that_was_killed_does_not_stay(folder: Path) -> None:
    assert subprocess.run([sys.executable, "-c", _KILLED], check=False).returncode == -signal.SIGKILL
    assert len([*folder.glob(f"*{SUFFIX}")]) == 1
    tidy(folder)
    assert [*folder.iterdir()] == []


class Counting(Reactor):
    """Counts how often it calls back."""

    num_calls = 0

    def add(self, fd: int, on_ready: Callable[[], object]) -> None:
        def counted() -> None:
            self.num_calls += 1
            on_ready()

        super().add(fd, counted)


@pytest.mark.slow
def test_a_guest_for_whom_no_descriptor_is_left_waits_and_the_loop_sleeps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hatch, "porter", Porter)
    reactor = Counting()
    made = Hatch(reactor)
    made.open()
    [path] = folder.glob(f"*{SUFFIX}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as guest, short_name(path) as name:
        with no_descriptor_left():
            guest.connect(name)
            for _ in range(20):
                reactor.let_finish()
            assert reactor.num_calls <= 1
        guest.sendall(b"a word")
        assert guest.recv(100) == b"A WORD"
    made.close()
    reactor.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_is_not_welcome(tmp_path: Path) -> None:
    path = tmp_path / "open to all"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        with short_name(path) as name:
            listening.bind(name)
        listening.listen()
        ours, theirs = socket.socketpair()
        if (pid := os.fork()) == 0:
            stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            path.chmod(0o666)
            path.parent.chmod(0o755)
            os.chdir(path.parent)
            os.setuid(65534)
            stream.connect(path.name)
            theirs.recv(1)
            os._exit(0)
        peer, _ = listening.accept()
        assert not is_welcome(peer)
        with knock(path) as own:
            mine, _ = listening.accept()
            assert is_welcome(mine) and is_welcome(own)
            mine.close()
        peer.close()
        ours.sendall(b".")
        os.waitpid(pid, 0)
        ours.close()
        theirs.close()
