"""What a process says as it ends by itself: the stacks that `faulthandler` writes, told apart from other stderr.

A segmentation fault makes forty lines, of which one is the user's. The log keeps all; a reader is told the one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..cells import cell_of
from .ours import WINGS

LEFT_BY = "Left by "
"""How the note of `ranks.leaving` begins, which has the form of faulthandler's."""

_HEADS = ("Fatal Python error: ", LEFT_BY)

_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')
_THREAD = re.compile(r"(?P<kind>Current thread|Thread|Stack)\b.*\(most recent call first\):")
_OTHER = re.compile(r"  (?:\.\.\.|<|Binary file |/|Garbage-collecting)|Extension modules: |Python runtime state: ")
_C_STACK = "Current thread's C stack trace"

_MOST_PLACES = 6

_THREAD_BEGINS = ("_bootstrap", "_bootstrap_inner", "run")
"""What `threading` calls before the code of a thread."""


@dataclass(frozen=True, slots=True)
class Place:
    """A frame of a stack."""

    file: str
    line: int
    """0 where it is not known."""
    name: str


@dataclass(frozen=True, slots=True)
class Crash:
    """The end of a process as it told it itself."""

    what: str
    """`Segmentation fault`, or `os._exit(3)`."""
    stack: tuple[Place, ...]
    """Of the thread in which it happened, the innermost first."""
    others: tuple[Place, ...] = ()
    """The stacks of the other threads, one after the other."""


def read(text: str) -> Crash | None:
    """The last crash that is told in `text`; None if there is none.

    Example:
        >>> read('Fatal Python error: Aborted\\n\\nCurrent thread 0x7f (most recent call first):\\n'
        ...      '  File "a.py", line 3 in f\\n').stack
        (Place(file='a.py', line=3, name='f'),)
    """
    what = ""
    stack: list[Place] = []
    others: list[Place] = []
    into = others
    for line in text.splitlines():
        if head := _head_in(line):
            what, stack, others = line.partition(head)[2], [], []
            into = others
        elif thread := _THREAD.match(line):
            into = others if thread["kind"] == "Thread" else stack
        elif (place := frame_in(line)) and place.line:
            into.append(place)
    return Crash(what, tuple(stack), tuple(others)) if what else None


def frame_in(line: str) -> Place | None:
    """The frame that `faulthandler` tells in a line; None if it is about something else.

    Example:
        >>> frame_in('  File "a.py", line 3 in f'), frame_in('  File "b.py", line ??? in g'), frame_in("bye")
        (Place(file='a.py', line=3, name='f'), Place(file='b.py', line=0, name='g'), None)
    """
    found = _FRAME.fullmatch(line)
    return found and Place(found["file"], int(found["line"]) if found["line"].isdigit() else 0, found["name"])


def without(text: str) -> str:
    """`text` without the stacks of a crash, also where its beginning is cut off.

    Example:
        >>> without('low on disk\\nStack (most recent call first):\\n  File "a.py", line 3 in f\\n\\nbye\\n')
        'low on disk\\nbye\\n'
    """
    kept: list[str] = []
    is_inside = False
    for line in text.splitlines(keepends=True):
        is_inside = _belongs(line.rstrip("\n")) or (is_inside and not line.strip())
        if not is_inside:
            kept.append(line)
    return "".join(kept)


class Sieve:
    """Holds back the stacks of a crash from a stream of text that comes in any pieces.

    Example:
        >>> sieve = Sieve()
        >>> sieve.feed("careful\\nFatal Python err"), sieve.feed("or: Aborted\\n\\nnot of it\\n")
        ('careful\\nFatal Python err', 'or: Aborted\\n\\nnot of it\\n')
        >>> sieve.feed("Fatal Python error: Aborted\\n\\nnot "), sieve.feed("of it\\n"), sieve.crash().what
        ('', 'not of it\\n', 'Aborted')
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._open = ""

    def feed(self, text: str) -> str:
        """What of the text so far is not part of a crash. (faulthandler writes its head in one piece.)"""
        said = ""
        if not (self._held or self._open):
            found = [at for head in _HEADS if (at := text.find(head)) >= 0]
            if not found:
                return text
            said, text = text[: min(found)], text[min(found) :]
        *lines, self._open = (self._open + text).split("\n")
        for line in lines:
            if _belongs(line) or not line.strip():
                self._held.append(line)
            else:
                said += f"{line}\n"
        return said

    def crash(self) -> Crash | None:
        """The crash that was held back; None if there was none."""
        return read("\n".join([*self._held, self._open]))

    def rest(self) -> str:
        """All that is held back: for a process that lives on (it was a child of it that told its end)."""
        return "\n".join([*self._held, self._open])


def is_our_frame(line: str) -> bool:
    """Whether a line is a frame of our own files, or of what loads modules.

    Example:
        >>> is_our_frame(f'  File "{WINGS[0]}x.py", line 3 in f'), is_our_frame('  File "a.py", line 3 in f')
        (True, False)
    """
    found = frame_in(line) if line.startswith('  File "') else None
    return found is not None and found.file.startswith(("<frozen ", *WINGS))


def _belongs(line: str) -> bool:
    kinds = (_THREAD.match(line), _FRAME.fullmatch(line), _OTHER.match(line))
    return _head_in(line) is not None or any(kinds) or line.startswith(_C_STACK)


def _head_in(line: str) -> str | None:
    return next((head for head in _HEADS if head in line), None)


def places_text(stack: Iterable[Place], ours: Sequence[str] = ()) -> list[str]:
    """The frames of a stack, one a line, the innermost last; of a deep one its inner end.

    Frames of files that begin with one of `ours` are of no interest. Cells of this notebook have their names.

    Example:
        >>> places_text([Place("/rt/x.py", 1, "g"), Place("a.py", 3, "f"), Place("a.py", 9, "<module>")], ["/rt/"])
        ['a.py, line 9', 'a.py, line 3, in f']
    """
    told = [place for place in stack if not (place.file.startswith(("<frozen ", *ours)) or _begins_thread(place))]
    return [_place_text(place) for place in reversed(told[:_MOST_PLACES])]


def _begins_thread(place: Place) -> bool:
    return place.name in _THREAD_BEGINS and place.file.endswith("/threading.py")


def _place_text(place: Place) -> str:
    inside = "" if place.name == "<module>" else f", in {place.name}"
    return f"{cell_of(place.file) or place.file}, line {place.line}{inside}"
