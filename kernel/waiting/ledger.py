"""Where ranks part: the collectives that each has issued, compared group by group. Pure.

torch ships a comparison too (`torch.distributed.flight_recorder`). It is a script: it takes a folder of dumps from the
beginning of the program, stops at what it does not expect, and logs ranks and operations without a line of the user's.
Here a notebook that may have no torch asks for one sentence. So this is our own, after the same idea: in a group, the
collectives with the same number belong together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ...runtime.cells import cell_of
from ...runtime.controller.regroup import out_of_step
from ...runtime.groups.ledger import Entry, Exchange, Group, RankLedger
from ...runtime.ranges import named
from ..sources.source import name_of

PATIENCE = 0.1
"""Seconds that a collective may be open before ranks that have not issued it count as missing."""

_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
"""What the recorder calls the types of tensors, and what their users do."""

_ONE_SIZE = {"all_reduce", "broadcast", "reduce", "all_reduce_coalesced"}
"""Operations for which all ranks must bring tensors of one size."""
_ANY_SIZE = {"scatter", "all_to_all", "alltoall", "all_to_all_single", "alltoall_base", "gather", "coalesced"}
"""Operations to which a rank may bring what the others do not."""
ROOTED = {"broadcast": "src", "scatter": "src", "gather": "dst", "reduce": "dst"}
"""Operations around one rank, and what they call it. No record has it; where each has another, they never end."""

_NUMBERS_A_SECOND = 10_000_000
"""What a slow network carries: a collective that all have issued is under way for so long."""

OVERDUE = 5.0
"""Seconds more than that, after which any collective that all have issued is told while they work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where the ranks of a group part.

    `odd` are the ranks that did something else than most, or nothing; `waiting` those whose collective is open, the
    last of them for `seconds`; `ring` those that wait for one another.
    """

    text: str
    odd: tuple[int, ...]
    waiting: tuple[int, ...]
    seconds: float = 0.0
    ring: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """What the ranks of one group have issued in it."""

    group: Group
    by_rank: dict[int, dict[int, Entry]] = field(default_factory=dict[int, dict[int, Entry]])
    """For each member that has told: its entries by number."""
    silent: tuple[int, ...] = ()
    """Members that have told nothing."""
    without: tuple[int, ...] = ()
    """Members that have not made this group, but others, or have destroyed it."""
    is_whole: bool = True

    @property
    def numbers(self) -> list[int]:
        return sorted({number for entries in self.by_rank.values() for number in entries})

    def at(self, number: int) -> dict[int, Entry]:
        """Who issued the collective of this number."""
        return {rank: entries[number] for rank, entries in self.by_rank.items() if number in entries}

    def last(self, rank: int) -> int:
        """The number of this rank's last collective; 0 if none is known."""
        return max(self.by_rank[rank], default=0)


def histories(ledgers: Mapping[int, RankLedger]) -> list[History]:
    """The ledgers of ranks, sorted by the groups that they have used; the default group first."""
    ledgers = {rank: ledger for rank, ledger in _of_newest(ledgers).items() if ledger.is_recorded}
    found: dict[tuple[str, str, tuple[int, ...] | None], History] = {}
    for rank, ledger in sorted(ledgers.items()):
        for place, group in enumerate(ledger.groups):
            history = found.setdefault((group.name, group.backend, group.ranks), _new_history(group, ledgers))
            history.by_rank[rank] = {entry.number: entry for entry in ledger.entries if entry.group == place}
    used = [history for history in found.values() if history.numbers]
    return sorted(used, key=lambda history: (history.group.about != "default_pg", history.group.ranks or ()))


def _of_newest(ledgers: Mapping[int, RankLedger]) -> dict[int, RankLedger]:
    """A rank whose groups are those of before has issued nothing in the newest, which have the same names."""
    newest = max((ledger.generation for ledger in ledgers.values() if ledger.groups), default=0)
    return {
        rank: ledger if ledger.generation >= newest or not ledger.groups else RankLedger()
        for rank, ledger in ledgers.items()
    }


