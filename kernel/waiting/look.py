"""Asks ranks where they are: their control threads first, and where one does not answer in time, from outside."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence

from ...runtime.controller.gather import Gather
from ...runtime.controller.roster import Roster
from ...runtime.engines.outside import Glimpse
from ...runtime.ranks.stacks import Spot, StackSample, visible
from ...runtime.wire.messages import Sample
from ..sources.source import name_of
from .report import StackReport
from .stacks import RankStack, Stack, frames_of

TIMEOUT = 0.3
"""Seconds that control threads have to answer, all of them together: they take a few milliseconds."""

_AT_REST = "does not answer, and its main thread is at rest: C code of another thread may hold the GIL (try --native)"

SourceOf = Callable[[str, int], str]


def look(
    roster: Roster,
    ranks: Sequence[int] | None = None,
    *,
    native: bool = False,
    timeout: float = TIMEOUT,
    states: Mapping[int, str] | None = None,
    source_of: SourceOf = linecache.getline,
) -> StackReport:
    """Where these ranks are (default: all), also of a mesh without cells (`ProcMesh.roster`).

    Ranks that do not answer within `timeout` seconds are looked at from outside; with `native`, all that live are, with
    py-spy, whose frames include those of C. Never waits longer than the timeouts here and in `engines.outside`.

    Example:
        >>> from meshbook.kernel.mesh import Mesh
        >>> with Mesh.up("m", {"rank": 2}) as mesh:
        ...     print(look(mesh.roster))
        mesh m   rank=2   2 idle
        ranks 0-1  idle
    """
    chosen = list(range(len(roster.states))) if ranks is None else list(ranks)
    alive = [] if roster.is_stopped else [rank for rank in chosen if roster.states[rank].exit is None]
    named = dict(states) if states is not None else {rank: state.name for rank, state in roster.states.items()}
    gather = Gather(roster, alive, f"{roster.name}.stacks")
    if alive:
        roster.inquire(alive, gather, Sample)
    gather.wait(timeout)
    seen = roster.look(alive, native=True) if native and alive else {}
    note = next((view.trouble for view in seen.values() if view.trouble.startswith("py-spy")), "")
    silent = [rank for rank in alive if rank not in gather.answers and not (rank in seen and seen[rank].spots)]
    seen |= roster.look(silent) if silent else {}
    samples: dict[int, StackSample] = dict(gather.answers)  # with those that came late after all
    stacks = [_told(rank, named[rank], samples.get(rank), seen.get(rank), source_of) for rank in chosen]
    ends = {rank: str(state.exit) for rank, state in roster.states.items() if state.exit is not None}
    return StackReport(roster.name, roster.axes, stacks, ends, f"--native: {note}" if note else "")


def _told(rank: int, state: str, sample: StackSample | None, seen: Glimpse | None, source_of: SourceOf) -> RankStack:
    """What is known of one rank: what it says itself, unless py-spy saw more."""
    if sample is not None and not (seen is not None and seen.how == "py-spy"):
        return _from_sample(rank, state, sample, source_of)
    if seen is None:
        return RankStack(rank, state)
    frames = frames_of(visible(seen.spots), source_of)
    return RankStack(
        rank,
        state,
        frames,
        waiting=sample.waiting[0] if sample is not None and sample.waiting else "",
        seconds=sample.waiting[1] if sample is not None and sample.waiting else 0.0,
        how=seen.how,
        trouble=seen.trouble or ("" if frames or sample is not None else _AT_REST),
        thread=seen.thread.removeprefix("meshbook-"),
    )


def _from_sample(rank: int, state: str, sample: StackSample, source_of: SourceOf) -> RankStack:
    main = frames_of(_of_cell(sample), source_of)
    others = [(each.name, frames_of(each.spots, source_of)) for each in sample.others]
    thread, main = _first_actor(others) if not main else ("", main)
    waiting, seconds = sample.waiting or ("", 0.0)
    return RankStack(rank, state, main, waiting, seconds, thread=thread, others=tuple(others))


def _of_cell(sample: StackSample) -> tuple[Spot, ...]:
    """An awaiting cell is where its coroutines are: the main thread itself is in the event loop then."""
    is_running = any(name_of(spot.file) is not None for spot in sample.main)
    return sample.main if is_running or not sample.awaiting else sample.awaiting


def _first_actor(others: list[tuple[str, Stack]]) -> tuple[str, Stack]:
    """The stack of a rank whose main thread rests: that of an actor which works, taken out of the others."""
    for index, (name, _) in enumerate(others):
        if name.startswith("actor-"):
            return others.pop(index)
    return "", ()
