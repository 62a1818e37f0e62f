"""`python -m meshbook.debug` in a terminal, on a script in another: found, looked at, stopped, left."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pexpect
import pytest

from meshbook.kernel.debug.letters import Complete, End, Line, Out, Question, Wire, Words
from meshbook.magics import attach

pytestmark = [pytest.mark.slow, pytest.mark.real]

_SCRIPT = Path(__file__).with_name("script.py")
PROMPT = "ipdb> "
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_CALLER = """
import socket, sys
from meshbook.kernel.debug.letters import Wire
from meshbook.magics.attach import Terminal
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
    stream.connect(sys.argv[1])
    Terminal(Wire(stream)).run()
"""
_COMMAND = ["-W", "error", "-m", "meshbook.debug"]


class Script:
    """A script that runs, and does what it is told."""

    def __init__(self, path: Path, **env: str) -> None:
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the script
        self._process = subprocess.Popen(
            [sys.executable, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._err,
            text=True,
            env=os.environ | env,
        )
        assert self.said() == "up", self.err

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def err(self) -> str:
        """All that has come on stderr."""
        self._err.seek(0)
        return self._err.read()

    def do(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def said(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> int:
        """Let it end; its exit status."""
        try:
            with suppress(BrokenPipeError):
                self._process.communicate(timeout=20)
        finally:
            self._process.kill()
            self._process.wait()
        self._err.close()
        return self._process.returncode


class Terminal:
    """One in which `python -m meshbook.debug` runs."""

    def __init__(self, *words: str, command: list[str] | None = None, **env: str) -> None:
        self._child: Any = pexpect.spawn(
            sys.executable,
            command or [*_COMMAND, *words],
            env=os.environ | {"TERM": "dumb"} | env,
            encoding="utf-8",
            timeout=30,
            dimensions=(50, 160),
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def until(self, text: str) -> str:
        """What is shown up to this text, without colours."""
        self._child.expect_exact(text)
        return _ESCAPES.sub("", self._child.before).replace("\r\n", "\n")

    def prompt(self) -> str:
        return self.until(PROMPT)

    def type(self, line: str) -> str:
        """What is answered up to the next prompt."""
        self._child.sendline(line)
        return self.prompt()

    def send(self, text: str) -> None:
        self._child.send(text)

    def leave(self, line: str) -> str:
        """Type a last line; what is shown until it has ended."""
        self._child.sendline(line)
        return self.end()

    def press(self, letter: str) -> None:
        self._child.sendcontrol(letter)

    def end(self) -> str:
        self._child.expect(pexpect.EOF)
        self._child.wait()
        return _ESCAPES.sub("", self._child.before).replace("\r\n", "\n")

    def close(self) -> None:
        self._child.close(force=True)


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, on: str) -> Generator[Path]:
    """A folder of its own: kernels of other tests are in the common one."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state")
        patch.setenv("MESHBOOK_STATE", str(folder))
        patch.setenv("MESHBOOK_TEST_ON", on)
        yield folder


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script of a user's own: what lies in our folders is none."""
    return Path(shutil.copy(_SCRIPT, tmp_path_factory.mktemp("script")))


@contextmanager
def running(path: Path, ends: bool = True, **env: str) -> Generator[Script]:
    script = Script(path, **env)
    try:
        yield script
    except BaseException:
        script.kill()
        raise
    finally:
        code = script.close()
    assert code == 0 or not ends


@pytest.fixture(scope="module")
def script(path: Path) -> Generator[Script]:
    with running(path) as script:
        yield script


