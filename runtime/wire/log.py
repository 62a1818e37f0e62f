"""The full text of a rank, on disk: what a cell shows is bounded, what a rank said is kept."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from .tape import Stream

# Neither byte occurs in UTF-8, so what stands between them cannot be text: it says whose text follows.
_SWITCH = re.compile(rb"\xff(\d+);(stdout|stderr)\xfe")
_BLOCK = 1 << 18
_TAIL = 1 << 14

Piece = tuple[int, Stream, str]
"""Text of one run and stream, as it stands in the log: whole characters, any part of lines."""


class Mark(NamedTuple):
    """A place in a log from which to read on, and whose text stands there if nothing says otherwise."""

    offset: int = 0
    run: int = 0
    stream: Stream = "stdout"


class RankLog:
    r"""All that one rank wrote, by run and stream, in an unnamed temporary file that goes with the process.

    Memory: 24 bytes for each 256 KB of text, and 16 K characters of each stream's end.
    Any thread may append while another reads.

    >>> log = RankLog()
    >>> log.append(1, "stdout", "step 1\nstep 2\n")
    >>> log.append(1, "stderr", "slow disk\n")
    >>> log.append(2, "stdout", "done\n")
    >>> log.read(run=1, stream="stdout"), log.read(last=2), log.read(grep="slow|done")
    ('step 1\nstep 2\n', 'slow disk\ndone\n', 'slow disk\ndone\n')
    >>> log.close()
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._is_closed = False
        # `_lock`: the index, shared by the thread that appends and the one that reads.
        # `_reading`: held while a read is under way, so that `close` does not pull the file from under it.
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        # A block: where it begins, the least and the greatest run in it.
        self._offsets, self._least, self._greatest = array("q"), array("q"), array("q")
        self._size = 0
        self._last: tuple[int, Stream] = (0, "stdout")
        self._tails: dict[Stream, tuple[int, str]] = {"stdout": (0, ""), "stderr": (0, "")}
        self.lost = 0
        """Bytes that found no room on the disk, or came after the end."""

    def append(self, run: int, stream: Stream, text: str) -> None:
        """Keeps `text` after what is there. A full disk or a closed log loses text (see `lost`); it raises nothing."""
        if not text:
            return
        with self._lock:
            if self._is_closed:
                self.lost += len(text)
                return
            newest, tail = self._tails[stream]
            self._tails[stream] = max(run, newest), ("" if run > newest else tail)[-_TAIL:] + text[-_TAIL:]
            for start in range(0, len(text), _BLOCK):
                self._keep(run, stream, text[start : start + _BLOCK].encode("utf-8", "backslashreplace"))

    def read(
        self,
        run: int | None = None,
        stream: Stream | None = None,
        last: int | None = None,
        grep: str | None = None,
    ) -> str:
        """The text of `run` and `stream` (None: all); of it the lines that `grep` finds; of them the `last`.

        Raises `ValueError` where `grep` is no regular expression, `last` is negative or the log is closed.
        """
        if last is not None and last < 0:
            raise ValueError(f"last={last}: the number of lines must be 0 or more")
        pattern = _compiled(grep) if grep is not None else None
        with self._reading:
            blocks = self._blocks(run)
            if last is not None and pattern is None:
                return _last_lines(self._texts(reversed(blocks), run, stream), last)
            texts = self._texts(blocks, run, stream)
            if pattern is None:
                return "".join(texts)
            return "".join(deque((line for line in _split(texts) if pattern.search(line)), maxlen=last))

    def since(self, mark: Mark) -> tuple[list[Piece], Mark]:
        """What stands after `mark`, a block of it at most, and where to read on: the same place at the end of the log.

        Raises `ValueError` where the log is closed.
        """
        with self._reading:
            with self._lock:
                self._check_open()
                place = bisect_right(self._offsets, mark.offset)
                is_last = place == len(self._offsets)
                end = Mark(self._size, *self._last) if is_last else Mark(self._offsets[place])
            if end.offset == mark.offset:
                return [], mark
            begun, *pieces = self._pieces(mark.offset, end.offset)
            return [
                (mark.run, mark.stream, begun[2].decode()),
                *((int(r), _name(s), t.decode()) for r, s, t in pieces),
            ], end

    def before_last(self, lines: int, runs: Collection[int] | None = None, stream: Stream | None = None) -> Mark:
        """A mark after which at least so many lines of these runs and stream (None: all) end, if there are so many."""
        left = lines
        with self._reading:
            for begin, end in reversed(self._blocks(None)):
                for run, name, text in self._pieces(begin, end):
                    if run and (runs is None or int(run) in runs) and stream in (None, _name(name)):
                        left -= text.count(b"\n")
                if left < 0:
                    return Mark(begin)
        return Mark()

    def tail(self, stream: Stream, n: int, since: int = 0) -> str:
        """The last `n` lines of a stream from when its newest run began, if that is none before `since`.

        They come from memory: at most its last 16 K characters.
        """
        with self._lock:
            newest, text = self._tails[stream]
        return "".join(text[-_TAIL:].splitlines(keepends=True)[-n:]) if n and newest >= since else ""

    def close(self) -> None:
        """Gives the disk space back. `tail` stays."""
        with self._reading, self._lock:
            self._is_closed = True
            if self._file is not None:
                self._file.close()

    def _keep(self, run: int, stream: Stream, data: bytes) -> None:
        is_new = not self._offsets or self._size - self._offsets[-1] + len(data) > _BLOCK
        if is_new or (run, stream) != self._last:
            data = b"\xff%d;%b\xfe" % (run, stream.encode()) + data
        try:
            self._write(data)
        except OSError:  # the disk is full: the notebook goes on
            self.lost += len(data)
            return
        if is_new:
            self._offsets.append(self._size)
            self._least.append(run)
            self._greatest.append(run)
        self._least[-1] = min(run, self._least[-1])
        self._greatest[-1] = max(run, self._greatest[-1])
        self._last = (run, stream)
        self._size += len(data)

    def _write(self, data: bytes) -> None:
        """Writes at the end that the index knows, so what a failed write left behind is overwritten."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115
        rest, offset = memoryview(data), self._size
        while rest:
            done = os.pwrite(self._file.fileno(), rest, offset)
            rest, offset = rest[done:], offset + done

    def _blocks(self, run: int | None) -> list[tuple[int, int]]:
        """Begin and end of each block that `run` may be in, as of now: blocks grow and never change."""
        with self._lock:
            self._check_open()
            ends = [*self._offsets[1:], self._size]
            entries = zip(self._offsets, ends, self._least, self._greatest, strict=False)
            return [(begin, end) for begin, end, low, high in entries if run is None or low <= run <= high]

    def _texts(self, blocks: Iterable[tuple[int, int]], run: int | None, stream: Stream | None) -> Iterator[str]:
        for begin, end in blocks:
            kept = (
                text
                for owner, name, text in self._pieces(begin, end)[1:]
                if (run is None or int(owner) == run) and (stream is None or name == stream.encode())
            )
            yield b"".join(kept).decode()

    def _pieces(self, begin: int, end: int) -> list[tuple[bytes, bytes, bytes]]:
        """Run, stream and text between two places; first what goes on there, without saying whose it is."""
        assert self._file is not None
        begun, *pieces = _SWITCH.split(os.pread(self._file.fileno(), end - begin, begin))
        return [(b"", b"", begun), *zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=True)]

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the log of this rank is closed")


def _name(stream: bytes) -> Stream:
    return "stdout" if stream == b"stdout" else "stderr"


def _compiled(grep: str) -> re.Pattern[str]:
    try:
        return re.compile(grep)
    except re.error as error:
        raise ValueError(f"grep={grep!r} is no regular expression: {error}") from None


def _split(texts: Iterable[str]) -> Iterator[str]:
    """The lines of a text that comes in pieces, with their ends. Only `\\n` ends a line."""
    begun: list[str] = []  # joined once: a line may run over many pieces
    for text in texts:
        head, newline, rest = text.partition("\n")
        begun.append(head + newline)
        if newline:
            yield "".join(begun)
            *lines, tail = rest.split("\n")
            yield from (line + "\n" for line in lines)
            begun = [tail]
    if any(begun):
        yield "".join(begun)


def _last_lines(backwards: Iterable[str], last: int) -> str:
    """The last lines of a text whose pieces come last piece first; asks for no piece more than it needs."""
    pieces: deque[str] = deque()
    ends = 0
    for text in backwards:
        pieces.appendleft(text)
        ends += text.count("\n")
        if ends > last:
            break
    return "".join(deque(_split(pieces), maxlen=last))
