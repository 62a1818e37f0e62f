"""The ledger of a mesh: where its ranks part, and the last collectives of each, folded where they are equal."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import msgspec

from ...runtime.controller.regroup import ask
from ...runtime.controller.roster import Roster
from ...runtime.groups.ledger import BUFFER_SIZE, Entry, RankLedger
from ...runtime.ranges import named, ranks_text
from ..values.rows import seconds_text
from .latecomers import Late, latecomers
from .ledger import Finding, History, compare, group_text, histories, parted_by_cells, place_text, tensors_text, unlike

LAST = 8
"""Collectives of each group that are listed unless more are asked for."""

_FORMER = "(of the process groups before the present ones, in which nothing was issued yet)"

_COLUMNS = ("group", "#", "ranks", "collective", "at", "state")


_decoded = msgspec.msgpack.Decoder(RankLedger).decode


def ledger_of(
    roster: Roster, ranks: Sequence[int], timeout: float, last: int = LAST, depth: int = BUFFER_SIZE
) -> MeshLedger:
    """Ask the ranks of a mesh, also one that runs no cells, for what they have issued (see `Questions.ledger`)."""
    alive = roster.alive()
    asked = ask(roster, alive, "ledger", depth)
    asked.wait(timeout)
    idle = [rank for rank in alive if roster.states[rank].name == "idle"]
    ledgers = {rank: _decoded(data) for rank, data in dict(asked.answers).items()}
    hosts = {rank: roster.host_of(rank) for rank in ledgers}
    return MeshLedger(ledgers, ranks, last, idle, roster.dead(), hosts)


@dataclass(frozen=True, slots=True)
class Line:
    """One collective of a group, as some of its ranks issued it."""

    group: str
    number: int
    ranks: tuple[int, ...]
    call: str
    tensors: str
    at: str
    is_open: bool
    seconds: float
    """Since the first of them issued it."""

    @property
    def state(self) -> str:
        return f"open for {seconds_text(self.seconds, self.seconds)}" if self.is_open else "done"

    @property
    def cells(self) -> tuple[str, ...]:
        what = f"{self.call} {self.tensors}".rstrip()
        return self.group, f"#{self.number}", ranks_text(self.ranks), what, self.at, self.state


class MeshLedger:
    """The collectives that ranks of a mesh have issued, as they were when it was asked for.

    `findings` say where ranks part, `late` who keeps the others waiting; `lines()` are the last collectives of each
    group, `data()` is all of it as plain values. Ranks in `ranks` that have not answered in time are named.

    Example:
        >>> from meshbook.runtime.groups.ledger import Group
        >>> group = Group("0", "gloo", "default_pg", (0, 1))
        >>> file = "<ipython-input-2-00000001>"
        >>> entry = Entry(0, 1, "all_reduce", "all_reduce", ((4,),), ("Float",), False, 9.0, file, 3)
        >>> MeshLedger(dict.fromkeys((0, 1), RankLedger((group,), (entry,))), (0, 1))
        no rank has parted from the others
        group          #   ranks  collective               at              state
        default group  #1  0-1    all_reduce (4,) float32  cell 2, line 3  done
    """

    def __init__(
        self,
        ledgers: Mapping[int, RankLedger],
        ranks: Sequence[int],
        last: int = LAST,
        idle: Collection[int] = (),
        dead: Collection[int] = (),
        hosts: Mapping[int, str] | None = None,
        is_former: bool = False,
    ) -> None:
        """`hosts` are those of the ranks, by default one; `is_former`: the process groups have been made anew since."""
        self.ranks = tuple(ranks)
        self.last = last
        self.idle = tuple(idle)
        self.dead = tuple(dead)
        self.is_former = is_former
        self.silent = tuple(rank for rank in ranks if rank not in ledgers)
        self._ledgers = dict(ledgers)
        self._hosts = dict(hosts or {})
        chosen = set(ranks)
        self.findings = tuple(
            found for found in compare(ledgers, idle=idle, dead=dead) if chosen & {*found.odd, *found.waiting}
        )

    @cached_property
    def late(self) -> tuple[Late, ...]:
        """Who keeps the others waiting; told where somebody looks, not at each look whether ranks hang."""
        return tuple(self.late_within(math.inf))

    def late_within(self, seconds: float) -> list[Late]:
        """The same of what was issued in the last seconds."""
        found = latecomers({rank: _last(own, seconds) for rank, own in self._ledgers.items()}, self._hosts)
        return [late for late in found if {*self.ranks} & {*late.ranks}]

    def unlike(self) -> list[str]:
        """Where the ranks have called different things last, though it has ended since: their connections have."""
        return [finding.text for finding in unlike(self._ledgers, self.ranks)]

    def has_parted(self, resting: Collection[int]) -> bool:
        """Have ranks left collectives open to which others have not come, or with others? They will never end.

        What ranks wait in that are busy is their own affair; but not what cells have left behind on ranks that are only
        busy with actors (`resting`).
        """
        is_left = any(rank in self.idle for found in self.findings for rank in found.waiting)
        return is_left or parted_by_cells(self._ledgers, resting)

    def as_former(self, ranks: Sequence[int], last: int) -> MeshLedger:
        """The same for some ranks, when the process groups have been made anew."""
        return MeshLedger(self._ledgers, ranks, last, self.idle, self.dead, self._hosts, is_former=True)

    def lines(self) -> list[Line]:
        """The last collectives of each group, the oldest first; equal ones of several ranks are one line."""
        return [line for history in histories(self._ledgers) for line in self._lines(history)]

    def _lines(self, history: History) -> Iterable[Line]:
        for number in history.numbers[-self.last :]:
            here = {rank: entry for rank, entry in history.at(number).items() if rank in self.ranks}
            for ranks in _folded(here):
                yield _line(group_text(history.group).removeprefix("the "), ranks, here)

    def data(self) -> dict[str, Any]:
        """`findings` and `late` as texts, `collectives` as dicts (see `lines`); `silent`, `unrecorded`, `is_former`."""
        fields = ("group", "number", "ranks", "call", "tensors", "at", "is_open", "seconds")
        return {
            "findings": [finding.text for finding in self.findings],
            "late": [late.text for late in self.late],
            "collectives": [{name: getattr(line, name) for name in fields} for line in self.lines()],
            "silent": list(self.silent),
            "unrecorded": self._unrecorded(),
            "is_former": self.is_former,
        }

    def _unrecorded(self) -> dict[int, dict[str, int]]:
        """For ranks whose torch keeps no record: how many operations they have issued in each group."""
        return {
            rank: {group_text(group): group.num_issued for group in self._ledgers[rank].groups}
            for rank in self.ranks
            if rank in self._ledgers and not self._ledgers[rank].is_recorded
        }

    def _remarks(self) -> list[str]:
        """What else there is to say: who has not answered, and who cannot tell more than a number."""
        remarks = [_FORMER] if self.is_former else []
        remarks += [f"no answer from {named(self.silent)}"] if self.silent else []
        for rank, counts in self._unrecorded().items():
            said = ", ".join(f"{count} in {group}" for group, count in counts.items()) or "none"
            remarks.append(f"rank {rank}: its torch keeps no record; operations issued, sends included: {said}")
        return remarks

    def _head(self) -> list[tuple[str, str]]:
        """What there is to see first: marks and lines."""
        head = [("≠", finding.text) for finding in self.findings]
        if not self.lines():
            head.append(("", "no collective was issued yet"))
        elif not head:
            head.append(("", "no rank has parted from the others"))
        return [*head, *(("◷", late.text) for late in self.late)]

    def __repr__(self) -> str:
        lines = self.lines()
        rows = [_COLUMNS, *(line.cells for line in lines)] if lines else []
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        head = [f"{mark} {text}".lstrip() for mark, text in self._head()]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*head, *table, *self._remarks()])

    def _repr_html_(self) -> str:
        head = "".join(map(_html_head, self._head()))
        columns = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
        body = "".join(map(_html_row, self.lines()))
        foot = "".join(f"<p>{escape(remark)}</p>" for remark in self._remarks())
        table = f"<table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>" if body else ""
        label = "collectives of the mesh"
        return f'<div class="meshbook" role="region" aria-label="{label}">{head}{table}{foot}</div>'


def _last(ledger: RankLedger, seconds: float) -> RankLedger:
    return msgspec.structs.replace(ledger, entries=tuple(each for each in ledger.entries if each.seconds <= seconds))


def _folded(here: Mapping[int, Entry]) -> Iterable[tuple[int, ...]]:
    """Ranks whose entries look the same."""
    found: dict[object, list[int]] = {}
    for rank, entry in here.items():
        found.setdefault((entry.call, tensors_text(entry), place_text(entry), entry.is_open), []).append(rank)
    return map(tuple, found.values())


def _line(group: str, ranks: tuple[int, ...], here: Mapping[int, Entry]) -> Line:
    entry = here[ranks[0]]
    seconds = max(here[rank].seconds for rank in ranks)
    return Line(group, entry.number, ranks, entry.call, tensors_text(entry), place_text(entry), entry.is_open, seconds)


def _html_head(head: tuple[str, str]) -> str:
    mark, text = head
    return f"<p>{mark} <strong>{escape(text)}</strong></p>" if mark else f"<p>{escape(text)}</p>"


def _html_row(line: Line) -> str:
    kind = ' class="mb-bad"' if line.is_open else ""
    return f"<tr{kind}>{''.join(f'<td>{escape(cell)}</td>' for cell in line.cells)}</tr>"


def reasons(findings: Iterable[Finding], ranks: Iterable[int], within: float) -> list[str]:
    """What keeps these ranks waiting: the texts of findings, not of those that are older than `within` seconds."""
    chosen = set(ranks)
    return [found.text for found in findings if chosen & set(found.waiting) and found.seconds <= within]


def in_vain(ledger: MeshLedger, ranks: Iterable[int]) -> bool:
    """Do all these ranks wait for some that are idle or dead, or that wait for such? Or in a ring?

    Example:
        >>> from meshbook.runtime.groups.ledger import Group
        >>> group = Group("0", "gloo", "default_pg", (0, 1))
        >>> waits = Entry(0, 1, "barrier", "barrier", (), (), True, 9.0, "a.py", 3)
        >>> ledgers = {0: RankLedger((group,), (waits,)), 1: RankLedger((group,))}
        >>> in_vain(MeshLedger(ledgers, (0, 1), idle=[1]), [0]), in_vain(MeshLedger(ledgers, (0, 1)), [0])
        (True, False)
    """
    gone = {*ledger.idle, *ledger.dead}.union(*(each.ring for each in ledger.findings))
    while new := {rank for each in ledger.findings if gone & {*each.odd} for rank in each.waiting} - gone:
        gone |= new
    return gone.issuperset(ranks)