@pytest.fixture
def terminal() -> Generator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def open_one(*words: str, **env: Any) -> Terminal:
        made.append(Terminal(*words, **env))
        return made[-1]

    yield open_one
    for each in made:
        each.close()


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command without a terminal."""
    return subprocess.run(
        [sys.executable, *_COMMAND, *words],
        capture_output=True,
        text=True,
        env=os.environ | env,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )


def until_listed(words: str) -> str:
    """Wait until the list says this; the list."""
    deadline = time.monotonic() + 30
    while words not in (listed := run("ls").stdout):
        assert time.monotonic() < deadline, listed
    return listed


def test_scripts_are_listed_with_their_meshes(script: Script) -> None:
    listed = run("ls").stdout
    assert f"pid {script.pid}   " in listed and "script.py" in listed and "mesh lab   dp=2   2 idle" in listed
    assert f"at script.py line {line_of('sys.stdin.readline')} in main" in listed


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(_SCRIPT.read_text().splitlines(), 1) if text in line)


def test_a_breakpoint_that_nobody_waits_for_is_passed_over_and_said_once(script: Script) -> None:
    script.do("halt 3")
    assert script.said() == "[8, 8]"
    script.do("halt 4")
    assert script.said() == "[10, 10]"
    at = f"◌ passed over: stopped at script.py line {line_of('breakpoint()')} in halt, and nobody is attached"
    assert script.err.count(at) in (1, 2), script.err  # of both ranks, or of each where they stop apart
    hint = f"MESHBOOK_BREAKPOINTS=wait lets ranks wait for `python -m meshbook.debug attach {script.pid}`"
    assert script.err.count(hint) == 1, script.err


def test_an_endpoint_that_loops_is_stopped_and_freed(script: Script, terminal: Callable[..., Terminal]) -> None:
    script.do("loop")
    stacks = run("stacks").stdout
    assert "in Worker.loop" in stacks and "ranks 0-1" in stacks and "in thread actor-worker" in stacks
    assert "the script itself is at script.py line" in stacks
    profile = run("profile", "1", "--for", "0.4").stdout
    assert profile.startswith("where rank 1 was in ") and f"script.py, line {line_of('while go')}" in profile
    watching = terminal("profile", "--for", "600")
    watching.until("Ctrl-C shows what was seen by then")
    watching.press("c")
    assert "where ranks 0-1 were in " in watching.end()
    attached = terminal("attach", str(script.pid), "all")
    assert "in loop, thread actor-worker" in attached.prompt()
    assert "True" in attached.type("p go")
    attached.type("n")
    assert "0-1 │ True" in attached.type("%table go")
    attached.type("%all !go = False")
    assert "left: all ranks go on" in attached.leave("q")
    assert script.said() == "[1, 1]"


def test_what_waits_in_c_is_looked_at(script: Script, terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script.do(f"read {pipe}")
    attached = terminal("attach", "1")
    shown = attached.prompt()
    assert "rank 1: no stop, as C code runs there" in shown
    assert "looking at rank 1 (dp=1), which runs on, thread actor-worker" in shown
    assert "42" in attached.type("p secret")
    assert "only looked at" in attached.type("n")
    attached.send("half a line")
    attached.until("half a line")  # a Ctrl-C that comes while readline takes a letter waits for the next one
    attached.press("c")
    assert "q leaves" in attached.prompt()
    assert "left: all ranks go on" in attached.leave("q")
    pipe.write_text("")  # whoever reads it goes on
    assert script.said() == "['read 42', 'read 42']"


def test_what_awaits_is_stopped(script: Script, terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    script.do(f"async {tmp_path / 'enough'}")
    attached = terminal("attach", "lab", "dp=0")
    assert "rank 0 (dp=0) is stopped at script.py" in attached.prompt()
    assert "5" in attached.type("p inner")
    attached.press("d")
    assert "left: all ranks go on" in attached.end()
    (tmp_path / "enough").touch()
    assert script.said() == "[5, 5]"


def test_ranks_wait_for_who_attaches(path: Path, terminal: Callable[..., Terminal]) -> None:
    with running(path, ends=False, MESHBOOK_BREAKPOINTS="wait") as script:
        wait_and_go_on(script, terminal)
        be_cut_off(script, terminal)
        attached = terminal("attach", str(script.pid))
        attached.until("ranks run")
        script.do("halt 3")
        attached.prompt()
        be_told_of_a_death(attached)
        script.kill()
        assert f"pid {script.pid} has ended" in attached.end()


def test_who_begins_to_type_as_the_process_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that comes after `input` has looked for signals, and before it sleeps, wakes nobody."""
    is_typing, sent = threading.Event(), list[int]()

    class Side:
        def __init__(self) -> None:
            self._letters = iter([Question(1, PROMPT), None])

        def recv_from_process(self) -> Question | None:
            if (letter := next(self._letters)) is None:
                assert is_typing.wait(30)
            return letter

    def kill(thread: int, signum: int, really: Any = signal.pthread_kill) -> None:
        sent.append(signum)
        if len(sent) > 1:
            really(thread, signum)

    def sleeping(prompt: str) -> None:
        is_typing.set()
        assert not threading.Event().wait(30)

    side: Any = Side()
    monkeypatch.setattr("builtins.input", sleeping)
    monkeypatch.setattr(attach, "_prepare_editing", lambda *_: None)
    monkeypatch.setattr(signal, "pthread_kill", kill)
    began = time.monotonic()
    assert attach.Terminal(side).run() is None
    assert time.monotonic() - began < 20 and sent == [signal.SIGUSR1] * 2


