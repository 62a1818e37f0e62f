"""Lines: a rank's text, which comes in any pieces, is cut into lines; of too much text the last is kept.

A line is *marked*: its first character says its stream, so that one string comparison compares both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .screen import Screen, erased, needs_screen, parted

Stream = Literal["stdout", "stderr"]

LINE_CAP: Final = 65_536
"""The most characters that are held of one line; of a longer one its two ends stay."""
CUT: Final = "… "
"""Begins a line whose beginning is left out."""
MARK: Final[dict[Stream, str]] = {"stdout": "o", "stderr": "e"}
BAR: Final = "b"
"""Marks a line of stderr that was rewritten in place: progress, and no complaint."""
STREAM: Final[dict[str, Stream]] = {"o": "stdout", "e": "stderr", BAR: "stderr"}
_BARS: Final[dict[Stream, str]] = {"stdout": "o", "stderr": BAR}
_OTHER: Final[dict[Stream, Stream]] = {"stdout": "stderr", "stderr": "stdout"}


def byte_size(text: str) -> int:
    """Its bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def fitting(lines: Sequence[str], room: int, margin: int = 0) -> int:
    """How many lines, from the first on, fit into `room` bytes."""
    for count, line in enumerate(lines):
        room -= byte_size(line) + margin
        if room < 0:
            return count
    return len(lines)


def _last_state(line: str) -> str:
    """What a terminal leaves of a line: text after a carriage return replaces what stood there."""
    return erased(line.rstrip("\r").rpartition("\r")[2] if "\r" in line else line)


def _shorten(line: str, length: int) -> str:
    half = LINE_CAP // 2 - 50  # with what stands between them no more than the cap, so that it is shortened once
    return f"{line[:half]} … [a line of {length:,} characters] … {line[-half:]}"


class OpenLine:
    """The line of a stream whose newline has not come; it may grow for ever, its memory does not."""

    __slots__ = ("_has_returned", "_held", "_length", "_pieces", "is_rewritten", "since")

    def __init__(self) -> None:
        self.since = 0.0
        self.is_rewritten = False  # by a carriage return: a progress bar
        self._has_returned = False
        self._clear()

    def _clear(self) -> None:
        self._pieces: list[str] = []
        self._held = self._length = 0

    @property
    def is_empty(self) -> bool:
        return not self._length and not self._has_returned

    def add(self, text: str, now: float) -> None:
        body = text.rstrip("\r")
        if self.is_empty:
            self.since = now
        if body:
            self._add_visible(body)
        self._has_returned |= len(body) < len(text)

    def _add_visible(self, body: str) -> None:
        if self._has_returned or "\r" in body:
            self.is_rewritten = True
            self._clear()
            body = body.rpartition("\r")[2]
        self._has_returned = False
        self._pieces.append(body)
        self._held += len(body)
        self._length += len(body)
        if self._held > 2 * LINE_CAP:
            self._squeeze()

    def _squeeze(self) -> None:
        half = LINE_CAP // 2
        text = "".join(self._pieces)
        self._pieces = [text[:half], text[-half:]]
        self._held = LINE_CAP

    def text(self) -> str:
        text = erased("".join(self._pieces))
        return text if self._length <= LINE_CAP else _shorten(text, self._length)

    def raw(self) -> str:
        return self.text() + "\r" * self._has_returned

    def take(self) -> str:
        text = self.text()
        self._clear()
        self._has_returned = self.is_rewritten = False
        return text


def _mark_of(stream: Stream, unfinished: OpenLine | Screen) -> str:
    return (_BARS if unfinished.is_rewritten else MARK)[stream]


def _marked(stream: Stream, lines: list[str], text: str) -> list[str]:
    """Whole lines, which stand in this text, as they are left."""
    marks = [MARK[stream]] * len(lines)
    if "\r" in text or "\x1b[" in text:
        marks = [(_BARS if "\r" in line.rstrip("\r") else MARK)[stream] for line in lines]
        lines = [_last_state(line) for line in lines]
    if len(text) > LINE_CAP:
        lines = [_shorten(line, len(line)) if len(line) > LINE_CAP else line for line in lines]
    return [mark + line for mark, line in zip(marks, lines, strict=True)]


@dataclass(slots=True)
class _Held:
    """A bar whose newline has come, and nothing after it that tells why: it ended, or one is drawn below it."""

    stream: Stream
    line: str
    since: float


