"""The journal of a mesh: what its ranks have run and were given, and what of it sets up a rank that comes new.

A new rank must know what the others know: imports, functions, classes, settings. It must not train alone, not wait in
a collective that nobody else calls, and not save what it has not learnt over what was. So a cell that does none of this
is replayed whole, of any other only what it imports and defines. Where all ranks of a cell come new, it may build a
model that is spread over them, too. Values that were pushed come between the cells, where they came before. Pure: cells
in, a plan out.
"""

from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Literal, TypeVar

from ...runtime.controller.reshape import Reshape
from ...runtime.ranges import ranks_text
from ...runtime.wire import codec
from ...runtime.wire.outlet import owned
from ..values.size import pickles_to_at_least
from .effects import definitions_of, hot_names, is_setup, names_made, only_looks

Choice = Literal["auto", "all", "none"] | frozenset[int]
"""Which cells are replayed; numbers are those in front of the cells."""

MOST_CELLS = 1_000

LARGEST_PUSH = 64 << 20
"""Bytes of a pushed value that is kept for new ranks; also of all those together that others have replaced since."""

_FIXED = (int, float, complex, str, bytes, type(None), type, ModuleType, FunctionType)
"""What the notebook changes by giving the name to another one."""

T = TypeVar("T")


@dataclass(slots=True)
class Entry:
    """A cell that ran, where, and on which of these ranks it failed or was cut off by their end."""

    name: str
    source: str
    """Empty of a call by `Mesh.execute`: what it did cannot be done again, but it is told that it is missing."""
    first_line: int
    ranks: tuple[int, ...]
    failed: set[int] = field(default_factory=set[int])
    is_running: bool = False
    """Whether it still runs on other ranks: nobody knows then whether it would come to an end on a new one."""
    unknown: set[int] = field(default_factory=set[int])
    """Those of its ranks that came new since, and have not run it to its end."""
    has_failed: bool = False
    """Whether it failed on ranks that a resize has dropped since."""

    @property
    def went_wrong(self) -> bool:
        """Whether it failed somewhere."""
        return bool(self.failed) or self.has_failed

    @property
    def ended_well(self) -> bool:
        """Whether it came to its end wherever it ran: a new rank may run it too."""
        return not (self.went_wrong or self.is_running)

    @property
    def number(self) -> int | None:
        """The number in front of the cell; None for one with a label."""
        word, _, number = self.name.partition(" ")
        return int(number) if word == "cell" and number.isdigit() else None


