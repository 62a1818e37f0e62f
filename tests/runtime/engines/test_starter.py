"""How processes are made: by a zygote or afresh, and what their mesh is told when that fails."""

from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from meshbook.runtime.engines import starter
from meshbook.runtime.engines.base import Exit
from meshbook.runtime.engines.interpreter import Interpreter
from meshbook.runtime.engines.local import LocalEngine, why_exec
from meshbook.runtime.engines.openings import make_room
from meshbook.runtime.engines.spec import RankFds
from meshbook.runtime.engines.starter import Exec, Zygote, zygote_key
from meshbook.runtime.errors import LinkClosed, SpawnError
from meshbook.runtime.session import specs_for
from meshbook.runtime.wire.reactor import Reactor

SPEC = specs_for({"rank": 1}, backend="none")[0]


@dataclass
class Births:
    """Writes down what became of processes."""

    story: list[tuple[object, ...]] = field(default_factory=list)
    news: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def on_started(self, ticket: int, pid: int, trouble: str) -> None:
        self.story.append(("started", ticket, pid > 0, trouble))
        self.news.set()

    def on_exit(self, pid: int, status: int | None) -> None:
        self.story.append(("exit", status))
        self.ended.set()


@pytest.fixture
def fds() -> Generator[RankFds]:
    """Descriptors for a rank whose controller is gone: it ends as soon as it looks."""
    ends = [os.pipe() for _ in range(5)]
    for _, write_end in ends:
        os.close(write_end)
    yield RankFds(*(read_end for read_end, _ in ends))
    for read_end, _ in ends:
        os.close(read_end)


@pytest.fixture
def new_zygote(reactor: Reactor) -> Generator[Callable[..., Zygote]]:
    made: list[Zygote] = []

    def create(*preload: str) -> Zygote:
        made.append(Zygote(reactor, preload, dict(os.environ), Interpreter()))
        return made[-1]

    yield create
    for zygote in made:
        zygote.close()


def test_the_key_holds_what_libraries_read_when_they_are_loaded():
    plain = zygote_key({"HOME": "/here", "OMP_NUM_THREADS": "2"}, Interpreter())
    assert plain == zygote_key({"HOME": "/there", "OMP_NUM_THREADS": "2"}, Interpreter())
    assert plain != zygote_key({"HOME": "/here", "OMP_NUM_THREADS": "3"}, Interpreter())
    set_by_torch = {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_me"}
    assert plain == zygote_key(set_by_torch, Interpreter())
    assert plain != zygote_key({"HOME": "/here"}, Interpreter())


def test_new_packages_change_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    os.utime(folder, ns=(0, 1))
    monkeypatch.syspath_prepend(str(folder))
    before = zygote_key({}, Interpreter())
    assert before == zygote_key({}, Interpreter())
    (folder / "new").mkdir()
    assert before != zygote_key({}, Interpreter())


def test_a_path_on_the_search_path_is_passed_over_as_python_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    python = Interpreter()
    before = zygote_key({}, python), specs_for({"rank": 1}, mesh=1)
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path / "site-packages"])
    assert (zygote_key({}, python), specs_for({"rank": 1}, mesh=1)) == before


@pytest.mark.parametrize(
    ("platform", "forks"),
    [("linux", True), ("darwin", False), ("win32", False)],
)
def test_where_ranks_are_forked(platform: str, forks: bool):
    assert (why_exec(platform) == "") is forks


@pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")
def test_where_no_process_is_left_for_a_zygote(reactor: Reactor, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(SpawnError, match=r"zygote, which forks ranks, cannot be started: \[Errno 11\] Resource temp"):
        LocalEngine(reactor).warm()


def test_a_word_that_is_no_way_to_spawn(reactor: Reactor):
    with pytest.raises(ValueError, match="spawn must be auto, fork or exec, not 'clone'"):
        LocalEngine(reactor).spawn([SPEC], None, "clone")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "exited with code 0"),
        (3 << 8, "exited with code 3"),
        (9, "killed by SIGKILL (signal 9)"),
        (11 | 128, "killed by SIGSEGV (signal 11)"),
        (64, "killed by SIGRTMAX (signal 64)"),
        (40, "killed by a signal (signal 40)"),
        (None, "ended"),
    ],
)
def test_how_an_end_is_told(status: int | None, text: str):
    assert str(Exit.from_wait_status(status)) == text


@pytest.mark.real
def test_the_end_of_an_executed_process_comes_after_its_start(reactor: Reactor, fds: RankFds):
    births = Births()
    Exec(reactor, Interpreter()).start(7, SPEC, fds, births)
    assert reactor.wait(births.ended, 20)
    assert births.story == [("started", 7, True, ""), ("exit", 0)]


