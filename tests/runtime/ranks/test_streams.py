from __future__ import annotations

import contextlib
import io
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshbook.runtime.ranks.streams import Streams, TextStream, _parted
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.tape import Ended, Event, Shown, Tape, Text

TOKEN = "0123456789abcdef"
PRELUDE = f"""
import asyncio, ctypes, faulthandler, os, signal, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
from meshbook.runtime.ranks.streams import Streams
streams = Streams({TOKEN!r}, int(sys.argv[1]), int(sys.argv[2]))
streams.install()
libc = ctypes.CDLL(None)
"""
LABELLED = """
plain_begin = streams.begin
def labelled(run):  # these programs have no controller, which would label what C code writes first
    plain_begin(run)
    os.system("")
streams.begin = labelled
"""


def merged(events: list[Event]) -> list[Event]:
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Text) and isinstance(last, Text) and (last.run, last.stream) == (event.run, event.stream):
            out[-1] = Text(event.run, event.stream, last.text + event.text)
        else:
            out.append(event)
    return out


class Rank:
    """A process that prints, and what its two pipes said."""

    def __init__(self, code: str, is_labelled: bool = True) -> None:
        (out, out_in), (err, err_in) = os.pipe(), os.pipe()
        quiet = "ignore:This process:DeprecationWarning"  # from Python 3.12 on, a fork beside other threads is told of
        program = PRELUDE + LABELLED * is_labelled + code
        command = [sys.executable, "-W", quiet, "-c", program, str(out_in), str(err_in)]
        self.process = subprocess.Popen(
            command, pass_fds=(out_in, err_in), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        os.close(out_in)
        os.close(err_in)
        self.tapes = {out: Tape(TOKEN, "out"), err: Tape(TOKEN, "err")}
        self.events: dict[int, list[Event]] = {out: [], err: []}
        self.selector = selectors.DefaultSelector()
        for fd in self.tapes:
            self.selector.register(fd, selectors.EVENT_READ)

    def wait_some(self) -> None:
        for key, _ in self.selector.select(20):
            fd = key.fd
            data = os.read(fd, 1 << 16)
            self.events[fd] += self.tapes[fd].feed(data) if data else self.tapes[fd].close()
            if not data:
                self.selector.unregister(fd)

    def wait(self) -> int:
        while self.selector.get_map():
            self.wait_some()
        return self.process.wait(20)

    @property
    def out(self) -> list[Event]:
        return merged(next(iter(self.events.values())))

    @property
    def err(self) -> list[Event]:
        return merged(list(self.events.values())[1])

    def text(self, run: int, stream: str = "stdout") -> str:
        return "".join(e.text for e in self.out if isinstance(e, Text) and (e.run, e.stream) == (run, stream))


@contextlib.contextmanager
def rank(code: str, is_labelled: bool = True) -> Iterator[Rank]:
    rank = Rank(code, is_labelled)
    try:
        yield rank
    finally:
        rank.process.kill()
        rank.process.wait()
        assert rank.process.stdin is not None
        rank.process.stdin.close()
        rank.selector.close()
        for fd in rank.tapes:
            os.close(fd)


def ran(code: str, is_labelled: bool = True) -> Rank:
    with rank(code, is_labelled) as done:
        assert done.wait() == 0, done.err
    return done


def test_a_silent_run_writes_nothing_and_says_so():
    done = ran("streams.begin(1); silent = streams.end(1); streams.begin(2); print(silent); streams.end(2)", False)
    assert done.out == [Text(2, "stdout", "False\n"), Ended(2)]
    assert done.err == [Ended(2)]


def test_what_only_c_code_wrote_ends_with_a_mark_too():
    with rank("streams.begin(1); os.write(2, b'from c'); assert streams.end(1)", False) as done:
        assert done.process.wait(20) == 0  # before anything is read: what was read by then needs no mark
        done.wait()
    assert done.err == [Text(0, "stderr", "from c"), Ended(1)]


def test_text_between_runs_belongs_to_the_run_that_ended():
    done = ran("streams.begin(1); print('in'); streams.end(1); print('late'); streams.begin(2); streams.end(2)", False)
    assert done.out == [Text(1, "stdout", "in\n"), Ended(1), Text(1, "stdout", "late\n"), Ended(2)]


def test_stdout_stderr_and_displays_keep_their_order():
    done = ran("""
streams.begin(1)
print("a"); print("b", file=sys.stderr); print("c")
streams.show(7)
sys.stderr.write("d"); sys.stdout.write("e"); sys.__stderr__.write("f")
streams.end(1)
""")
    assert done.out == [
        Text(1, "stdout", "a\n"),
        Text(1, "stderr", "b\n"),
        Text(1, "stdout", "c\n"),
        Shown(1, 7),
        Text(1, "stderr", "d"),
        Text(1, "stdout", "e"),
        Text(1, "stderr", "f"),
        Ended(1),
    ]
    assert done.err == [Ended(1)]


def test_c_code_and_subprocesses_print_in_the_run_that_runs():
    done = ran("""
streams.begin(1)
print("python first"); os.system("echo system")
subprocess.run(["echo", "echo"])
libc.printf(b"printf\\n"); libc.printf(b"begun")
print("!", file=sys.stderr)
streams.end(1)
streams.begin(2)
os.write(1, b"os.write\\n"); os.write(2, b"fd 2\\n")
streams.end(2)
os.write(1, b"idle\\n")
""")
    assert done.text(1).startswith("python first\nsystem\necho\n")
    assert "printf\n" in done.text(1) and "begun" in done.text(1)
    assert done.out[-3:] == [Text(2, "stdout", "os.write\n"), Ended(2), Text(2, "stdout", "idle\n")]
    assert done.err == [Ended(1), Text(2, "stderr", "fd 2\n"), Ended(2)]


def test_threads_and_tasks_stay_with_the_run_that_made_them():
    done = ran("""
go, gone = threading.Event(), threading.Event()
def nested():
    print("nested")
    print("nested err", file=sys.stderr)
class Late(threading.Thread):  # without super().run()
    def run(self):
        go.wait()
        print("late")
        inner = threading.Thread(target=nested); inner.start(); inner.join()
        streams.show(3)
        gone.set()
loop, pool = asyncio.new_event_loop(), ThreadPoolExecutor(1)
async def later(gate):
    await gate.wait()
    print("task")
async def begin():
    global gate, task
    gate = asyncio.Event()
    task = asyncio.create_task(later(gate))
async def finish():
    gate.set()
    await task
streams.begin(1)
Late().start()
pool.submit(int).result()
loop.run_until_complete(begin())
streams.end(1)
streams.begin(2)
print("before")
go.set(); gone.wait()
loop.run_until_complete(finish())
pool.submit(print, "pool").result()
print("after"); os.write(1, b"raw\\n")
streams.end(2)
pool.shutdown(); loop.close()
""")
    assert done.text(1) == "late\nnested\ntask\npool\n"
    assert done.text(1, "stderr") == "nested err\n"
    assert Shown(1, 3) in done.out
    assert done.text(2) in ("before\nafter\nraw\n", "before\nraw\nafter\n")
    assert [event for event in done.out if isinstance(event, Ended)] == [Ended(1), Ended(2)]


def test_a_forked_child_prints_for_the_run_that_made_it_and_repeats_nothing():
    done = ran("""
streams.begin(1)
print("parent", end=" "); libc.printf(b"[c]")
go, go_in = os.pipe()
child = os.fork()
if not child:
    os.read(go, 1)
    print("child")
    print("€" * 3000)
    print("child err", file=sys.stderr)
    threading.Thread(target=print, args=("thread",)).start()
    os._exit(0) if not sys.stdout.flush() else None
print("parent goes on")
streams.end(1)
streams.begin(2)
os.write(go_in, b"x")
os.waitpid(child, 0)
print("two")
streams.end(2)
""")
    assert done.text(1).replace("[c]", "").startswith("parent parent goes on\nchild\n" + "€" * 3000 + "\n")
    assert done.text(1).count("[c]") == 1
    assert done.text(1, "stderr") == "child err\n"
    assert done.text(2) == "two\n"


def test_many_children_do_not_tear_each_others_marks():
    done = ran("""
streams.begin(1)
pids = []
for n in range(4):
    if not (pid := os.fork()):
        for i in range(300):
            print(str(n) * 50)
            print(str(n) * 50, file=sys.stderr)
        sys.stdout.flush()
        os._exit(0)
    pids.append(pid)
for i in range(3000): print("p" * 50)
for pid in pids: os.waitpid(pid, 0)
streams.end(1)
""")
    for letter, count in [("0", 300), ("1", 300), ("2", 300), ("3", 300), ("p", 3000)]:
        assert done.text(1).count(letter) == 50 * count
    assert done.text(1, "stderr").count("3") == 50 * 300
    assert not any("mb;" in event.text for event in done.out if isinstance(event, Text))


def test_bytes_go_through_the_buffer_in_order():
    done = ran("""
streams.begin(1)
print("a", end=""); sys.stdout.buffer.write(b"\\xff"); print("\\udc80b", end="")
sys.stderr.buffer.write("€".encode()[:1]); sys.stderr.buffer.write(bytearray("€".encode()[1:]))
streams.end(1)
""")
    assert done.out == [Text(1, "stdout", "a\ufffd\\udc80b"), Text(1, "stderr", "€"), Ended(1)]


@pytest.mark.parametrize("busy", ["sys.stdin.read()", "while True: pass"])
def test_text_comes_while_the_main_thread_is_busy(busy: str):
    with rank(f"streams.begin(1)\nprint('early')\n{busy}") as busy_rank:
        while busy_rank.text(1) != "early\n":
            assert busy_rank.selector.get_map()
            busy_rank.wait_some()


def test_where_no_thread_is_left_a_print_goes_out_all_the_same():
    starved = (
        "import meshbook.runtime.ranks.streams as m\ndef refuse(*_): raise RuntimeError\nm.start_new_thread = refuse\n"
    )
    assert ran(f"{starved}streams.begin(7)\nprint('a')\nstreams.end(7)").text(7) == "a\n"


def test_a_crash_leaves_every_line_before_it_and_all_of_stderr():
    with rank("""
streams.begin(1)
sys.stderr.write("last words")
for step in range(60): print("step", step)
os._exit(3)
""") as crashed:
        assert crashed.wait() == 3
    assert crashed.text(1) == "".join(f"step {step}\n" for step in range(60))
    assert crashed.text(1, "stderr") == "last words"


def test_a_segfault_is_told_on_the_err_pipe():
    with rank("""
import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
streams.begin(4)
devnull = os.open(os.devnull, os.O_WRONLY); os.dup2(devnull, 2)  # user code silences fd 2
faulthandler._sigsegv()
""") as crashed:
        assert crashed.wait() < 0
    assert isinstance(crashed.err[0], Text)
    assert crashed.err[0].run == 4
    assert "Fatal Python error: Segmentation fault" in crashed.err[0].text


def test_a_redirect_of_fd_1_takes_c_output_only():
    done = ran("""
streams.begin(1)
sink = os.open(os.devnull, os.O_WRONLY); os.dup2(sink, 1)
print("python"); os.system("echo c")
streams.end(1)
""")
    assert done.out == [Text(1, "stdout", "python\n"), Ended(1)]


def test_interrupts_lose_nothing_and_repeat_nothing():
    done = ran("""
armed = False
def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
streams.begin(1)
struck = []
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
number = 0
def write():  # apart: Python 3.13 may see a signal where a loop in a `try` begins again, and not in the `try`
    global number
    while number < 60000:
        number += 1
        sys.stdout.write(f"{number}\\n")
while number < 60000:
    try:
        armed = True
        write()
    except KeyboardInterrupt:
        struck.append(number)
armed = False
signal.setitimer(signal.ITIMER_REAL, 0)
streams.end(1)
streams.begin(2)
print(*struck)
streams.end(2)
""")
    lines = [int(line) for line in done.text(1).split()]
    struck = {int(number) for number in done.text(2).split()}
    assert struck
    assert lines == sorted(set(lines))
    assert set(range(1, 60001)) - set(lines) <= struck


def test_a_signal_handler_may_print_anywhere():
    done = ran("""
hits = 0
def tick(*_):
    global hits
    hits += 1
    print("<tick>"); print("<err>", file=sys.stderr)
signal.signal(signal.SIGALRM, tick)
streams.begin(1)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for i in range(30000): print(i)
signal.setitimer(signal.ITIMER_REAL, 0)
streams.end(1)
streams.begin(2)
print(hits)
streams.end(2)
""")
    hits = int(done.text(2))
    assert hits
    assert done.text(1).count("<tick>") == hits
    errors = done.text(1, "stderr")  # ticks nest: a line end may come later
    assert errors.count("<err>") == errors.count("\n") == hits
    digits = "".join(done.text(1).replace("<tick>", "").split())
    assert digits == "".join(map(str, range(30000)))


def test_threads_that_print_at_once_lose_nothing():
    done = ran("""
streams.begin(1)
def work(n):
    for i in range(3000): sys.stdout.write(f"{n}:{i}\\n")
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
streams.end(1)
""")
    lines = done.text(1).splitlines()
    for n in range(4):
        assert [line for line in lines if line.startswith(f"{n}:")] == [f"{n}:{i}" for i in range(3000)]


def test_a_pipe_made_non_blocking_still_takes_all():
    done = ran("""
streams.begin(1)
os.set_blocking(1, False)
for i in range(50): print("x" * 9999)
streams.end(1)
""")
    assert done.text(1) == ("x" * 9999 + "\n") * 50


def test_no_reader_is_no_error():
    with rank("""
streams.begin(1)
sys.stdin.read(1)
print("x" * 200_000)
print("y", file=sys.stderr, flush=True)
streams.end(1)
""") as lonely:
        for fd in lonely.tapes:
            lonely.selector.unregister(fd)
            os.close(fd)
        lonely.tapes.clear()
        lonely.process.communicate(b"go")
        assert lonely.process.returncode == 0


@pytest.mark.slow
def test_a_hundred_megabytes_without_a_newline_come_whole():
    with rank("streams.begin(1)\nsys.stdout.write('x' * 100_000_000)\nstreams.end(1)") as loud:
        out = next(iter(loud.tapes))
        size = 0
        while loud.selector.get_map():
            loud.wait_some()
            size += sum(len(event.text) for event in loud.events[out] if isinstance(event, Text))
            loud.events[out].clear()
    assert size == 100_000_000


def test_a_long_text_is_parted_without_a_copy_of_its_rest_for_each_part():
    copied: list[int] = []

    class Watched(bytes):
        def __getitem__(self, key: slice) -> Watched:  # type: ignore[override]
            copied.append(len(range(len(self))[key]))
            return Watched(super().__getitem__(key))

    text = Watched("aé".encode() * 1000)
    assert b"".join(_parted(text, 7)) == text
    assert sum(copied) < 4 * len(text)


def test_text_left_at_a_normal_exit_is_written():
    assert ran("streams.begin(1)\nprint('bye', end='')").text(1) == "bye"


@pytest.fixture
def stdout() -> Iterator[TextStream]:
    fds = (*os.pipe(), *os.pipe())
    yield TextStream(Streams(TOKEN, fds[1], fds[3]), "out")
    for fd in fds:
        os.close(fd)


def test_the_stream_looks_like_any_text_stream(stdout: TextStream):
    assert isinstance(stdout, io.TextIOBase)
    assert (stdout.encoding, stdout.isatty(), stdout.fileno(), stdout.name) == ("utf-8", False, 1, "<stdout>")
    assert stdout.writable() and not stdout.readable() and not stdout.seekable()
    assert stdout.write("€uro") == 4
    stdout.writelines(["a", "b"])
    stdout.reconfigure(encoding="latin-1", line_buffering=True)
    stdout.buffer.write(memoryview(b"abcd"))
    stdout.close()
    assert not stdout.closed
    assert stdout.write("still there") == 11


def test_what_holds_the_stream_of_a_rank_may_leave_it(stdout: TextStream):
    assert codec.loads(codec.dumps({"out": stdout})) == {"out": sys.stdout}


def test_the_wrong_type_is_refused_at_the_write(stdout: TextStream):
    with pytest.raises(TypeError, match="must be str, not bytes"):
        stdout.write(b"bytes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="bytes-like"):
        stdout.buffer.write("text")  # pyright: ignore[reportArgumentType]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
def test_a_subprocess_inherits_fds_1_and_2_only():
    done = ran("""
streams.begin(1)
subprocess.run("ls /proc/$$/fd", shell=True, close_fds=False)
streams.end(1)
""")
    assert done.text(1).split()[:3] == ["0", "1", "2"]
    assert len(done.text(1).split()) <= 4  # the shell may keep one of its own
