"""The output of a rank: `sys.stdout`, `sys.stderr` and fds 1 and 2 become two pipes to the controller.

All text that Python writes goes through one pipe (fd 1), stderr too, so its order is exact. Between the
text stand marks (`wire/tape.py`) that say to which run and stream it belongs. The second pipe (fd 2) takes
what is written past Python: C, subprocesses, `faulthandler`.

The first text of a run brings the first pipe to *rest* at it, at stdout: what C code writes to fd 1 from then on is
labelled right, and text of others (a thread that an earlier run left behind, a forked child) goes as an `aside`. A run
that says nothing writes no mark: most say nothing, and four small writes would be half of what a call costs. What C
code writes before any text of Python is labelled by the controller, which knows what it asked for (`Tape.begin`).
"""

from __future__ import annotations

import atexit
import codecs
import ctypes
import faulthandler
import functools
import io
import os
import select
import subprocess
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from itertools import groupby
from queue import SimpleQueue
from time import sleep
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from ..system.libc import libc
from ..wire.tape import mark
from . import raising
from .pipe import Pipe, Standard

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_FULL = 1 << 15
_DELAY = 0.005  # and a busy main thread lets the flusher wait for the GIL, 5 ms more
_AT_ONCE = 64  # lines after a silence; each costs 2 us, and the crash that comes next does not take them along
_ERRORS = "backslashreplace"  # a lone surrogate in a print is not worth an exception at the next flush

_RUN: ContextVar[int] = ContextVar("meshbook_run")
_RUN_OF_THREAD = "_meshbook_run"

_Voice = Literal["out", "err"]
_Piece = tuple[int, _Voice, str | bytes] | tuple[int, Literal["show"], int]