def _new_history(group: Group, ledgers: Mapping[int, RankLedger]) -> History:
    members = group.ranks or ()
    return History(
        group,
        {rank: {} for rank in members if rank in ledgers},
        tuple(rank for rank in members if rank not in ledgers),
        tuple(rank for rank in members if rank in ledgers and not _has(ledgers[rank], group)),
        all(ledgers[rank].is_whole for rank in members if rank in ledgers),
    )


def _has(ledger: RankLedger, group: Group) -> bool:
    """Has a rank this group, as far as it tells of its groups?"""
    return not ledger.groups or any((each.name, each.ranks) == (group.name, group.ranks) for each in ledger.groups)


def compare(
    ledgers: Mapping[int, RankLedger],
    patience: float = PATIENCE,
    idle: Collection[int] = (),
    dead: Collection[int] = (),
) -> list[Finding]:
    """Where ranks part, for each group at most once while they are stuck, and once before.

    Ranks that are not in `ledgers` have told nothing; they are named where others wait and nobody else is missing.
    Those in `idle` run nothing now: what is open on them was left behind by a cell that was interrupted. Those in
    `dead` have ended.

    Example:
        >>> group = Group("0", "gloo", "default_pg", (0, 1, 2))
        >>> def ledger(number, op, line):
        ...     last = number == 2
        ...     return RankLedger((group,), (Entry(0, number, op, op, ((4,),), ("Float",), last, 9.0, "a.py", line),))
        >>> for found in compare({0: ledger(2, "reduce", 7), 1: ledger(1, "reduce", 3), 2: ledger(2, "reduce", 7)}):
        ...     print(found.text)
        ranks 0,2 wait in reduce #2 (4,) at a.py, line 7; rank 1 has issued only 1
        >>> for found in compare({0: ledger(2, "reduce", 7), 1: ledger(2, "barrier", 3), 2: ledger(2, "reduce", 7)}):
        ...     print(found.text)
        rank 1 called barrier at a.py, line 3; ranks 0,2 called reduce at a.py, line 7 (#2 of the default group)
    """
    found = [finding for history in histories(ledgers) for finding in _findings(history, patience, idle, dead)]
    return [*found, *_exchanges(ledgers, patience, idle, dead)]


def unlike(ledgers: Mapping[int, RankLedger], ranks: Collection[int]) -> list[Finding]:
    """Where these ranks have called different things in what each of them issued last.

    It may be open no more: they lost their connection in it. gloo aborts a rank that gets more than it has room for,
    which is mostly not the one that has called something else.
    """
    last = {rank: ledgers[rank].entries[-1] for rank in ranks if rank in ledgers and ledgers[rank].entries}
    found: list[Finding] = []
    for history in histories({rank: ledgers[rank] for rank in last}):
        issued = history.at(history.numbers[-1])
        here = {rank: msgspec.structs.replace(own, is_open=True) for rank, own in issued.items() if own == last[rank]}
        if len(variants := _variants(here)) > 1:
            found.append(_different(history.group, history.numbers[-1], variants))
    return found


def _exchanges(
    ledgers: Mapping[int, RankLedger], patience: float, idle: Collection[int], dead: Collection[int]
) -> Iterable[Finding]:
    """Ranks that wait in what is not recorded; those at the same line are told together."""
    alike: dict[tuple[str, str], dict[int, Exchange]] = {}
    in_barrier = {rank for rank, own in ledgers.items() for each in own.exchanges if each.call not in _WITH_ONE}
    for rank, ledger in sorted(ledgers.items()):
        for each in ledger.exchanges:
            if each.call not in _WITH_ONE:
                each = msgspec.structs.replace(each, peers=tuple(sorted({*each.peers} - in_barrier)))
            if each.seconds >= patience:
                alike.setdefault((each.call, line_text(each.file, each.line)), {})[rank] = each
    every = {rank: each for waiting in alike.values() for rank, each in waiting.items()}
    return [_one_sided(call, place, waiting, idle, dead, every) for (call, place), waiting in alike.items()]