class Cutter:
    """Cuts one rank's text into marked lines; each stream has its own unfinished line.

    Bars in bars are known by the way up, which comes last: a newline, the inner bar, the way up. So a bar's newline
    with no other behind it leaves the bar `held` until more comes, or somebody loses patience (`overdue`).
    """

    __slots__ = ("_begun", "held", "last", "open")

    def __init__(self) -> None:
        self.open: dict[Stream, OpenLine | Screen] = {"stdout": OpenLine(), "stderr": OpenLine()}
        self.last: Stream = "stdout"
        self.held: _Held | None = None
        self._begun: dict[Stream, str] = {}  # codes of which the rest is to come; nothing of them would be seen

    def cut(self, stream: Stream, text: str, now: float = 0.0) -> list[str]:
        unfinished = self.open[stream]
        self.last = stream
        text, begun = parted(self._begun.pop(stream, "") + text)
        if begun:
            self._begun[stream] = begun
        before = self._ended(_OTHER[stream])
        if isinstance(unfinished, Screen) or needs_screen(text):
            return before + [MARK[stream] + line for line in self._cut_screen(stream, unfinished, text, now)]
        return before + self._cut_lines(stream, unfinished, text, now)

    def _ended(self, stream: Stream) -> list[str]:
        """The bars of a stream that have ended as it seems: the other stream has something to say."""
        unfinished = self.open[stream]
        if isinstance(unfinished, Screen) and unfinished.is_left:
            self.open[stream] = OpenLine()
            return [_BARS[stream] + line for line in unfinished.take().split("\n")]
        return self.release() if self.held is not None and self.held.stream == stream else []

    def _cut_lines(self, stream: Stream, unfinished: OpenLine, text: str, now: float) -> list[str]:
        first, newline, rest = text.partition("\n")
        unfinished.add(first, now)
        if not newline:
            return []
        lines = rest.split("\n")
        last = lines.pop()
        is_bar = unfinished.is_rewritten if not lines else "\r" in lines[-1].rstrip("\r")
        done = self.release()
        done.append(_mark_of(stream, unfinished) + unfinished.take())
        done += _marked(stream, lines, rest)
        unfinished.add(last, now)
        if is_bar:
            self.held = _Held(stream, done.pop()[1:], now)
        return done

    def _cut_screen(self, stream: Stream, unfinished: OpenLine | Screen, text: str, now: float) -> list[str]:
        if isinstance(unfinished, Screen):
            screen = unfinished
        elif self.held is not None:
            screen, self.held = Screen(self.held.line, self.held.since), None
            text = f"\n{unfinished.raw()}{text}"
        else:
            screen = Screen(unfinished.take(), now)
        self.open[stream] = screen
        lines = screen.write(text)
        if screen.is_over:
            self.open[stream] = line = OpenLine()
            line.add(screen.take(), now)
        return lines

    def release(self) -> list[str]:
        """The bar that is held, as a line that has ended."""
        held, self.held = self.held, None
        return [_BARS[held.stream] + held.line] if held is not None else []

    def overdue(self, since: float) -> list[str]:
        """The same, if it has been held since then."""
        return self.release() if self.held is not None and self.held.since <= since else []

    def raw(self, stream: Stream) -> str:
        """What has come of a stream that is in no line yet."""
        unfinished, held = self.open[stream].raw() + self._begun.get(stream, ""), self.held
        return f"{held.line}\n{unfinished}" if held is not None and held.stream == stream else unfinished

    @property
    def has_rest(self) -> bool:
        """Is there an unfinished line?"""
        return self.held is not None or any(unfinished.text() for unfinished in self.open.values())

    def rest(self) -> list[str]:
        """The unfinished lines as if they had ended, but for blank ones (an erased progress bar)."""
        texts = [(_mark_of(stream, unfinished), unfinished.take()) for stream, unfinished in self.open.items()]
        return self.release() + [mark + line for mark, text in texts for line in text.split("\n") if line.strip()]


class Tail:
    """What a rank says over the budget: its last `limit` characters as they came, the rest counted."""

    __slots__ = ("_cut", "_limit", "_ring", "_size", "_unfinished", "num_bytes", "num_lines")

    def __init__(self, limit: int) -> None:
        self.num_lines = self.num_bytes = 0
        self._limit = limit
        self._ring: deque[tuple[Stream, str]] = deque()
        self._size = 0
        self._cut: dict[Stream, bool] = {}  # was a stream's last dropped character inside a line?
        self._unfinished: dict[Stream, bool] = {}

    def add(self, stream: Stream, text: str) -> None:
        if not text:
            return
        self._count(text)
        _, newline, last = text.rpartition("\n")
        self._unfinished[stream] = bool(last.strip()) or (not newline and self._unfinished.get(stream, False))
        if (excess := len(text) - self._limit) > 0:
            self._cut[stream] = text[excess - 1] != "\n"
            text = text[excess:]
        self._ring.append((stream, text))
        self._size += len(text)
        while self._size - len(self._ring[0][1]) >= self._limit:
            old_stream, old = self._ring.popleft()
            self._size -= len(old)
            if old_stream != stream or excess <= 0:
                self._cut[old_stream] = not old.endswith("\n")

    def prepend(self, line: str) -> None:
        """Put a marked line before all that is here."""
        text = line[1:] + "\n"
        self._count(text)
        if self._size < self._limit:
            self._ring.appendleft((STREAM[line[0]], text))
            self._size += len(text)

    def _count(self, text: str) -> None:
        self.num_lines += text.count("\n")
        self.num_bytes += byte_size(text)

    def lines(self) -> list[str]:
        """The marked lines that are left; what was never ended counts as a line from now on."""
        cutter = Cutter()
        lines: list[str] = []
        for stream, text in self._ring:
            lines += cutter.cut(stream, text)
        lines += cutter.rest()
        self.num_lines += sum(self._unfinished.values())
        return [self._with_ellipsis(line) for line in lines]

    def _with_ellipsis(self, line: str) -> str:
        if not self._cut.pop(STREAM[line[0]], False):
            return line
        return f"{line[0]}{CUT}{line[1:]}"
