"""What `%mesh stacks` found, as plain text and as data; `widgets.stacks` draws the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...runtime.ranges import coords_text, named
from ...runtime.ranks.place import coordinates
from ..debug.converse import gutter
from ..outcome import Frame
from .stacks import Branch, RankStack, Stack, endings, folded_frames, folded_threads, merge, place_of, without_place

_MOST_THREADS = 8


class StackReport:
    """Where ranks of a mesh are, at one moment: print it, or read `stacks` (a rank each) and `tree` (merged)."""

    def __init__(
        self,
        name: str,
        axes: Mapping[str, int],
        stacks: Sequence[RankStack],
        ends: Mapping[int, str] | None = None,
        note: str = "",
    ) -> None:
        self.stacks = tuple(stacks)
        self.tree = merge(stacks)
        self.rest = without_place(stacks, ends or {})
        self.threads = folded_threads(stacks)
        self.note = note
        """What was asked for and could not be done, in one line."""
        self.locals: dict[int, str] = {}
        """The variables of a frame by rank, if they were asked for."""
        self._axes = dict(axes)
        sizes = " × ".join(f"{axis}={size}" for axis, size in axes.items())
        self.title = f"mesh {name}   {sizes}   {states_text(stack.state for stack in stacks)}"

    def data(self) -> list[dict[str, Any]]:
        """One dict a rank, for programs; `frames` are dicts of file, line, name and source, the outermost first."""
        return [
            {
                "rank": stack.rank,
                "coord": coordinates(stack.rank, self._axes),
                "state": stack.state,
                "frames": _frames_data(stack.frames),
                "waiting": stack.waiting,
                "seconds": stack.seconds,
                "how": stack.how,
                "trouble": stack.trouble,
                "thread": stack.thread,
                "locals": self.locals.get(stack.rank, ""),
                "others": [{"name": name, "frames": _frames_data(frames)} for name, frames in stack.others],
            }
            for stack in self.stacks
        ]

    def who(self, ranks: Sequence[int]) -> str:
        """Example: `rank 3 (dp=1,tp=1)`, `ranks 0-3 (dp=0)`."""
        if len(self._axes) < 2:
            return named(ranks)
        return f"{named(ranks)} ({coords_text([coordinates(rank, self._axes) for rank in ranks], self._axes, 30)})"

    def __repr__(self) -> str:
        lines = [self.title]
        for branch in self.tree:
            lines += self._branch(branch, "")
        lines += [f"{'✗ ' if is_bad else ''}{self.who(ranks)}  {words}" for ranks, words, is_bad in self.rest]
        lines += [f"also {self.thread_text(*each)}" for each in self.threads[:_MOST_THREADS]]
        if hidden := len(self.threads) - _MOST_THREADS:
            lines += [f"also {hidden} other threads"] if hidden > 0 else []
        lines += gutter(self.locals).splitlines()
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def thread_text(self, ranks: Sequence[int], name: str, frames: Stack) -> str:
        """A thread beside the main one, in one line: its user's line if it has one, else its innermost."""
        shown = next((frame for frame in reversed(frames) if frame.is_user), frames[-1])
        return f"thread {name} at {place_of(shown)}, on {self.who(ranks)}"

    def _branch(self, branch: Branch, indent: str) -> list[str]:
        inner = f"{indent}  "
        lines = [f"{indent}{self.who(branch.ranks)}"]
        lines += [f"{inner}{text}" for text in frame_texts(branch.frames)]
        for ranks, words in endings(branch.ends):
            is_all = len(ranks) == len(branch.ranks)
            if words or not is_all:
                lines.append(f"{inner}→ {'' if is_all else f'{self.who(ranks)}  '}{words or 'here'}")
        for below in branch.branches:
            lines += self._branch(below, inner)
        return lines


def frame_texts(frames: Stack) -> list[str]:
    """A line for each frame: where it is, and the text of that line."""
    shown = folded_frames(frames)
    places = [f"… {frame} more" if isinstance(frame, int) else place_of(frame) for frame in shown]
    wide = min(max(map(len, places), default=0), 48)
    return [f"{place:<{wide}}   {_source(frame)}".rstrip() for place, frame in zip(places, shown, strict=True)]


def _source(frame: Frame | int) -> str:
    return "" if isinstance(frame, int) else frame.source


def _frames_data(frames: Stack) -> list[dict[str, Any]]:
    return [{"file": each.file, "line": each.line, "name": each.name, "source": each.source} for each in frames]


def states_text(states: Iterable[str]) -> str:
    """How many ranks are in each state, in the order in which these come.

    Example:
        >>> states_text(["idle", "busy", "idle"])
        '2 idle, 1 busy'
    """
    return ", ".join(f"{count} {state}" for state, count in Counter(states).items())