def _ring(waiting: Mapping[int, Exchange]) -> tuple[int, ...]:
    """Ranks that wait for one another, in a ring: as all of them send first. One that sends to one that takes do not.

    >>> def wait(call, peer):
    ...     return Exchange(call, (peer,), 2.0, "a.py", 7)
    >>> _ring({0: wait("send", 1), 1: wait("send", 0)}), _ring({0: wait("send", 1), 1: wait("recv", 0)})
    ((0, 1), ())
    >>> _ring({0: wait("recv", 1), 1: wait("recv", 2), 2: wait("send", 0), 3: wait("recv", 0)})
    (0, 1, 2)
    """
    for first in waiting:
        ring, rank = [first], _peer(waiting[first])
        while rank is not None and rank in waiting and rank not in ring:
            ring.append(rank)
            rank = _peer(waiting[rank])
        if rank == first and len(ring) > 1 and not _is_met(first, waiting):
            return tuple(sorted(ring))
    return ()


def _is_met(rank: int, waiting: Mapping[int, Exchange]) -> bool:
    """Does one send what the other takes, and both wait?"""
    peer = _peer(waiting[rank])
    other = waiting.get(peer) if peer is not None else None
    return other is not None and _peer(other) == rank and other.call != waiting[rank].call


def _peer(exchange: Exchange) -> int | None:
    """The only one it is with."""
    return exchange.peers[0] if len(exchange.peers) == 1 else None


_WITH_ONE = {"send": "to", "recv": "from"}
"""What is with one other rank, and the word between the two; all else that is not recorded is with a whole group."""


def _one_sided(
    call: str,
    place: str,
    waiting: Mapping[int, Exchange],
    idle: Collection[int],
    dead: Collection[int],
    every: Mapping[int, Exchange],
) -> Finding:
    """Example: `ranks 1-3 wait in recv from ranks 0-2 at cell 5, line 2; rank 0 is idle`."""
    peers = sorted({peer for each in waiting.values() for peer in each.peers})
    of = f" {_WITH_ONE.get(call, 'for')} {named(peers)}" if peers else ""
    parts = [f"{named(waiting)} {_s('wait', waiting)} in {call}{of} at {place}"]
    for state, ranks in (("idle", idle), ("dead", dead)):
        if those := [rank for rank in peers if rank in ranks]:
            parts.append(f"{named(those)} {'is' if len(those) == 1 else 'are'} {state}")
    ring = _ring(every)
    ring = ring if not waiting.keys().isdisjoint(ring) else ()
    if ring:
        parts.append(f"{named(ring)} wait for one another")
    elif any(_is_met(rank, every) for rank in waiting):
        parts.append("who is at the other end waits too, perhaps each with another 'tag' or group")
    odd = tuple(rank for rank in peers if rank not in waiting)
    return Finding("; ".join(parts), odd, tuple(waiting), min(each.seconds for each in waiting.values()), ring)


def parted_by_cells(ledgers: Mapping[int, RankLedger], resting: Collection[int]) -> bool:
    """Have cells that are over left ranks out of step, or a collective open? `resting` are those without a cell.

    It cannot be told, and is not, where actors on them have used a group since: they may be in the midst of it.
    """
    here = {rank: ledger for rank, ledger in _of_newest(ledgers).items() if rank in resting}
    if not all(ledger.is_recorded for ledger in here.values()):
        return False
    for history in histories(here):
        lasts = [entries[max(entries)] for entries in history.by_rank.values() if entries]
        if not all(entry.on_main for entry in lasts):
            return False
        if not history.silent and any(entry.is_open and entry.seconds >= PATIENCE for entry in lasts):
            return True
    return out_of_step({rank: {each.name: each.num_issued for each in own.groups} for rank, own in here.items()})


def _findings(history: History, patience: float, idle: Collection[int], dead: Collection[int]) -> list[Finding]:
    """Numbers after the first open place are not looked at: there the ranks wait for one another."""
    past: list[Finding] = []
    for number in history.numbers:
        here = history.at(number)
        waiting = tuple(rank for rank, entry in here.items() if entry.is_open and entry.seconds >= patience)
        if len(variants := _variants(here)) > 1:
            finding = _different(history.group, number, variants)
            if finding.waiting:
                return [*past, finding]
            past = past or [finding]
        absent = [rank for rank in history.by_rank if history.last(rank) < number]
        if waiting and (absent or history.silent):
            return [*past, _missing(history, number, {rank: here[rank] for rank in waiting}, absent, idle, dead)]
        if waiting and (finding := _endless(history, number, here, waiting, patience, idle)):
            return [*past, finding]
    return past


