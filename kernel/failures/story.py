"""The story of an error: who failed and where in the user's own lines, what others did, what to type next.

`tell` makes a `Story` of plain facts; `Story.text` is what a notebook and a terminal show. What it leaves out stands in
the tracebacks, `in_full`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from ...runtime.numerals import condensed
from ...runtime.ranges import coords_text, named, ranks_text
from ...runtime.ranks.place import coordinates
from ..outcome import Failure, Frame
from ..values.chance import essence
from ..values.summary import readable
from .abridged import abridged
from .together import Together

MUCH_MEMORY = 100 << 20
"""Bytes of which it is told that frames hold them."""

_POST_MORTEM = "%mesh debug --pm"
_IN_FULL, _IN_FULL_LATER = "%tb", "%tb after its `result()`"
_UNREADABLE = {"SyntaxError", "IndentationError", "TabError"}
"""A cell that is no Python: there is nothing to look into, and no other end to hope for from running it again."""

_MISUSE = "UsageError"
"""IPython's, of a magic: its message has all, where in IPython it was raised is of no use."""

_MAX_CHAPTERS = 5
_MAX_MESSAGES = 3
_MAX_FATES = 6
_MAX_NOTES = 3
_MAX_FRAMES = 6
_MAX_TRACEBACKS = 8
_MOST_NUMBERS = 60
"""Characters of a group of ranks by number; longer than that, it is named by its first coordinates."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_COLOURS: Final = {
    "bad": "\x1b[1;31m",
    "bold": "\x1b[1m",
    "wait": "\x1b[1;33m",
    "dim": "\x1b[2m",
}

T = TypeVar("T")
E = TypeVar("E", bound="Told")


class Told(Protocol):
    """An error that can have a story."""

    story: str
    in_full: str

    def add_note(self, note: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Chapter:
    """Ranks that failed at the same place with the same type of error."""

    where: str
    """Their coordinates, shortened where there are many."""
    num_ranks: int
    type_name: str
    messages: tuple[str, ...]
    """The different messages, the first rank's first; not more than a few."""
    num_messages: int
    frames: tuple[Frame | int, ...]
    """The user's frames from the outside in; a number stands for that many left out."""
    library: Frame | None
    """Where it was raised, if not in the user's own lines."""
    is_whole: bool
    """Do its tracebacks say no more?"""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of ranks that did not raise: they died, or they waited for those that failed."""

    where: str
    num_ranks: int
    text: str
    is_lost: bool
    last_lines: tuple[str, ...] = ()
    """The end of the stderr of ranks that died."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Something to type next, and what for."""

    purpose: str
    command: str


@dataclass(frozen=True, slots=True)
class Story:
    """A failed cell, told once for all its ranks."""

    headline: str
    """`1 of 4 ranks failed`"""
    summary: str
    """The headline and who: one line, what `str(MeshError)` says."""
    chapters: tuple[Chapter, ...]
    fates: tuple[Fate, ...]
    hints: tuple[Hint, ...]
    num_more: int = 0
    """How many chapters and fates were left out."""
    notes: tuple[str, ...] = ()
    """What else explains it: where ranks parted in their collectives."""
    mended: str = ""
    """What was done so that the next cell works."""
    is_whole: bool = True
    """Do the tracebacks say no more?"""
    tracebacks: str = ""
    """What its chapters are told from (see `in_full`)."""
    shows_tracebacks: bool = False
    """Do they stand above it, where it leaves out some? As is best where nobody is there to ask for them."""

    def text(self, ansi: bool = False) -> str:
        """The story as plain text, with `ansi` in colour."""
        return "\n".join([*self._above(ansi), *_Painter(ansi).lines(self)])

    def body(self) -> str:
        """What belongs under the summary in a traceback of Python: no headline again, nothing to type in a notebook."""
        return "\n".join([*self._above(), *_Painter(ansi=False).lines(self)[1:-1]])

    def _above(self, ansi: bool = False) -> list[str]:
        if self.is_whole or not self.shows_tracebacks:
            return []
        return [self.tracebacks if ansi else without_escapes(self.tracebacks), ""]