class Streams:
    """What a rank prints, on its way to the controller. The main thread calls `begin` and `end`.

    A write belongs to the run that its code was started in: asyncio tasks and threads (and their threads)
    keep the run that made them, also when they print after its end.
    """

    def __init__(self, token: str, out_fd: int, err_fd: int) -> None:
        self._token = token
        self._to_err, self._to_out = mark(token, "err"), mark(token, "out")
        self._out = Pipe(out_fd)
        self._err = Pipe(err_fd)
        self._standard = Standard()
        # `_lock`: threads print at the same time, and `begin` must not come between a writer's look at the
        # run and its write. Reentrant: a signal handler may print while this very thread is inside.
        self._lock = threading.RLock()
        self._run = 0
        self._resting: int | None = None  # None: where the pipe rests is not known, or a run has ended there
        self._is_open = False  # between `begin` and `end`, and not in a forked child: the pipe may be brought to rest
        self._talked = False
        self._num_batches = 0  # grows whenever something goes into the pipe
        self._pending: list[str | _Piece] = []  # a bare str is stdout of the run that the pipe rests at
        self._size = 0
        self._is_flushing = False
        self._wakes: SimpleQueue[None] = SimpleQueue()  # unlike an Event, it may be set in a signal handler
        self._has_flusher = False
        self._is_awake = False
        self._lines_left = 0  # while the flusher is awake: how many more lines go out at once
        self._by_line = False  # where no flusher can run: in a forked child, at exit
        self._c_stdout: Callable[[], object] = _nothing

    def install(self) -> None:
        """Takes over fds 1 and 2, C's stdout and `sys`; watches threads, forks and subprocesses start."""
        for old in (sys.stdout, sys.stderr):
            old.flush()
        self._out.own()
        self._err.own()
        os.dup2(self._out.fd, 1)
        os.dup2(self._err.fd, 2)
        self._standard.watch({1: self._out, 2: self._err})
        self._c_stdout = _line_buffered_c_stdout()
        faulthandler.enable(self._err.fd)
        sys.stdout = sys.__stdout__ = cast(TextIO, TextStream(self, "out"))  # pyright: ignore[reportConstantRedefinition]
        sys.stderr = sys.__stderr__ = cast(TextIO, TextStream(self, "err"))
        _before(threading.Thread, "start", self._adopt)
        # Its echo comes after what was printed before it.
        _before(subprocess.Popen, "__init__", self._flush_first)
        _before(os, "system", self._flush_first)
        os.register_at_fork(before=self._flush_all, after_in_child=self._forked)
        atexit.register(self._exit)

    def begin(self, run: int) -> None:
        """From here on what the main thread, C code and subprocesses write belongs to `run`."""
        with self._lock:
            self._flush()
            self._run, self._resting, self._is_open = run, None, True
            _RUN.set(run)

    def end(self, run: int) -> bool:
        """All output so far goes out (C's stdout too), then the mark `end` on both pipes if there was any.

        True: the pipes are to be read up to it. False: nothing was said that the controller has not read.
        """
        self._standard.mend()
        self._c_stdout()
        with self._lock:
            self._flush()
            talked = self._talked or self._out.has_unread() or self._err.has_unread()
            if talked:
                self._mark_both("end", run)
            self._resting, self._is_open, self._talked = None, False, False
        return talked

    def join(self, run: int) -> int:
        """What the calling thread or task prints from here on belongs to `run`, beside what the main thread does.

        How much has been said so far, for `leave`.
        """
        _RUN.set(run)
        return self._num_batches

    def leave(self, said: int) -> bool:
        """Flush; whether something was said since `said`, by anybody, or there is what the controller has not read."""
        with self._lock:
            if self._pending or self._out.unsent:
                self._flush()
            return self._num_batches != said or self._out.has_unread() or self._err.has_unread()

    def current(self) -> int:
        """The run that what the calling code prints belongs to."""
        with self._lock:
            return self._writer()

    def show(self, number: int) -> None:
        """Marks the place of display message `number`. It is in the pipe when this returns."""
        with self._lock:
            self._pending.append((self._writer(), "show", number))
            self._flush()

    def flush(self) -> None:
        """What was printed so far is in the pipe when this returns."""
        with self._lock:
            self._flush()

    def write(self, voice: _Voice, text: str) -> None:
        """One print's text. Hot: 0.3 microseconds."""
        with self._lock:
            run = _RUN.get(None)
            if run is None:
                run = self._writer()
            if run == self._resting and voice == "out":
                self._pending.append(text)
            else:
                self._pending.append((run, voice, text))
            self._size += len(text)
            if self._size >= _FULL or (voice == "err" and text != "\n"):  # print's own line end may wait
                self._flush()
            elif not self._is_awake:
                self._soon("\n" in text)
            elif self._lines_left and "\n" in text:
                self._flush()

    def write_bytes(self, voice: _Voice, data: bytes) -> None:
        """What goes to `sys.stdout.buffer`: any bytes."""
        with self._lock:
            self._pending.append((self._writer(), voice, data))
            self._size += len(data)
            if self._size >= _FULL or voice == "err":
                self._flush()
            elif not self._is_awake:
                self._soon(b"\n" in data)
            elif self._lines_left and b"\n" in data:
                self._flush()

    def _writer(self) -> int:
        """The run that the calling code was started in; of a thread that C made, the run begun last."""
        run = _RUN.get(None)
        if run is None:
            run = cast("int | None", vars(threading.current_thread()).get(_RUN_OF_THREAD))
            if run is None:
                return self._run
            _RUN.set(run)
        return run

    def _adopt(self, thread: threading.Thread) -> None:
        setattr(thread, _RUN_OF_THREAD, self._writer())

    def _soon(self, has_line: bool) -> None:
        """Lets the flusher write in a few milliseconds what is pending now.

        The first lines after a silence go out at once: the process may crash in what comes next.
        """
        if self._by_line:
            if has_line:
                self._flush()
            return
        if not self._has_flusher:
            # Not a `threading.Thread`: no debugger stops it, no list of the user's threads shows it.
            try:
                start_new_thread(self._keep_flushing, ())
            except RuntimeError:  # no thread is left: a print is not to fail for that
                self._flush()
                return
            self._has_flusher = True
        self._wakes.put(None)
        self._is_awake, self._lines_left = True, _AT_ONCE
        if has_line:
            self._flush()

    def _keep_flushing(self) -> None:
        while True:
            self._wakes.get()
            sleep(_DELAY)
            lock = self._lock
            if self._by_line:
                return
            with lock:
                self._is_awake = False
                self._flush()

    def _flush(self) -> None:
        if not self._pending and not self._out.unsent:
            return
        if self._is_flushing:
            return  # a signal handler prints while this thread flushes: the loop below goes on with its text
        self._is_flushing = True
        try:
            while self._pending or self._out.unsent:
                batch = self._pending[:]  # a signal handler may append to the list meanwhile
                count, packets = len(batch), self._encoded(batch)
                self._talked = True
                self._num_batches += 1
                # No call in these two lines: only at a call can a KeyboardInterrupt come between them.
                self._out.unsent += packets
                del self._pending[:count]
                self._size = 0
                self._lines_left -= self._lines_left > 0
                self._out.send()
        finally:
            self._is_flushing = False

    def _encoded(self, pending: list[str | _Piece]) -> list[bytes]:
        try:
            text = "".join(cast("list[str]", pending))
        except TypeError:
            return list(_packed(self._pieces(pending)))
        return [text.encode("utf-8", _ERRORS)] if text else []

    def _pieces(self, pending: list[str | _Piece]) -> Iterator[bytes]:
        """Text and marks in order. A piece that holds a mark is at most `PIPE_BUF` long."""
        for (run, voice), entries in groupby(pending, self._owner):
            if voice == "show":
                yield from self._come_to_rest(run)
                yield from (self._show(*cast("tuple[int, str, int]", entry)) for entry in entries)
                continue
            data = b"".join(map(_bytes, entries))
            yield from self._come_to_rest(run)
            if run != self._resting:
                yield from self._aside(run, voice, data)
            elif voice == "err":
                yield from (self._to_err, data, self._to_out)
            else:
                yield data

    def _come_to_rest(self, run: int | None) -> Iterator[bytes]:
        if self._is_open and run == self._run and run != self._resting:
            self._resting = run
            yield mark(self._token, "run", run)

    def _owner(self, entry: str | _Piece) -> tuple[int | None, str]:
        return (self._resting, "out") if isinstance(entry, str) else entry[:2]

    def _show(self, run: int, voice: str, number: int) -> bytes:
        show = mark(self._token, "show", number)
        return show if run == self._resting else self._framed(run, show)

    def _aside(self, run: int | None, voice: str, data: bytes) -> Iterator[bytes]:
        """Pieces so small that no other process that writes to the pipe can come between their marks."""
        assert run is not None
        first = self._to_err if voice == "err" else b""
        room = select.PIPE_BUF - len(self._framed(run, first))
        for part in _parted(data, room):
            yield self._framed(run, first + part)

    def _framed(self, run: int, data: bytes) -> bytes:
        return mark(self._token, "aside", run) + data + mark(self._token, "back")

    def _mark_both(self, kind: Literal["run", "end"], run: int) -> None:
        word = mark(self._token, kind, run)
        for pipe in (self._out, self._err):
            pipe.unsent.append(word)
            pipe.send()

    def _flush_first(self, *_: object, **__: object) -> None:
        """A child is about to write to both pipes."""
        with self._lock:
            self._flush()
            if self._is_open:
                self._resting, self._talked = self._run, True
                self._mark_both("run", self._run)

    def _flush_all(self) -> None:
        self._c_stdout()
        self.flush()

    def _forked(self) -> None:
        """In a forked child. What another thread left pending is the parent's to write."""
        self._lock = threading.RLock()
        self._pending, self._size, self._is_flushing = [], 0, False
        self._out.unsent.clear()
        self._err.unsent.clear()
        self._run, self._resting, self._is_open = self._writer(), None, False
        self._by_line, self._is_awake, self._lines_left = True, False, 0

    def _exit(self) -> None:
        """No flusher from here on. The new lock: the interpreter ends threads that may hold the old one."""
        with self._lock:
            self._by_line = True
            self._flush()
        self._lock = threading.RLock()


class TextStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of a rank. Cannot be closed: the rank outlives the cell that tried."""

    mode = "w"
    line_buffering = False
    write_through = False

    def __init__(self, streams: Streams, voice: _Voice) -> None:
        self._streams = streams
        self._voice: _Voice = voice
        self._fd = 1 if voice == "out" else 2
        self.name = f"<std{voice}>"
        self.buffer = ByteStream(streams, voice)

    def __reduce__(self) -> Any:
        return _stream_of, (f"std{self._voice}",)

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._streams.write(self._voice, text)
        if raising.unmet:
            raising.meet()
        return len(text)

    def flush(self) -> None:
        self._streams.flush()

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.flush()

    def reconfigure(self, **options: object) -> None:
        """Takes what `io.TextIOWrapper` takes; changes nothing."""
        self.flush()

    @property
    def closed(self) -> bool:
        return False

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "utf-8"

    @property
    def errors(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return _ERRORS


def _stream_of(name: str) -> Any:
    """What an object has that held the stream of a rank, and was sent on: that of the process where it has come to."""
    return getattr(sys, name)


class ByteStream(io.BufferedIOBase):
    """`sys.stdout.buffer`: bytes that keep their place among the text."""

    mode = "wb"

    def __init__(self, streams: Streams, voice: _Voice) -> None:
        self._streams = streams
        self._voice: _Voice = voice
        self.name = f"<std{voice}>"

    def write(self, data: ReadableBuffer, /) -> int:
        if isinstance(data, str):
            raise TypeError("a bytes-like object is required, not 'str'")
        copy = bytes(memoryview(data))
        self._streams.write_bytes(self._voice, copy)
        if raising.unmet:
            raising.meet()
        return len(copy)

    def flush(self) -> None:
        self._streams.flush()

    def fileno(self) -> int:
        return 1 if self._voice == "out" else 2

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.flush()

    @property
    def closed(self) -> bool:
        return False


def _packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Joins pieces to writes that the system does not part; a longer piece (it holds no mark) goes alone."""
    packet = b""
    for piece in pieces:
        if packet and len(packet) + len(piece) > select.PIPE_BUF:
            yield packet
            packet = b""
        packet += piece
    if packet:
        yield packet


