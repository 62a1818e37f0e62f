"""Process groups of a whole mesh: made anew when they are of no use any more, and collectives that hang broken off.

Nothing here waits for a rank that is busy: it makes its new groups when it is done with what it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import MeshbookError
from ..groups.renewal import Members
from ..groups.sockets import Port
from ..numbers import STEWARD
from ..orders import Order
from ..wire import codec
from .gather import Gather
from .roster import Roster

DOOR_SECONDS = 2.0
"""How long a rank may take to open a port before another one is asked: it may hold the GIL, or be stopped."""


SEQUENCE_SECONDS = 0.5
"""How long a rank may take to say how many collectives it has issued; who is silent is passed over."""

MEMBER_SECONDS = 2.0
"""How long a rank may take to say which groups it has: for one that is silent, all ranks lose theirs."""

COME_SECONDS = 1.5
"""How long a rank may take to come to those that wait for it in the making of a communicator."""

REGROUP_SECONDS, REGROUP_SECONDS_A_RANK = 2.0, 0.05
"""How long new groups are waited for: they take 20 ms of CPU a rank."""


@dataclass(frozen=True, slots=True)
class Unstuck:
    """What became of ranks that were to be freed."""

    freed: tuple[int, ...]
    """Ranks that were busy and are idle now."""
    busy: tuple[int, ...]
    """Ranks that did not react: they run code that hears nothing."""
    late: tuple[int, ...] | None
    """Busy ranks, which get the new process groups later; None: no groups were made."""
    is_renewed: bool = False
    """Are the groups the same objects, so that models go on with them?"""


def regroup(roster: Roster, renews: bool = False) -> tuple[int, ...]:
    """New process groups on all living ranks; those that make theirs later: busy ranks, and stopped ones.

    With `renews`, groups stay the objects they were where that can be, and models that hold them go on; but not those
    that only some of their ranks have.

    Raises:
        MeshbookError: a rank could not make its groups.
    """
    with roster.groups.regrouping:
        return _regroup(roster, renews)


def _regroup(roster: Roster, renews: bool) -> tuple[int, ...]:
    living = roster.alive()
    if roster.groups.backend == "none" or not living:
        return ()
    busy = busy_ranks(roster)
    ports = _ports(roster, SEQUENCE_SECONDS)
    roster.groups.store_rank, port = _meeting_place(roster, sorted(living, key=lambda rank: rank in busy))
    kept = _shared_groups(roster, living) if renews and roster.groups.can_renew else []
    since = roster.groups.begin(living, renews=bool(kept))
    home, addr = (roster.specs[rank].host_addr for rank in (0, roster.groups.store_rank))
    payload = _arguments(home, addr, port, roster.groups.store_rank, roster.groups.generation, ports, since, kept)
    idle = [rank for rank in living if rank not in busy]
    ask(roster, busy, "announce", roster.groups.generation)
    told = _told(roster, idle, payload)
    _told(roster, busy, payload)
    told.wait(REGROUP_SECONDS + REGROUP_SECONDS_A_RANK * len(idle))
    told.check()
    return tuple(rank for rank in living if rank in busy or rank in told.owing)


def are_gone(roster: Roster) -> bool:
    """Whether the last cells have destroyed all groups on all ranks, and nothing runs there that may make others."""
    gone = roster.groups.destroyed
    return bool(gone) and gone.issuperset(roster.alive()) and not busy_ranks(roster)


def busy_ranks(roster: Roster) -> tuple[int, ...]:
    """The living ranks that work on something, or are about to."""
    return tuple(rank for rank in roster.alive() if roster.states[rank].open_calls)


def _shared_groups(roster: Roster, living: Sequence[int]) -> list[str]:
    """The names of the groups that can be renewed; none where a rank is dead, says nothing, or has no default group.

    Nor where one still has groups of before all were last made anew: it was busy since, and is to make its own.
    """
    if len(living) < len(roster.states):
        return []
    asked = ask(roster, living, "members")
    asked.wait(MEMBER_SECONDS)
    told: list[Members | None] = [asked.answers.get(rank) for rank in living]
    since = roster.groups.whole_since
    known = {rank: m for rank, m in zip(living, told, strict=True) if m is not None and m.generation >= since}
    names = shared({rank: each.groups for rank, each in known.items()})
    defaults = {each.default for each in known.values()}
    return sorted(names) if len(known) == len(living) and len(defaults) == 1 and defaults <= names else []


def shared(told: Mapping[int, Mapping[str, tuple[int, ...]]]) -> set[str]:
    """The groups that all their ranks have. One that only some have made is of no use to them.

    Example:
        >>> sorted(shared({0: {"0": (0, 1), "a": (0,), "b": (0, 1)}, 1: {"0": (0, 1)}}))
        ['0', 'a']
    """
    found = {(name, ranks) for groups in told.values() for name, ranks in groups.items()}
    return {name for name, ranks in found if all(told.get(rank, {}).get(name) == ranks for rank in ranks)}


def mend(roster: Roster, have_parted: Callable[[], bool] = lambda: False, renews: bool = True) -> str:
    """Make the process groups anew if they are of no use as they are; why they were not, or nothing.

    Where all ranks have destroyed theirs, as scripts do at their end, none are left.
    Ranks that were interrupted, or of which one failed, may have issued different numbers of collectives: the next one
    would be matched with the wrong one, without a word. Where the numbers are equal, or those of busy ranks
    are not known, `have_parted` says whether ranks have left collectives open that the others are not in: these keep
    threads of gloo, of which a group has two, for ever. It is asked unless connections were broken off.

    Raises:
        MeshbookError: a rank could not make its groups.
    """
    if roster.is_stopped or roster.groups.backend == "none" or not roster.alive():
        return ""
    # Asked also where it decides nothing: who is asked keeps what was issued.
    has_parted = not roster.groups.is_cut and have_parted()
    if roster.groups.is_cut:
        why = "their connections were broken off"
    elif roster.groups.store_rank in roster.dead():
        why = "their store was gone"
    elif are_gone(roster):
        why, renews = "a cell had destroyed them", False
    else:
        # Who is busy counts on while it is asked.
        busy = busy_ranks(roster)
        asked = ask(roster, [rank for rank in roster.alive() if rank not in busy], "sequences")
        asked.wait(SEQUENCE_SECONDS)
        roster.groups.is_unsure = bool(busy)
        if out_of_step(asked.answers):
            why = "they were out of step"
        else:
            why = "a collective was left open in them" if has_parted else ""
    if why:
        regroup(roster, renews)
    return why


def out_of_step(sequences: Mapping[int, Mapping[str, int]]) -> bool:
    """Have ranks, each with its counts of collectives by group, issued different numbers of them in a group?

    Example:
        >>> out_of_step({0: {"world": 5, "pair": 1}, 1: {"world": 5}}), out_of_step({0: {"world": 5}, 1: {"world": 4}})
        (False, True)
    """
    counts: dict[str, set[int]] = {}
    for own in sequences.values():
        for name, count in own.items():
            counts.setdefault(name, set()).add(count)
    return any(len(different) > 1 for different in counts.values())


def release(roster: Roster, ranks: Sequence[int], timeout: float = 1.0) -> dict[int, int]:
    """Break off what these ranks wait for in a collective; by rank, how many connections were shut down.

    Their process groups are of no use until `regroup`. Ranks on GPUs that are idle break off theirs at the same time,
    which takes a second, and have come before to those that still wait for them in the making of a communicator.
    """
    groups = roster.groups
    groups.is_cut = True
    others: list[int] = []
    if roster.specs[0].device.startswith("cuda"):
        others = [rank for rank in roster.alive() if rank not in {*ranks, *busy_ranks(roster)}]
    came = ask(roster, others, "come", groups.generation)
    came.wait(COME_SECONDS)
    joined = sorted({name for names in came.answers.values() for name in names})
    released = ask(roster, [*ranks, *others], "release", _ports(roster, timeout), groups.generation, joined)
    released.wait(timeout)
    return dict(released.answers)


def _ports(roster: Roster, timeout: float) -> list[Port]:
    """The ports at which process groups of living ranks listen; of one that is silent (stopped, say) those of before.

    A rank that waits for another over a connection of its own making must know the other's port to end that.
    """
    living = roster.alive()
    known = ask(roster, living, "ports")
    known.wait(timeout)
    roster.groups.ports = {rank: roster.groups.ports.get(rank, []) for rank in living} | known.answers
    return sorted({port for own in roster.groups.ports.values() for port in own})


def _meeting_place(roster: Roster, candidates: Sequence[int]) -> tuple[int, int]:
    """A rank that serves a store for the new groups, and its port. The control thread of any will do, if it answers."""
    for rank in candidates:
        told = ask(roster, [rank], "open_door")
        told.wait(DOOR_SECONDS)
        if rank in told.answers:
            return rank, told.answers[rank]
    raise MeshbookError(f"no rank opens a port for new process groups within {DOOR_SECONDS:g} s")


def unstick(roster: Roster, ranks: Sequence[int], reinit: bool = True, timeout: float = 3.0) -> Unstuck:
    """Free ranks from what they wait in, with all their state: an interrupt, and the end of their collectives.

    Then the process groups of all ranks are renewed, or made anew where that cannot be (`reinit`).

    Raises:
        MeshbookError: a rank could not make its new groups in time.
    """
    stuck = [rank for rank in ranks if roster.states[rank].name == "busy"]
    if stuck:
        _interrupt(roster, stuck)
        release(roster, stuck)
        if not _are_free(roster, stuck, timeout / 2):
            # Python swallows what is raised in a destructor or a callback of a weak reference.
            _interrupt(roster, [rank for rank in stuck if roster.states[rank].name == "busy"])
            _are_free(roster, stuck, timeout / 2)
    left = tuple(rank for rank in stuck if roster.states[rank].name == "busy")
    late = regroup(roster, renews=True) if reinit else None
    freed = tuple(rank for rank in stuck if rank not in left)
    return Unstuck(freed, left, late, reinit and roster.groups.is_renewed)


def _interrupt(roster: Roster, ranks: Sequence[int]) -> None:
    """Interrupt all that these ranks were asked to do, also what is still on its way to them."""
    calls = {rank: list(roster.states[rank].open_calls) for rank in ranks}
    for call in sorted({call for own in calls.values() for call in own}):
        chosen = [rank for rank in ranks if call in calls[rank]]
        roster.interrupt(chosen, call, Gather(roster, chosen, "interrupt"))


def _are_free(roster: Roster, ranks: Sequence[int], timeout: float) -> bool:
    return wait_until(roster, lambda: all(roster.states[rank].name != "busy" for rank in ranks), timeout)


def wait_until(roster: Roster, condition: Callable[[], bool], timeout: float) -> bool:
    """Wait for a condition on the states of ranks; whether it came in time."""
    came = threading.Event()

    def look(_: int) -> None:
        if condition():
            roster.reactor.announce(came)

    roster.on_change.append(look)
    try:
        roster.reactor.schedule(lambda: look(0))
        return roster.reactor.wait(came, timeout)
    finally:
        roster.on_change.remove(look)


def _told(roster: Roster, ranks: Sequence[int], payload: codec.Encoded) -> Gather:
    told = Gather(roster, ranks, "new process groups")
    if ranks:
        roster.call(ranks, Order(STEWARD, "regroup", payload, on_main=True), told)
    return told


def ask(roster: Roster, ranks: Sequence[int], endpoint: str, *args: Any) -> Gather:
    """Ask the stewards of these ranks, which answer also while the ranks are busy."""
    gather = Gather(roster, ranks, endpoint)
    roster.ask(ranks, STEWARD, endpoint, _arguments(*args), gather)
    return gather


def _arguments(*args: Any) -> codec.Encoded:
    return codec.encode((args, dict[str, Any]()))