def tell(
    axes: Mapping[str, int],
    ranks: Sequence[int],
    failures: Mapping[int, Failure],
    lost: Mapping[int, str] | None = None,
    waiting: Mapping[int, str] | None = None,
    last_lines: Mapping[int, Sequence[str]] | None = None,
    notes: Sequence[str] = (),
    mended: str = "",
    dead: Container[int] | None = None,
    together: Together | None = None,
    late: Container[int] = (),
    unclear: Container[int] = (),
) -> Story:
    """The story of a cell that ran on `ranks` of a mesh with these axes.

    `failures` raised, `lost` are gone (with why, and in `last_lines` the end of their stderr), `waiting` did
    something worth telling (waited for the failed ones, or were interrupted by the user). The first few
    `notes` are told, each a place where ranks part. `mended` is what was done afterwards. Of the lost, `dead` still are
    (None: all), `late` were given up: they live, and are not done; `unclear` live too, and failed to tell what came of
    it. `together` is what ranks did in common.

    Example:
        >>> frame = Frame("cell 5", 1, "<module>", "check(l)", True)
        >>> story = tell({"tp": 4}, range(4), {3: Failure("ValueError", "loss is nan", (frame,), "")})
        >>> print(story.text())
        ✗ 1 of 4 ranks failed
        tp=3  ValueError: loss is nan
             cell 5, line 1
           → 1  check(l)
        look inside: %mesh debug --pm   run again on it alone: %%on_mesh @failed
    """
    lost, waiting, together = lost or {}, waiting or {}, together or Together()
    where = _Where(axes)
    chapters = _chapters(where, failures)
    fates = _fates(where, lost, True, last_lines or {}) + _fates(where, waiting, False, {})
    shown_fates = fates[:_MAX_FATES]
    is_fault = bool(failures or lost)
    ran = [rank for rank, each in failures.items() if each.type_name not in _UNREADABLE or len(each.frames) > 1]
    counts = Counter("failed" if rank in unclear else "not done" if rank in late else "lost" for rank in lost)
    counts["failed"] += len(failures)
    headline = _headline(counts, len(ranks)) if is_fault else _stopped(len(waiting), len(ranks))
    return Story(
        headline=headline,
        summary=f"{headline} ({where.text([*failures, *lost] if is_fault else list(waiting))})",
        chapters=tuple(chapters[:_MAX_CHAPTERS]),
        fates=tuple(shown_fates),
        # New process groups begin a new ledger: there is nothing to see in it.
        hints=tuple(
            _hints(
                sorted(ran if is_fault else waiting),
                sorted(lost),
                again=_again(axes, ranks) if waiting or together.needs_all or len(ran) == len(ranks) > 1 else None,
                has_notes=bool(notes) and not mended,
                dead=dead,
            )
        ),
        num_more=max(len(chapters) - _MAX_CHAPTERS, 0) + len(fates) - len(shown_fates),
        notes=(*notes[:_MAX_NOTES], *_more_notes(len(notes) - _MAX_NOTES), *together.notes),
        mended=mended,
        is_whole=len(chapters) <= _MAX_CHAPTERS and all(chapter.is_whole for chapter in chapters),
    )


def _more_notes(num_more: int) -> list[str]:
    return [f"and {num_more:,} more place{'s' * (num_more > 1)} where ranks part"] if num_more > 0 else []


def in_full(axes: Mapping[str, int], failures: Mapping[int, Failure]) -> str:
    """The tracebacks of ranks that failed, with the frames of libraries; of those at the same place the first rank's.

    Example:
        >>> text = "Traceback (most recent call last):\\n  ...\\nValueError: loss is nan"
        >>> failures = dict.fromkeys(range(4), Failure("ValueError", "loss is nan", (), text))
        >>> print(without_escapes(in_full({"tp": 4}, failures)))
        tp=0-3 ×4
        Traceback (most recent call last):
          ...
        ValueError: loss is nan
    """
    where, groups = _Where(axes), [ranks for _, ranks in _alike(failures)]
    texts = [_traceback(where, ranks, failures) for ranks in groups[:_MAX_TRACEBACKS]]
    if more := len(groups) - len(texts):
        texts.append(f"… and {more:,} more of the kind")
    return "\n\n".join(texts)