def _variants(here: Mapping[int, Entry]) -> list[dict[int, Entry]]:
    """The ranks sorted by what they called, the few first."""
    is_open = any(entry.is_open for entry in here.values())
    found: dict[object, dict[int, Entry]] = {}
    for rank, entry in here.items():
        found.setdefault(_signature(entry, is_open), {})[rank] = entry
    return sorted(found.values(), key=lambda variant: (len(variant), [-rank for rank in variant]))


def _signature(entry: Entry, is_open: bool) -> tuple[object, ...]:
    """What must be equal on all ranks. A size that may differ is only suspected where ranks are stuck."""
    if entry.op in _ONE_SIZE or (is_open and entry.op not in _ANY_SIZE):
        return entry.op, tuple(map(_product, entry.sizes)), entry.dtypes
    return (entry.op,)


def _product(size: Sequence[int]) -> int:
    product = 1
    for number in size:
        product *= number
    return product


def _different(group: Group, number: int, variants: Sequence[Mapping[int, Entry]]) -> Finding:
    texts = _names([next(iter(variant.values())) for variant in variants])
    parts = [f"{named(ranks)} called {text} {_places(ranks)}" for ranks, text in zip(variants, texts, strict=True)]
    return Finding(
        f"{'; '.join(parts)} (#{number} of {group_text(group)})",
        tuple(sorted(rank for variant in variants[:-1] for rank in variant)),
        tuple(sorted(rank for variant in variants for rank, entry in variant.items() if entry.is_open)),
        min((entry.seconds for variant in variants for entry in variant.values() if entry.is_open), default=0.0),
    )


def _names(entries: Sequence[Entry]) -> list[str]:
    """What tells these entries apart, in the fewest words."""
    forms: tuple[Callable[[Entry], str], ...] = (lambda entry: "", sizes_text, tensors_text)
    for form in forms:
        texts = [f"{entry.call} {form(entry)}".rstrip() for entry in entries]
        if len(set(texts)) == len(texts):
            return texts
    return [f"{entry.call} (recorded as {entry.op} {tensors_text(entry)})" for entry in entries]


def _missing(
    history: History,
    number: int,
    waiting: Mapping[int, Entry],
    absent: Sequence[int],
    idle: Collection[int],
    dead: Collection[int],
) -> Finding:
    parts = [_waits(history.group, number, waiting, idle), *_lacks(history, absent)]
    gone = [rank for rank in history.silent if rank in dead]
    if gone:
        parts.append(f"{named(gone)} {'is' if len(gone) == 1 else 'are'} dead")
    elif not absent:
        parts.append(f"nothing is known of {named(history.silent)}")
    seconds = min(entry.seconds for entry in waiting.values())
    odd = sorted({*absent, *gone}) or history.silent
    return Finding("; ".join(parts), tuple(odd), tuple(waiting), seconds)


def _endless(
    history: History,
    number: int,
    here: Mapping[int, Entry],
    waiting: Sequence[int],
    patience: float,
    idle: Collection[int],
) -> Finding | None:
    """What all have issued, and does not end.

    Operations around one rank are suspected soon, as each may have named another. All others may just be slow while
    ranks work. What runs on a GPU may always stand in a queue behind what is not seen here.
    """
    first = here[waiting[0]]
    root = ROOTED.get(first.op, "")
    seconds = _overdue(history, number)
    is_late = seconds >= (patience if root or set(waiting) <= set(idle) else OVERDUE)
    if history.group.backend == "nccl" or not is_late:
        return None
    open_ones = {rank: here[rank] for rank in waiting}
    why = f", perhaps each with another {root!r}" if root else ""
    text = f"{_waits(history.group, number, open_ones, idle)}; all have issued it{why}"
    return Finding(text, (), tuple(waiting), seconds)


