"""Bringing a rank that came new to what the others know: the cells that set up and what was pushed, in their order."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from ...runtime.controller.gather import Gather
from ...runtime.controller.resize import Resized
from ...runtime.healing import Healed
from ...runtime.wire.codec import EncodeError
from ..failures.slips import missed_name
from ..outcome import Outcome
from ..run import Run
from ..sources.journal import Journal, Pushed, Replay
from .heavy import heavy_imports
from .replaying import Replaying, Tell

if TYPE_CHECKING:
    from ..mesh import Mesh

_outcome_of = msgspec.msgpack.Decoder(Outcome).decode

_PUSH_SECONDS = 1.0
"""How long values may take where the cells before them took all the time there was, and were interrupted."""


@dataclass(frozen=True, slots=True)
class HealedMesh:
    """What was done to bring ranks back."""

    process: Healed
    replayed: tuple[str, ...]
    """The cells that ran again on them, by name."""
    parts: tuple[str, ...]
    """The cells of which only imports and definitions did."""
    failed: Mapping[str, tuple[int, ...]]
    """The cells that failed there, or took too long, with the ranks."""
    unpushed: tuple[str, ...]
    """Names of which something that was pushed could not be pushed again."""
    heavy: tuple[str, ...]
    """Packages that slow cells imported there, which `%mesh up --import` would have had ready."""
    seconds: float
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of what cells failed there, in a line each."""
    left_out: tuple[str, ...] = ()
    """The cells that ran to their end there before, and of which nothing was chosen to run again."""
    fatal: Collection[str] = ()
    """Of what cells failed there, those in which a rank has ended: the next restart does without them."""
    together: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Of what cells failed there, those that waited for ranks which live on, with all ranks that ran them before."""
    wanting: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of what cells failed there, those that want what another cell makes, which has not run there, with that."""
    mended: str = ""
    """What was said of process groups that cells which communicate there left out of step; empty where all was well."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that are new."""
        return self.process.ranks


@dataclass(frozen=True, slots=True)
class ResizedMesh:
    """What was done to resize a mesh."""

    process: Resized
    healed: HealedMesh
    """What the ranks that have new processes were brought to know."""
    seconds: float


def restore(
    mesh: Mesh, healed: Healed, plan: Sequence[Replay | Pushed], timeout: float, tell: Tell = lambda line: None
) -> HealedMesh:
    """Push and replay on the ranks that are new; cells that are not done after `timeout` seconds are interrupted.

    All is sent at once: a rank does what it is sent in order. `tell` hears what takes long.
    """
    started = time.monotonic()
    runs: list[tuple[Replay, Run]] = []
    pushes: list[tuple[str, Gather | None]] = []
    with mesh.desk.serving():  # nobody has asked to stop at the breakpoints of old cells once more
        for step in plan:
            chosen = [rank for rank in healed.ranks if rank in step.ranks]
            if not chosen:
                continue
            if isinstance(step, Pushed):
                pushes.append((step.name, _pushing(mesh, step, chosen)))
            else:
                runs.append((step, _running(mesh, step, chosen)))
        if runs:
            mesh.desk.leave(healed.ranks)
    deadline = time.monotonic() + timeout
    replaying = Replaying(mesh, runs, healed.ranks, tell)
    replaying.wait(deadline)
    ends = _ends([run for _, run in runs])
    failed = {replay.name: ranks for replay, run in runs if (ranks := _failed(run, ends))}
    done = [replay for replay, run in runs if run.progress.outcomes and not _failed(run, ends)]
    for replay, run in runs:
        mesh.journal.note_fatal(replay, [rank for rank, last in ends.items() if last is run])
    mesh.journal.note_new(healed.ranks, done)
    until = max(deadline, time.monotonic() + _PUSH_SECONDS)
    unpushed = [name for name, push in pushes if push is None or not _arrived(push, until)]
    return HealedMesh(
        healed,
        tuple(replay.name for replay in done if not replay.is_part),
        tuple(replay.name for replay in done if replay.is_part),
        failed,
        tuple(dict.fromkeys(unpushed)),
        _heavy(mesh, runs),
        healed.seconds + time.monotonic() - started,
        {replay.name: _reason(replay, run, replaying) for replay, run in runs if _failed(run, ends)},
        fatal={replay.name for replay, run in runs if run in ends.values()},
        together={replay.name: tuple(sorted(replay.ranks)) for replay, _ in runs if replay.name in replaying.vain},
        wanting={replay.name: maker for replay, run in runs if (maker := _missed_maker(mesh.journal, run))},
    )


def _heavy(mesh: Mesh, runs: Sequence[tuple[Replay, Run]]) -> tuple[str, ...]:
    took = [(replay.source, max(run.progress.seconds.values(), default=0.0)) for replay, run in runs]
    return heavy_imports(took, mesh.roster.specs[runs[0][1].ranks[0]]) if runs else ()


def _running(mesh: Mesh, replay: Replay, chosen: Sequence[int]) -> Run:
    return mesh.run(replay.source, chosen, name=replay.name, first_line=replay.first_line, replay=replay)


def _pushing(mesh: Mesh, push: Pushed, chosen: Sequence[int]) -> Gather | None:
    """The answers to come; None where the value is not here."""
    if not push.is_kept:
        return None
    try:
        return mesh.give({push.name: push.value}, chosen)
    except EncodeError:  # it has changed since
        return None


def _arrived(push: Gather, until: float) -> bool:
    return push.wait(max(0.0, until - time.monotonic())) and not push.errors


def _reason(replay: Replay, run: Run, replaying: Replaying) -> str:
    """Of what the first rank failed, in a line; if one ended, of what."""
    if replay.name in replaying.vain:
        return f"it waits in {replaying.vain[replay.name]} for ranks that live on"
    if replay.name in replaying.late:
        return "it took too long, and was interrupted"
    progress = run.progress
    failures = [_outcome_of(progress.outcomes[rank]).failure for rank in progress.failed]
    told = [f"{each.type_name}: {each.message}".removesuffix(": ") for each in failures if each is not None]
    gone = [progress.lost[rank] for rank in sorted(progress.gone)]
    return [*gone, *told, *progress.lost.values(), ""][0].partition("\n")[0]


def _missed_maker(journal: Journal, run: Run) -> str:
    """The cell that makes the name which a replayed cell has not found, if that has not run there itself."""
    for rank in run.progress.failed:
        failure = _outcome_of(run.progress.outcomes[rank]).failure
        if failure is not None and (name := missed_name(failure)) and (maker := journal.missed_maker(name, rank)):
            return maker.name
    return ""


def _ends(runs: Sequence[Run]) -> dict[int, Run]:
    """The cell in which each rank ended that did: the first to which it gave no answer, of those in their order."""
    ends: dict[int, Run] = {}
    for run in runs:
        for rank in run.progress.gone:
            ends.setdefault(rank, run)
    return ends


def _failed(run: Run, ends: Mapping[int, Run]) -> tuple[int, ...]:
    """Where a cell failed; not where the rank had ended in one before it."""
    lost = [rank for rank in run.progress.lost if ends.get(rank, run) is run]
    return tuple(sorted({*run.progress.failed, *lost}))
