"""Where ranks are, merged: equal stacks are folded into a prefix tree. Pure: `look` asks the ranks.

The idea is STAT's, the stack trace analysis tool of Lawrence Livermore National Laboratory:
https://hpc.llnl.gov/software/development-environment-software/stat-stack-trace-analysis-tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...runtime.cells import cell_of
from ...runtime.ranks.stacks import Spot
from ...runtime.ranks.users import is_users
from ..failures.story import place_text
from ..outcome import Frame
from ..sources.source import name_of
from ..values.rows import seconds_text

Stack = tuple[Frame, ...]
"""The outermost frame first."""


@dataclass(frozen=True, slots=True)
class RankStack:
    """Where one rank is."""

    rank: int
    state: str
    """`idle`, `busy`, `failed`, `starting` or `dead`."""
    frames: Stack = ()
    waiting: str = ""
    """The collective it waits in."""
    seconds: float = 0.0
    """How long it has waited for that."""
    how: str = ""
    """By what its stack was taken when its own control thread did not answer: `signal` or `py-spy`."""
    trouble: str = ""
    """Why there is no stack of a rank that has one."""
    thread: str = ""
    """The thread whose stack it is, if not the main one."""
    others: tuple[tuple[str, Stack], ...] = ()
    """Its other threads that do something, by name."""

    @property
    def place(self) -> str:
        """The innermost line of the user's, as `cell 5 line 2`; empty where none is known."""
        return next((f"{each.file} line {each.line}" for each in reversed(self.frames) if each.is_user), "")

    @property
    def note(self) -> str:
        """What its place does not say of a rank that has one; equal for ranks that are told as one, but for times."""
        came = {"signal": "seen by signal, for it did not answer in time", "py-spy": "seen by py-spy"}.get(self.how, "")
        thread = f"in thread {self.thread}" if self.thread else ""
        starting = "starting" if self.state == "starting" else ""
        return ", ".join(filter(None, [starting, thread, self.trouble, came]))


@dataclass(frozen=True, slots=True)
class Branch:
    """Ranks that go the same way from here on: frames that all have, then what they do, or the branches they take."""

    ranks: tuple[int, ...]
    frames: Stack
    ends: tuple[RankStack, ...]
    """Those that are in the last of `frames`."""
    branches: tuple[Branch, ...]
    """Those that go on from there, the fewest ranks first."""


def frames_of(spots: Sequence[Spot], source_of: Callable[[str, int], str]) -> Stack:
    """A stack as a reader wants it: from the cell on if there is one, cells by their names.

    `source_of` gives the text of a line that the rank could not tell.
    """
    names = [name_of(spot.file) or cell_of(spot.file) for spot in spots]
    first = next((index for index, name in enumerate(names) if name), 0)
    return tuple(
        Frame(
            name or spot.file,
            spot.line,
            spot.name,
            spot.source or source_of(spot.file, spot.line).strip(),
            is_users(spot.file),
        )
        for name, spot in list(zip(names, spots, strict=True))[first:]
    )


def merge(stacks: Iterable[RankStack]) -> tuple[Branch, ...]:
    """The prefix tree of stacks: every rank with frames is in one branch, and at the end of one."""
    return _branches([stack for stack in stacks if stack.frames], 0)


def _branches(stacks: Sequence[RankStack], depth: int) -> tuple[Branch, ...]:
    groups: dict[tuple[str, int, str], list[RankStack]] = {}
    for stack in stacks:
        groups.setdefault(_key(stack.frames[depth]), []).append(stack)
    branches = (_branch(group, depth) for group in groups.values())
    return tuple(sorted(branches, key=lambda branch: (len(branch.ranks), branch.ranks)))


def _branch(stacks: Sequence[RankStack], depth: int) -> Branch:
    shared = depth + 1
    while all(len(stack.frames) > shared for stack in stacks) and len({_key(s.frames[shared]) for s in stacks}) == 1:
        shared += 1
    return Branch(
        ranks=tuple(sorted(stack.rank for stack in stacks)),
        frames=tuple(_fullest([stack.frames[place] for stack in stacks]) for place in range(depth, shared)),
        ends=tuple(stack for stack in stacks if len(stack.frames) == shared),
        branches=_branches([stack for stack in stacks if len(stack.frames) > shared], shared),
    )