def _overdue(history: History, number: int) -> float:
    """For how many seconds it should have ended, though all that was issued in the group went one after the other.

    Negative if it may be under way still: the gradients of a large model stand in a queue behind many.
    """
    ended = math.inf  # seconds ago
    for each in (each for each in history.numbers if each <= number):
        entries = history.at(each).values()
        begun = min(ended, *(entry.seconds for entry in entries))
        ended = begun - max(map(_transfer_seconds, entries))
    return ended


def _transfer_seconds(entry: Entry) -> float:
    return sum(map(_product, entry.sizes)) / _NUMBERS_A_SECOND


def _waits(group: Group, number: int, waiting: Mapping[int, Entry], idle: Collection[int]) -> str:
    """Example: `ranks 0,2 wait in all_reduce #2 (4,) at cell 5, line 3`."""
    first = next(iter(waiting.values()))
    of = "" if group.about == "default_pg" else f" of {group_text(group)}"
    what = f"{first.call} #{number} {sizes_text(first)}".rstrip() + of
    verb = f"left {what} open" if set(waiting) <= set(idle) else f"{_s('wait', waiting)} in {what}"
    return f"{named(waiting)} {verb} {_places(waiting)}"


def _lacks(history: History, absent: Sequence[int]) -> list[str]:
    by_last: dict[int, list[int]] = {}
    for rank in absent:
        if rank not in history.without:
            by_last.setdefault(history.last(rank), []).append(rank)
    lacks = [
        f"{named(ranks)} {'has' if len(ranks) == 1 else 'have'} {_issued(last, history.is_whole)}"
        for last, ranks in sorted(by_last.items())
    ]
    if history.without:
        verb = "has" if len(history.without) == 1 else "have"
        lacks.append(f"{named(history.without)} {verb} no such group: all ranks make all groups, in one order")
    return lacks


def _issued(last: int, is_whole: bool) -> str:
    if last:
        return f"issued only {last}"
    return "issued none" if is_whole else "not issued it"


def _s(verb: str, ranks: Collection[int]) -> str:
    return f"{verb}s" if len(ranks) == 1 else verb


def _places(entries: Mapping[int, Entry]) -> str:
    """`at cell 5, line 2`; where ranks stand at different lines, each with its ranks."""
    by_place: dict[str, list[int]] = {}
    for rank, entry in entries.items():
        by_place.setdefault(place_text(entry), []).append(rank)
    if len(by_place) == 1:
        return f"at {next(iter(by_place))}"
    return "at " + " and ".join(f"{place} ({named(ranks)})" for place, ranks in by_place.items())


def place_text(entry: Entry) -> str:
    """The user's line that issued it: `cell 5, line 2`."""
    return line_text(entry.file, entry.line)


def line_text(file: str, line: int) -> str:
    """Example: `cell 5, line 2`; a long path by its end.

    >>> line_text("train.py", 7), line_text("", 0)
    ('train.py, line 7', 'an unknown line')
    """
    if not file:
        return "an unknown line"
    cell = name_of(file) or cell_of(file)
    return f"{cell or (file if len(file) <= 48 else '…/' + '/'.join(file.split('/')[-2:]))}, line {line}"


def sizes_text(entry: Entry) -> str:
    """`(1024,)`; the first few of many tensors."""
    shown = " ".join(str(size) for size in entry.sizes[:2])
    return f"{shown} …" if len(entry.sizes) > 2 else shown


def tensors_text(entry: Entry) -> str:
    """Sizes and types: `(1024,) float32`."""
    dtypes = " ".join(dict.fromkeys(_DTYPES.get(dtype, dtype) for dtype in entry.dtypes))
    return f"{sizes_text(entry)} {dtypes}".strip()


def group_text(group: Group) -> str:
    """`the default group`, `the group of ranks 0,2`."""
    if group.about == "default_pg":
        return "the default group"
    about = f"group {group.about!r}" if group.about else "group"
    return f"the {about} of {named(group.ranks)}" if group.ranks else f"a {about}"