@pytest.mark.real
def test_a_process_that_cannot_be_executed(reactor: Reactor, fds: RankFds, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/there/is/no/python")
    births = Births()
    with pytest.raises(FileNotFoundError):
        Exec(reactor, Interpreter()).start(7, SPEC, fds, births)
    assert births.story == []


@pytest.mark.real
def test_a_process_that_reads_nothing(reactor: Reactor, fds: RankFds, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    births = Births()
    Exec(reactor, Interpreter()).start(7, replace(SPEC, env={"LARGE": "x" * 100_000}), fds, births)
    assert reactor.wait(births.ended, 20)
    assert births.story == [("started", 7, True, ""), ("exit", 1 << 8)]


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")
def test_who_asked_a_zygote_that_died_is_told_once(
    reactor: Reactor, new_zygote: Callable[..., Zygote], fds: RankFds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    zygote = new_zygote("slow")
    births = Births()
    zygote.start(1, SPEC, fds, births)
    assert zygote.num_children == 1
    os.kill(zygote.pid, signal.SIGKILL)
    assert reactor.wait(births.news, 20)
    assert births.story == [("started", 1, False, "the zygote ended before it could fork")]
    assert reactor.wait(zygote.warmed, 20)
    assert "ended while it imported" in zygote.trouble
    with pytest.raises(LinkClosed, match="the zygote is gone"):
        zygote.start(2, SPEC, fds, births)
    assert (zygote.num_children, len(births.story)) == (0, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")
def test_the_end_of_an_orphan_is_seen_also_where_no_descriptor_was_left(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
):
    errors: list[Exception] = [OSError(errno.EMFILE, "Too many open files")]
    real = os.pidfd_open

    def pidfd_open(pid: int) -> int:
        if errors:
            raise errors.pop()
        return real(pid)

    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    monkeypatch.setattr(starter, "_AGAIN", 0.01)
    births = Births()
    with subprocess.Popen(["sleep", "600"]) as process:
        starter._Orphan(reactor, process.pid, births)
        process.kill()
    assert reactor.wait(births.ended, 5)
    assert births.story == [("exit", None)] and not errors


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")
def test_who_waits_for_a_zygote_is_woken_when_it_is_closed(
    reactor: Reactor,
    new_zygote: Callable[..., Zygote],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[..., object],
):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    zygote = new_zygote("slow")

    def close() -> None:
        until(lambda: reactor._leader == threading.main_thread().ident)
        zygote.close()

    thread = threading.Thread(target=close)
    thread.start()
    started = time.monotonic()
    assert reactor.wait(zygote.warmed, 20)
    assert time.monotonic() - started < 10
    thread.join()


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")
def test_an_environment_that_is_larger_than_a_datagram(
    reactor: Reactor, new_zygote: Callable[..., Zygote], fds: RankFds
):
    births = Births()
    new_zygote().start(7, replace(SPEC, env={"LARGE": "x" * 300_000}), fds, births)
    assert reactor.wait(births.ended, 20)
    assert births.story == [("started", 7, True, ""), ("exit", 0)]


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")
def test_a_zygote_of_a_controller_that_has_many_files_open(
    reactor: Reactor, new_zygote: Callable[..., Zygote], fds: RankFds
):
    make_room(200)
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]  # `select` goes no higher
    try:
        births = Births()
        new_zygote().start(7, SPEC, fds, births)
        assert reactor.wait(births.ended, 20)
        assert births.story == [("started", 7, True, ""), ("exit", 0)]
    finally:
        for fd in many:
            os.close(fd)


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")
def test_a_rank_that_could_not_be_asked_for_is_not_waited_for(new_zygote: Callable[..., Zygote], fds: RankFds):
    zygote = new_zygote()
    closed = os.dup(fds.out)
    os.close(closed)
    with pytest.raises(OSError, match="Bad file descriptor"):
        zygote.start(7, SPEC, replace(fds, out=closed), Births())
    assert zygote.num_children == 0


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")
def test_a_zygote_may_be_closed_while_the_loop_hears_of_its_last_child(
    reactor: Reactor, new_zygote: Callable[..., Zygote], fds: RankFds
):
    zygote = new_zygote()

    class Closes(Births):
        def on_exit(self, pid: int, status: int | None) -> None:
            thread = threading.Thread(target=zygote.close)
            thread.start()
            thread.join()
            super().on_exit(pid, status)

    births = Closes()
    zygote.start(7, SPEC, fds, births)
    assert reactor.wait(births.ended, 20)
    reactor.let_finish()  # what goes wrong on the loop is an error of this test
    assert zygote.is_gone


def test_one_that_cannot_be_started_leaves_nothing_open(reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("subprocess.Popen", refuse)
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="Cannot allocate memory"):
            Zygote(reactor, (), dict(os.environ), Interpreter())
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.slow
def test_a_file_in_the_working_directory_is_no_module_of_ranks(tmp_path: Path) -> None:
    (tmp_path / "platform.py").write_text("raise RuntimeError('this is a file of the user')")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "program.py").write_text(
        "from meshbook.runtime import Actor, endpoint, this_host\n"
        "from meshbook.runtime.session import ZYGOTE_MODULES\n"
        "ZYGOTE_MODULES.remove('torch?')\n"
        "class A(Actor):\n"
        "    @endpoint\n"
        "    def version(self):\n"
        "        import platform\n"
        "        return platform.python_version()\n"
        "with this_host().spawn_procs({'r': 1}) as procs:\n"
        "    print(procs.spawn('a', A).version.call_one().get(30))\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    line = [sys.executable, "programs/program.py"]
    ran = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90)
    assert (ran.stdout.strip(), ran.stderr) == (platform.python_version(), "")