def noted(error: E, story: Story) -> E:
    """The error with its story, for those who read it: IPython asks for it, scripts, pytest and logs show notes.

    Example:
        >>> from meshbook import MeshError
        >>> story = tell({"tp": 2}, range(2), {1: Failure("ValueError", "boom", (), "")})
        >>> noted(MeshError(story.summary), story).__notes__
        ['tp=1  ValueError: boom']
    """
    error.story, error.in_full = story.text(ansi=True), story.tracebacks
    error.add_note(story.body())
    return error


def with_way_to_tracebacks(story: Story, *, has_future: bool = False) -> Story:
    """The story with a word of where the rest of its tracebacks is, if it leaves out some.

    For the error of a cell; one that `has_future` raises it later, when it is asked.

    Example:
        >>> story = tell({"tp": 2}, range(2), {1: Failure("ValueError", "x" * 9_000, (), "")})
        >>> with_way_to_tracebacks(story).hints[1]
        Hint(purpose='whole traceback', command='%tb')
    """
    if story.is_whole:
        return story
    after = next((number for number, hint in enumerate(story.hints, 1) if hint.command == _POST_MORTEM), 0)
    way = Hint("whole traceback", _IN_FULL_LATER if has_future else _IN_FULL)
    return replace(story, hints=(*story.hints[:after], way, *story.hints[after:]))


def with_memory(story: Story, held: Mapping[int, int]) -> Story:
    """The story with a word of what ranks keep for `--pm`, in bytes, where it is much.

    Example:
        >>> story = tell({"tp": 2}, range(2), {1: Failure("ValueError", "", (), "")})
        >>> with_memory(story, {1: 4_400_000_000}).hints[0].purpose
        'look inside (rank 1 holds 4.1 GB for it until the next cell)'
    """
    much = {rank: size for rank, size in held.items() if size >= MUCH_MEMORY}
    if not much:
        return story
    ranks, sizes = ranks_text(sorted(much)), sorted({readable(size) for size in much.values()})
    who = f"rank {ranks} holds" if len(much) == 1 else f"ranks {ranks} hold"
    size = sizes[0] if len(sizes) == 1 else f"up to {readable(max(much.values()))}"
    note = f" ({who} {size} for it until the next cell)"
    hints = [
        replace(hint, purpose=hint.purpose + note) if hint.command == _POST_MORTEM else hint for hint in story.hints
    ]
    return replace(story, hints=tuple(hints))


def place_text(frame: Frame) -> str:
    """Where a frame is: `cell 2, line 9, in check`."""
    file = frame.file if len(frame.file) <= 48 else "…/" + "/".join(frame.file.split("/")[-2:])
    inside = "" if frame.name in ("<module>", "") else f", in {frame.name}"
    return f"{file}, line {frame.line}{inside}"


def line_text(frame: Frame, indent: int) -> str:
    """A frame's line behind its number, at `indent`; the caret of a syntax error stands below what it means."""
    number = f"{frame.line}  "
    return f"{number}{frame.source}".rstrip().replace("\n", "\n" + " " * (indent + len(number)))


def without_escapes(text: str) -> str:
    """Text without terminal colours and the like.

    Example:
        >>> without_escapes("\\x1b[31mred\\x1b[0m")
        'red'
    """
    return _ESCAPES.sub("", text)


class _Where:
    """Names ranks of a mesh by their coordinates; by number where these would be cut, and the numbers are short."""

    def __init__(self, axes: Mapping[str, int]) -> None:
        self._axes = axes

    def text(self, ranks: Sequence[int]) -> str:
        points = coords_text([coordinates(rank, self._axes) for rank in sorted(ranks)], self._axes)
        numbers = named(sorted(ranks))
        return numbers if points.endswith(" points)") and len(numbers) <= _MOST_NUMBERS else points