def wait_and_go_on(script: Script, terminal: Callable[..., Terminal]) -> None:
    script.do("halt 3")
    line = line_of("breakpoint()")
    assert f"0-1 stopped at script.py line {line} in halt" in until_listed("0-1 stopped")
    attached = terminal("attach", str(script.pid))
    shown = attached.prompt()
    assert f"---> {line}         breakpoint()" in shown and "1 more stopped" in shown
    assert "0-1 │ 4" in attached.type("%table y")
    attached.type("%rank 1")
    assert "0-1 │ stopped at script.py" in attached.type("%who")
    assert "no command of the debugger" in attached.type("%nonsense")
    assert "no axis 'dq'" in attached.type("%rank dq=1")
    assert "cannot be interrupted" in attached.type("%abort")
    assert "y\n" in attached.type("?y")
    attached.send("y.bit_l\t")
    attached.until("y.bit_length")
    attached.press("c")
    attached.prompt()
    second = run("attach", str(script.pid))
    assert second.returncode == 1 and "the prompt of this mesh is taken" in second.stderr
    attached.type("c")
    attached.send("c\n")
    attached.until("ranks run: the prompt comes when one stops")
    assert script.said() == "[8, 8]"
    script.do("halt 5")  # it stays attached
    attached.prompt()
    assert "6" in attached.type("p y")
    assert "left: all ranks go on" in attached.leave("q")
    assert script.said() == "[12, 12]"


def be_told_of_a_death(attached: Terminal) -> None:
    """Of the rank that asks: its question is taken back."""
    [pid] = re.findall(r"^(\d+)$", attached.type("p __import__('os').getpid()"), re.MULTILINE)
    os.kill(int(pid), signal.SIGKILL)
    attached.until("has died in the debugger")
    assert "is stopped at script.py" in attached.prompt()


def be_cut_off(script: Script, terminal: Callable[..., Terminal]) -> None:
    """`pdb.set_trace()` in an endpoint; the window of the terminal is closed."""
    attached = terminal("attach", str(script.pid))
    attached.until("ranks run")
    script.do("trace")
    assert "pdb.set_trace()" in attached.prompt()
    assert "'traced'" in attached.type("p word")
    os.kill(attached.pid, signal.SIGKILL)
    assert script.said() == "['traced', 'traced']"


def test_who_waits_may_leave(script: Script, terminal: Callable[..., Terminal]) -> None:
    attached = terminal("attach", str(script.pid))
    attached.until("ranks run: the prompt comes when one stops")
    attached.press("c")
    assert "left: all ranks go on" in attached.end()
    script.do("halt 1")
    assert script.said() == "[4, 4]"