@dataclass(frozen=True, slots=True)
class Replay:
    """What a new rank is to run, with the ranks that the cell once ran on."""

    name: str
    source: str
    first_line: int
    ranks: tuple[int, ...]
    is_part: bool
    """Is it only what the cell imports and defines?"""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A value of the notebook that ranks were given, to be given to those that come new."""

    name: str
    value: object
    """As it was then: encoded, where the notebook may have changed its own since and it is no plain one."""
    ranks: tuple[int, ...]
    num_bytes: int = 0
    """Of the value, if it is here."""
    is_kept: bool = True
    """Is the value here? One that is too large is not: the journal would keep it alive after the notebook."""

    def without_value(self) -> Pushed:
        """That the name was pushed, and no more."""
        return Pushed(self.name, None, self.ranks, is_kept=False)


class Journal:
    """The cells of a mesh, each text once, in the order in which they last ran, and between them what was pushed.

    Example:
        >>> journal = Journal()
        >>> _ = journal.note("cell 1", "import math\\nlr = 0.1", 1, [0, 1])
        >>> _ = journal.note("cell 2", "def train():\\n    loss().backward()\\ntrain()", 1, [0, 1])
        >>> for replay in journal.plan("auto"):
        ...     print(replay.name, replay.is_part, repr(replay.source))
        cell 1 False 'import math\\nlr = 0.1'
        cell 2 True 'def train():\\n    loss().backward()\\n'
    """

    def __init__(self) -> None:
        self._notes: dict[tuple[str, tuple[int, ...]] | int, Entry | Pushed] = {}
        self._numbers = itertools.count()  # of pushes

    def note_push(self, names: Mapping[str, object], ranks: Sequence[int]) -> None:
        """Ranks were given these values under these names."""
        for name, value in names.items():
            self._add(_push_of(name, value, tuple(ranks)))
        self._replace(_within_bounds(needed(self.notes)))

    def note(self, name: str, source: str, first_line: int, ranks: Sequence[int]) -> Entry:
        """A cell runs; the caller adds to `failed` of what this returns."""
        entry = Entry(name, source, first_line, tuple(ranks))
        self._add(entry)
        if len(self._notes) > MOST_CELLS and len(entries := self.entries) > MOST_CELLS:
            del self._notes[entries[0].source or entries[0].name, entries[0].ranks]
        return entry

    def note_new(self, ranks: Collection[int], replayed: Collection[Replay]) -> None:
        """These ranks came new, and have run no cells to their end but those that were replayed."""
        known = {(replay.source, replay.ranks) for replay in replayed if not replay.is_part}
        for entry in self.entries:
            if (entry.source, entry.ranks) not in known:
                entry.unknown.update(set(ranks).intersection(entry.ranks))

    def note_fatal(self, replay: Replay, ranks: Collection[int]) -> None:
        """These ranks ended as the cell was replayed: as a whole, that is not to be done once more."""
        entry = self._notes.get((replay.source, replay.ranks))
        if isinstance(entry, Entry):
            entry.failed.update(ranks)

    def missed_maker(self, name: str, rank: int) -> Entry | None:
        """The cell that makes what goes by a name, if that ran before this rank came new, and not since."""
        for entry in reversed(self.entries):
            is_done = rank not in entry.failed and not entry.is_running
            if rank in entry.ranks and (is_done or rank in entry.unknown) and name in names_made(entry.source):
                return entry if rank in entry.unknown else None
        return None

    def reshape(self, plan: Reshape) -> None:
        """The mesh was resized: what ran on some ranks is for those of that slice in the new grid."""
        moved = [_moved(note, plan) for note in self.notes]
        self._replace([note for note in moved if note.ranks])

    def _add(self, note: Entry | Pushed) -> None:
        key = next(self._numbers) if isinstance(note, Pushed) else (note.source or note.name, note.ranks)
        self._notes.pop(key, None)  # what ran before is now the last
        self._notes[key] = note

    def _replace(self, notes: Iterable[Entry | Pushed]) -> None:
        self._notes.clear()
        for note in notes:
            self._add(note)

    @property
    def notes(self) -> list[Entry | Pushed]:
        """The cells in the order in which they last ran, and what was pushed before, between and after them."""
        return list(self._notes.values())

    @property
    def entries(self) -> list[Entry]:
        """The cells alone."""
        return [note for note in self.notes if isinstance(note, Entry)]

    def plan(self, choice: Choice = "auto", new: Collection[int] = ()) -> list[Replay | Pushed]:
        """What new ranks are to run and to be given, in order; a step says by its `ranks` whether one is among them."""
        if choice == "none":
            return []
        hot = hot_names([entry.source for entry in self.entries])
        missing: set[str] = set()  # what goes by these names was made by what is not planned
        steps: list[Replay | Pushed] = []
        for note in self.notes:
            if isinstance(note, Pushed):
                step, there, made = note, {note.name}, set[str]()
            else:
                is_hot = hot.where_all_come if set(note.ranks) <= set(new) else hot.alone
                step = _of_entry(note, choice, is_hot, missing)
                there, made = names_made(step.source) if step else set[str](), names_made(note.source)
            missing = (missing | made) - there
            steps += [step] if step else []
        return needed(steps)

    def check(self, choice: Choice) -> None:
        """Raises `ValueError` where cells are chosen by numbers, and none of these has run on the mesh."""
        known = [entry.number for entry in self.entries if entry.number is not None]
        if isinstance(choice, frozenset) and choice.isdisjoint(known):
            raise ValueError(
                f"no cell {ranks_text(choice)} has run on the mesh: there is {ranks_text(known) or 'none'}"
            )

    def left_out(self, plan: Iterable[Replay | Pushed], new: Collection[int]) -> tuple[str, ...]:
        """The cells that ran to their end on ranks that come new, and of which the plan has nothing."""
        planned = {step.name for step in plan if isinstance(step, Replay)}
        ended = [entry for entry in self.entries if entry.ended_well and not only_looks(entry.source)]
        return tuple(entry.name for entry in ended if entry.name not in planned and set(new).intersection(entry.ranks))


def _push_of(name: str, value: object, ranks: tuple[int, ...]) -> Pushed:
    """A push with what a rank is to be given, whatever the notebook does with its own value from now on."""
    push = Pushed(name, value, ranks, pickles_to_at_least(value, LARGEST_PUSH))
    if push.num_bytes > LARGEST_PUSH:
        return push.without_value()
    if isinstance(value, _FIXED):
        return push
    if is_plain(value):
        return replace(push, value=copy.deepcopy(value))
    try:
        encoded = codec.encode(value)
    except codec.EncodeError:  # it could be, a moment ago
        return push.without_value()
    if encoded.nbytes > LARGEST_PUSH:
        return push.without_value()
    return replace(push, value=owned(encoded), num_bytes=encoded.nbytes)


def is_plain(value: object) -> bool:
    """Is it made of numbers and text alone?

    Example:
        >>> is_plain({"lr": [0.1, "x"]}), is_plain([object()])
        (True, False)
    """
    if type(value) in (int, float, str, bytes, bool, type(None), complex):
        return True
    if isinstance(value, dict) and type(value) is dict:  # pyright: ignore[reportUnknownArgumentType]
        return all(is_plain(each) for pair in value.items() for each in pair)  # pyright: ignore
    return type(value) in (list, tuple, set) and all(is_plain(each) for each in value)  # type: ignore[attr-defined]


def needed(notes: Sequence[T]) -> list[T]:
    """Cells, and pushes without those that another one replaces before a cell comes that could read them.

    What a cell reads is not looked for: functions that it calls read too.
    """
    unread = set(_replaced(notes, before_cells=True))
    return [note for at, note in enumerate(notes) if at not in unread]


def _within_bounds(notes: Sequence[Entry | Pushed]) -> list[Entry | Pushed]:
    """The notes; of values that were replaced, the newest are kept that take no more than `LARGEST_PUSH` together."""
    found, room = list(notes), LARGEST_PUSH
    for at in _replaced(notes):
        push = notes[at]
        assert isinstance(push, Pushed)
        if push.num_bytes <= room:
            room -= push.num_bytes
        else:
            found[at] = push.without_value()
    return found


def _replaced(notes: Sequence[object], *, before_cells: bool = False) -> Iterator[int]:
    """Where pushes stand that a later one replaces, the newest first; `before_cells`: with no cell between the two."""
    later: defaultdict[str, list[set[int]]] = defaultdict(list)
    for at in reversed(range(len(notes))):
        note = notes[at]
        if isinstance(note, Pushed):
            if any(ranks.issuperset(note.ranks) for ranks in later[note.name]):
                yield at
            later[note.name].append(set(note.ranks))
        elif before_cells:
            later.clear()


def _moved(note: Entry | Pushed, plan: Reshape) -> Entry | Pushed:
    ranks = plan.extended(note.ranks)
    if isinstance(note, Pushed):
        return replace(note, ranks=ranks)
    failed, unknown = {*plan.renumbered(note.failed)}, {*plan.renumbered(note.unknown)}
    has_failed = note.has_failed or bool(note.failed)
    return replace(note, ranks=ranks, failed=failed, unknown=unknown, has_failed=has_failed)


def _whole(entry: Entry) -> Replay:
    return Replay(entry.name, entry.source, entry.first_line, entry.ranks, is_part=False)


def _of_entry(entry: Entry, choice: Choice, hot: Collection[str], missing: Collection[str]) -> Replay | None:
    if not entry.source:
        return None
    if isinstance(choice, frozenset):
        return _whole(entry) if entry.number in choice else None
    if choice == "all":
        return _whole(entry)
    if only_looks(entry.source):
        return None
    if entry.ended_well and is_setup(entry.source, hot):
        return _whole(entry)
    definitions = definitions_of(entry.source, missing)
    return Replay(entry.name, definitions, entry.first_line, entry.ranks, is_part=True) if definitions else None