def _key(frame: Frame) -> tuple[str, int, str]:
    """What makes two frames the same place: who looks from outside knows neither classes nor sources."""
    return frame.file, frame.line, frame.name.rpartition(".")[2]


def _fullest(frames: Sequence[Frame]) -> Frame:
    return max(frames, key=lambda frame: (bool(frame.source), len(frame.name)))


def endings(ends: Iterable[RankStack]) -> list[tuple[tuple[int, ...], str]]:
    """What ranks in the same place do there: `waiting in all_reduce for 3.1-3.4 s`; empty for those that just run."""
    groups: dict[tuple[str, str], list[RankStack]] = {}
    for stack in ends:
        groups.setdefault((stack.waiting, stack.note), []).append(stack)
    return [
        (tuple(stack.rank for stack in group), ", ".join(filter(None, [_waiting(group), note])))
        for (_, note), group in groups.items()
    ]


def _waiting(group: Sequence[RankStack]) -> str:
    if not group[0].waiting:
        return ""
    times = [stack.seconds for stack in group]
    return f"waiting in {group[0].waiting} for {seconds_text(min(times), max(times))}"


def without_place(stacks: Iterable[RankStack], ends: Mapping[int, str]) -> list[tuple[tuple[int, ...], str, bool]]:
    """Ranks that have no stack: why, in words, and whether that is bad news; `ends` says how dead ones ended."""
    groups: dict[tuple[str, bool], list[int]] = {}
    for stack in stacks:
        if not stack.frames:
            words = f"dead: {ends.get(stack.rank, '')}" if stack.state == "dead" else stack.trouble or _at_rest(stack)
            is_bad = stack.state == "dead" or bool(stack.trouble)
            groups.setdefault((words, is_bad), []).append(stack.rank)
    told = [(tuple(ranks), words, is_bad) for (words, is_bad), ranks in groups.items()]
    return sorted(told, key=lambda each: (not each[2], len(each[0]), each[0]))


def _at_rest(stack: RankStack) -> str:
    return "idle" if stack.state == "failed" else "busy, between two calls" if stack.state == "busy" else stack.state


def folded_threads(stacks: Iterable[RankStack]) -> list[tuple[tuple[int, ...], str, Stack]]:
    """Threads beside the main ones: those of the same name in the same place are one."""
    groups: dict[tuple[str, tuple[tuple[str, int, str], ...]], tuple[list[int], Stack]] = {}
    for stack in stacks:
        for name, frames in stack.others:
            ranks, _ = groups.setdefault((name, tuple(map(_key, frames))), ([], frames))
            ranks.append(stack.rank)
    return [(tuple(dict.fromkeys(ranks)), name, frames) for (name, _), (ranks, frames) in groups.items()]


def place_of(frame: Frame) -> str:
    """Where a frame is: `cell 2, line 9, in check`; of C code without a line."""
    text = place_text(frame)
    return text if frame.line else text.replace(", line 0", "", 1)


def folded_frames(frames: Stack) -> list[Frame | int]:
    """Frames to show: of libraries' frames in a row only the first and the last; a number is so many left out.

    Example:
        >>> lib = [Frame("lib.py", line, "f", "", False) for line in range(5)]
        >>> [item if isinstance(item, int) else item.line for item in folded_frames((*lib,))]
        [0, 3, 4]
    """
    shown: list[Frame | int] = []
    run: list[Frame] = []
    for frame in (*frames, None):
        if frame is not None and not frame.is_user:
            run.append(frame)
            continue
        hidden = len(run) - 2
        shown += [run[0], hidden, run[-1]] if hidden > 1 else run
        run = []
        if frame is not None:
            shown.append(frame)
    return shown