def test_what_is_typed_when_news_comes_stands_at_the_next_prompt(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(tmp_path / "door"))
        door.listen()
        attached = terminal(command=["-c", _CALLER, str(tmp_path / "door")])
        door.settimeout(30)
        stream, _ = door.accept()
    with stream:
        wire = Wire(stream)
        wire.send(Question(1, PROMPT))
        attached.prompt()
        attached.send("p half")
        attached.until("p half")
        for letter in (Question(0), Out("rank 0 has died in the debugger\n"), Question(2, PROMPT)):
            wire.send(letter)
        attached.until("has died in the debugger")
        attached.until(f"{PROMPT}p half")
        attached.send("way\n")
        assert wire.recv_from_terminal() == Line(2, "p halfway")
        wire.send(Question(3, PROMPT))
        attached.prompt()
        attached.send("c\n")
        assert wire.recv_from_terminal() == Line(3, "c")
        wire.send(End())
        attached.end()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["attach", "nobody"], "there is no process and no mesh 'nobody'; there is"),
        (["attach", "dp=9"], "dp"),
        (["attach", "lab", "dq=0"], "no axis 'dq'"),
        (["profile", "99999999"], "there is no process and no mesh '99999999'"),
        (["profile", "--for", "-1"], "'-1' is not a number of seconds over 0"),
        (["stacks", "99999999"], "there is no process and no mesh '99999999'"),
        (["attach", "PID/other"], "there is no mesh 'other': there is lab"),
    ],
)
def test_what_is_written_wrong_is_said(script: Script, words: list[str], told: str) -> None:
    answer = run(*[word.replace("PID", str(script.pid)) for word in words])
    assert told in answer.stderr and answer.returncode in (1, 2), answer
    assert "Traceback" not in answer.stderr


def test_nothing_is_there(tmp_path: Path) -> None:
    for words in (["attach"], ["stacks"], ["attach", "3"]):
        answer = run(*words, MESHBOOK_STATE=str(tmp_path))
        assert answer.returncode == 2 and "no script or notebook of yours has a mesh here" in answer.stderr
    assert run("ls", MESHBOOK_STATE=str(tmp_path)).stdout == "no script or notebook of yours has a mesh here\n"
    assert "usage: python -m meshbook.debug" in run("help").stderr


def test_who_is_no_terminal_is_told_so_and_does_no_harm(script: Script, state: Path) -> None:
    [hatch] = state.glob(f"{script.pid}-*.sock")
    assert hatch.stat().st_mode & 0o077 == 0
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x05\x00\x00\x00hello", b"\x00\x00\x00\x00", b"\x01"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.connect(str(hatch))
            stream.sendall(said)
            stream.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # what was said after the first word is not read
                while stream.recv(1 << 16):
                    continue
    script.do("halt 1")
    assert script.said() == "[4, 4]" and "Traceback" not in script.err


def test_words_that_come_late_are_not_taken_for_those_of_the_next_tab(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair()
    with here, there:
        far, terminal = Wire(there), attach.Terminal(Wire(here))
        hears = threading.Thread(target=terminal._receive)
        hears.start()
        monkeypatch.setattr(attach, "_PATIENCE", 0.0)
        assert terminal._complete("mo", 0) is None  # the rank takes longer
        assert far.recv_from_terminal() == Complete("mo")
        far.send(Words("mo", ("model",)))
        far.send(Words("lo", ("loss",)))
        monkeypatch.setattr(attach, "_PATIENCE", 30.0)
        assert [terminal._complete("?lo", number) for number in (0, 1)] == ["?loss", None]
        there.shutdown(socket.SHUT_RDWR)
        hears.join()


def test_a_script_with_a_terminal_asks_there(path: Path, terminal: Callable[..., Terminal]) -> None:
    script = terminal(command=[str(path)])
    script.until("up")
    shown = script.type("halt 3")
    assert "breakpoint()" in shown and "in halt, thread actor-worker" in shown
    assert "4" in script.type("p y")
    script.type("%all !y = 10")
    script.send("q\n")
    script.until("[20, 20]")
    script.press("d")
    script.end()