def _headline(counts: Counter[str], num_ranks: int) -> str:
    """Example: `1 of 4 ranks failed, 2 lost`."""
    first, *others = [(counts[what], what) for what in ("failed", "lost", "not done") if counts[what]]
    head = f"{first[0]} of {num_ranks} rank{'s' * (num_ranks != 1)} {first[1]}"
    return ", ".join([head, *(f"{number} {what}" for number, what in others)])


def _stopped(num_stopped: int, num_ranks: int) -> str:
    return f"{num_stopped} of {num_ranks} rank{'s' * (num_ranks != 1)} interrupted"


def _chapters(where: _Where, failures: Mapping[int, Failure]) -> list[Chapter]:
    """Failures told together: the same type at the same place of the user's lines."""
    return [_chapter(where, ranks, failures) for _, ranks in _alike(failures)]


def _alike(failures: Mapping[int, Failure]) -> list[tuple[object, list[int]]]:
    keys = {rank: (f.type_name, _users(f)) for rank, f in failures.items()}
    return [*_grouped(keys)]


def _chapter(where: _Where, ranks: Sequence[int], failures: Mapping[int, Failure]) -> Chapter:
    first = failures[ranks[0]]
    different: dict[str, str] = {}
    for rank in ranks:
        message = without_escapes(failures[rank].message.strip())
        different.setdefault(essence(message, rank), message)
    messages = [abridged(message) for message in different.values()]
    if len(messages) > _MAX_MESSAGES:
        messages = [message for _, [message] in condensed([[message] for message in messages])]
    shown, frames = tuple(messages[:_MAX_MESSAGES]), shortened_frames(first)
    last = first.frames[-1] if first.frames else None
    library = None if last is None or last.is_user or first.type_name == _MISUSE else last
    return Chapter(
        where=where.text(ranks),
        num_ranks=len(ranks),
        type_name=first.type_name,
        messages=shown,
        num_messages=len(messages),
        frames=frames,
        library=library,
        is_whole=library is None and shown == tuple(different.values()) and frames == _users(first),
    )


def _traceback(where: _Where, ranks: Sequence[int], failures: Mapping[int, Failure]) -> str:
    first = failures[ranks[0]]
    text = first.traceback or f"{first.type_name}: {first.message}".removesuffix(": ")
    is_same = all(failures[rank].traceback == first.traceback for rank in ranks)
    whose = "" if is_same else f", as rank {ranks[0]} tells it"
    return f"{_COLOURS['bold']}{where.text(ranks)}\x1b[0m{times(len(ranks))}{whose}\n{text}"


def shortened_frames(failure: Failure) -> tuple[Frame | int, ...]:
    """The user's own frames from the outside in; a number stands for that many left out."""
    frames = _users(failure)
    if len(frames) <= _MAX_FRAMES + 1:  # that one is left out is a line, too
        return frames
    half = _MAX_FRAMES // 2
    return (*frames[:half], len(frames) - 2 * half, *frames[-half:])


def _users(failure: Failure) -> tuple[Frame, ...]:
    return tuple(frame for frame in failure.frames if frame.is_user)


def _fates(
    where: _Where, texts: Mapping[int, str], is_lost: bool, last_lines: Mapping[int, Sequence[str]]
) -> list[Fate]:
    keys = {rank: (text, *map(without_escapes, last_lines.get(rank, ()))) for rank, text in texts.items()}
    fates = [(ranks, [*said]) for said, ranks in _grouped(keys)]
    if len(fates) > _MAX_FATES:
        fates = _condensed(fates)
    return [Fate(where.text(ranks), len(ranks), text, is_lost, tuple(lines)) for ranks, (text, *lines) in fates]


def _condensed(fates: Sequence[tuple[list[int], list[str]]]) -> list[tuple[list[int], list[str]]]:
    """Those that differ in their numbers alone, such as their pids, as one."""
    told = condensed([said for _, said in fates], keeps_odd=False)
    return [(sorted(rank for index in alike for rank in fates[index][0]), said) for alike, said in told]


def _grouped(keys: Mapping[int, T]) -> list[tuple[T, list[int]]]:
    groups: dict[T, list[int]] = {}
    for rank in sorted(keys):
        groups.setdefault(keys[rank], []).append(rank)
    return list(groups.items())