def _parted(data: bytes, room: int) -> Iterator[bytes]:
    """`data` in parts of at most `room` bytes, cut between code points where it is UTF-8."""
    at = 0
    while len(data) - at > room:
        end = at + codecs.utf_8_decode(data[at : at + room], "replace", False)[1]
        yield data[at:end]
        at = end
    yield data[at:]


def _bytes(entry: str | _Piece) -> bytes:
    text = entry if isinstance(entry, str) else entry[2]
    assert not isinstance(text, int)
    return text if isinstance(text, bytes) else text.encode("utf-8", _ERRORS)


def _before(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Lets `act` see each call of `owner.name` before it is made."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def watched(*args: Any, **options: Any) -> Any:
        act(*args, **options)
        return plain(*args, **options)

    setattr(owner, name, watched)


def _nothing() -> None:
    pass


def _line_buffered_c_stdout() -> Callable[[], object]:
    """Lets C code's `printf` go out by the line; gives the function that flushes the rest of a line.

    Only C's stdout, not all C streams: `fflush(NULL)` waits for any thread that reads from one.
    """
    try:
        name = "__stdoutp" if sys.platform == "darwin" else "stdout"
        stdout = ctypes.c_void_p.in_dll(libc(), name)
        libc().setvbuf(stdout, None, 1, 0)  # _IOLBF, 1 on Linux and macOS
    except (OSError, AttributeError, ValueError):  # a C library without these names
        return _nothing
    return functools.partial(libc().fflush, stdout)