def _again(axes: Mapping[str, int], ranks: Sequence[int]) -> Hint:
    """What runs a cell again that came to its end nowhere: all failed, or waited for those that did."""
    is_whole = len(ranks) == math.prod(axes.values())
    return Hint("run it again on all", "%%on_mesh" if is_whole else f"%%on_mesh {ranks_text(ranks)}")


def _hints(
    failed: Sequence[int], lost: Sequence[int], again: Hint | None, has_notes: bool, dead: Container[int] | None
) -> list[Hint]:
    hints: list[Hint] = []
    if failed:
        alone = "run again on it alone" if len(failed) == 1 else "run again on them alone"
        hints = [Hint("look inside", _POST_MORTEM), again or Hint(alone, "%%on_mesh @failed")]
    if lost:
        if dead is None or any(rank in dead for rank in lost):
            hints.append(Hint("bring back", "%mesh restart @dead"))
        if not failed:
            hints.append(Hint("what it said", f"%mesh logs {lost[0]}"))
    return [*hints, Hint("what each rank issued", "%mesh ledger")] if has_notes else hints


class _Painter:
    """Turns a story into lines, in colour or not: every mark is there without colour too."""

    def __init__(self, ansi: bool) -> None:
        self._ansi = ansi

    def lines(self, story: Story) -> list[str]:
        lines = [f"{self._in('bad', '✗')} {self._in('bold', story.headline)}"]
        for chapter in story.chapters:
            lines += self._chapter(chapter)
        for fate in story.fates:
            lines += self._fate(fate)
        if story.num_more:
            lines.append(self._in("dim", f"… and {story.num_more:,} more of the kind"))
        lines += [f"{self._in('wait', '≠')} {note}" for note in story.notes]
        if story.mended:
            lines.append(f"{self._in('wait', '↻')} {story.mended}")
        hints = [f"{hint.purpose}: {self._in('bold', hint.command)}" for hint in story.hints]
        return [*lines, "   ".join(hints)]

    def _chapter(self, chapter: Chapter) -> list[str]:
        first, *others = chapter.messages
        title = f"{chapter.type_name}: {first}".removesuffix(": ")
        lines = [f"{self._in('bold', chapter.where)}{times(chapter.num_ranks)}  {_hung(title)}"]
        lines += [f"  also: {_hung(message)}" for message in others]
        if hidden := chapter.num_messages - len(chapter.messages):
            lines.append(self._in("dim", f"  and {hidden:,} other message{'s' * (hidden != 1)}"))
        for frame in chapter.frames:
            lines += self._frame(frame)
        if chapter.library is not None:
            lines.append(self._in("dim", f"     raised in {place_text(chapter.library)}"))
        return lines

    def _frame(self, frame: Frame | int) -> list[str]:
        if isinstance(frame, int):
            return [self._in("dim", f"     … {frame} more frames")]
        if not frame.source:  # of `exec`, say
            return [f"     {place_text(frame)}"]
        # Only the mark is red: notebooks show errors on a red ground, on which red text is hard to read.
        source = self._in("bold", line_text(frame, 5))
        return [f"     {place_text(frame)}", f"   {self._in('bad', '→')} {source}"]

    def _fate(self, fate: Fate) -> list[str]:
        mark = self._in("bad", "✗") if fate.is_lost else self._in("wait", "◌")
        line = f"{mark} {self._in('bold', fate.where)}{times(fate.num_ranks)}  {fate.text}"
        return [line, *(self._in("dim", f"     {last}") for last in fate.last_lines)]

    def _in(self, colour: str, text: str) -> str:
        return f"{_COLOURS[colour]}{text}\x1b[0m" if self._ansi else text


def times(num_ranks: int) -> str:
    """` ×3` for three ranks, nothing for one."""
    return f" ×{num_ranks:,}" if num_ranks > 1 else ""


def _hung(message: str) -> str:
    """A message of several lines, those after the first indented as frames are."""
    return message.replace("\n", "\n     ")
