"""What a run came to: the result where all ranks did well, else one error that tells who failed and why."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

import msgspec

from ..runtime.controller.long_calls import actors_at_work
from ..runtime.errors import DeviceMeshError, MeshError
from ..runtime.ranges import named, ranks_text
from ..runtime.ranks.place import axes_text
from .drive import Drive
from .failures.cut_off import is_cut_off
from .failures.interrupted import Interrupted
from .failures.slips import with_launchers, with_lines, with_lost_gpus, with_makers
from .failures.story import Hint, Story, in_full, noted, tell, with_memory, with_way_to_tracebacks
from .outcome import Failure
from .stopping.patience import Step
from .stopping.stopped import stopped
from .values.results import MeshResult
from .waiting.queued import taken_back_text


def check(drive: Drive, result: MeshResult, notebook: Container[str] = ()) -> MeshResult:
    """The result, if all ranks did well; `notebook` has the names of its variables, for who has missed one.

    Raises:
        DeviceMeshError: the mesh has lost ranks; the story tells how they ended.
        MeshError: ranks raised, or were given up because they do not react.
    """
    if not result.failed and not result.lost:
        return result
    story = _story(drive, result, notebook)
    if gone := sorted(drive.run.progress.gone | _missed(drive, result.failures)):
        raise noted(DeviceMeshError(story.summary, lost=gone, by_rank=result.errors, result=result), story)
    raise noted(MeshError(story.summary, by_rank=result.errors, result=result), story)


def stopped_by(drive: Drive, result: MeshResult, notebook: Container[str] = ()) -> Interrupted:
    """What the user's press raises: where ranks were, and the story of those that have failed by themselves."""
    text = interrupted_text(drive, result.failures)
    if not _failed_by_themselves(drive, result.failures):
        stop = Interrupted(text)
        stop.in_full = _tracebacks(drive, result.failures)
        return stop
    story = _story(drive, result, notebook)
    is_in_story = not (drive.killed or drive.abandoned or drive.taken_back or _absent(drive))
    return noted(Interrupted(f"{'interrupted' if is_in_story else text}; {story.summary}"), story)


def _tracebacks(drive: Drive, failures: Mapping[int, Failure]) -> str:
    """Of those that failed by themselves first."""
    own = _failed_by_themselves(drive, failures)
    others = failures.keys() - own
    parts = [in_full(drive.run.axes, {rank: failures[rank] for rank in ranks}) for ranks in (own, others) if ranks]
    return "\n\n".join(parts)


def _story(drive: Drive, result: MeshResult, notebook: Container[str]) -> Story:
    told = _timed_out(drive, result.failures)
    waiting = _fates(drive, told)
    failures = {rank: failure for rank, failure in told.items() if rank not in waiting}
    roster = drive.mesh.roster
    missed = _missed(drive, result.failures)
    whys = {rank: roster.why_dead(rank) for rank in missed} | result.lost
    lost = {rank: why.partition("\n")[0] for rank, why in whys.items()}
    late = {*drive.abandoned, *drive.taken_back}
    words = {rank: roster.last_words(rank, drive.run.call) for rank in lost if rank not in late}
    story = tell(
        drive.run.axes,
        sorted({*result.ranks, *lost}),
        failures,
        lost,
        waiting,
        words,
        drive.parted,
        drive.mended,
        roster.dead(),
        drive.together,
        late,
        drive.run.progress.unclear,
    )
    held = drive.mesh.held_by_errors([rank for rank in failures if rank not in lost])
    tracebacks = _tracebacks(drive, result.failures)
    story = replace(story, tracebacks=tracebacks, shows_tracebacks=drive.user is None)
    return _advised(drive, with_memory(story, held), failures, notebook)


def _advised(drive: Drive, story: Story, failures: Mapping[int, Failure], notebook: Container[str]) -> Story:
    """The story with what can be done about it."""
    mesh, groups = drive.mesh, drive.mesh.roster.groups
    if mesh.is_down:  # nothing can be done with it any more
        return replace(story, hints=(Hint("bring it up again", f"%mesh up {mesh.name} {axes_text(mesh.axes)}"),))
    story = with_lines(story, failures.values(), notebook, groups.backend != "none", groups.whole_since > 0)
    story = with_makers(story, failures, mesh.journal.missed_maker, mesh.num_ranks)
    story = with_launchers(with_lost_gpus(story, failures), failures)
    if drive.is_inquiry:
        story = replace(story, hints=tuple(hint for hint in story.hints if not hint.command.startswith("%%on_mesh")))
    if drive.abandoned:
        end = Hint("end what does not react", f"%mesh interrupt {ranks_text(drive.abandoned)} --kill")
        story = replace(story, hints=(*story.hints, end))
    return story if drive.user is None else with_way_to_tracebacks(story, has_future=drive.is_background)


def note_failed(drive: Drive, result: MeshResult) -> None:
    """What `@failed` selects: not the ranks that worked or waited until they were told to stop, or lost a peer."""
    innocent = _cut_off(drive, result.failures)
    if drive.patience.reason in ("user", "failure"):
        innocent |= _interrupted(drive, result.failures)
    drive.mesh.last_failed = tuple(rank for rank in sorted(result.failed) if rank not in innocent)


def was_stopped(drive: Drive, result: MeshResult) -> bool:
    """Did the user's press end it? Not where its own code has caught the interrupt, and all ranks came to its end."""
    has_caught = bool(drive.struck) and drive.patience.rung is Step.INTERRUPT and result.ok
    return drive.patience.reason == "user" and not has_caught


def interrupted_text(drive: Drive, failures: Mapping[int, Failure]) -> str:
    """One line for the user who pressed stop: where the ranks were, and what they are now."""
    told = [taken_back_text(drive.taken_back)] if drive.taken_back else []
    if drive.late or drive.killed or drive.abandoned or not told:
        told.append(_interrupted_text(drive, failures))
    if not drive.killed and (dead := sorted(_absent(drive) | drive.run.progress.gone)):
        told.append(f"{named(dead)} {'are' if dead[1:] else 'is'} dead: `%mesh restart @dead`")
    return "; ".join(told)


def _interrupted_text(drive: Drive, failures: Mapping[int, Failure]) -> str:
    if drive.abandoned:
        deaf = [rank for rank in drive.abandoned if rank not in drive.heard]
        heard = "were interrupted" if drive.heard[1:] else "was interrupted"
        told = [_still_busy(drive, deaf, "did not react"), _still_busy(drive, drive.heard, heard)]
        return (
            f"{', '.join(filter(None, told))}: "
            "`%mesh unstick` breaks off collectives, `%mesh restart @busy` gives fresh ranks"
        )
    if drive.killed:
        places = _places({rank: drive.waiting.get(rank, "") for rank in drive.killed})
        return f"killed: {places}; `%mesh restart @dead` brings {'them' if drive.killed[1:] else 'it'} back"
    ended = {*failures, *drive.run.progress.gone}
    were_at = {rank: place for rank, place in drive.waiting.items() if place and rank not in ended}
    were_at |= {rank: _place(drive, rank, failures[rank]) for rank in _released(drive, failures)}
    places = _places(were_at)
    kept = "".join(f"; {told}" for told in (*drive.together.notes, drive.mended) if told)
    if not were_at and drive.run.progress.gone:
        return f"interrupted{kept}"
    rest = "it is idle and keeps its state" if len(were_at) == 1 else "they are idle and keep their state"
    if actors_at_work(drive.mesh.roster):  # which goes on, and is told in a line of its own
        rest = "state kept"
    return f"interrupted: {places or 'when all ranks were done'}; {rest}{kept}"


def _still_busy(drive: Drive, ranks: Sequence[int], reaction: str) -> str:
    """Empty where there are none."""
    places = _places({rank: drive.waiting.get(rank, "") for rank in ranks})
    return f"{named(ranks)} {reaction} and {'are' if ranks[1:] else 'is'} still busy ({places})" if ranks else ""


def _places(waiting: Mapping[int, str]) -> str:
    """Where ranks were, those at one place together."""
    by_place: dict[str, list[int]] = {}
    for rank, place in sorted(waiting.items()):
        by_place.setdefault(place or "an unknown line", []).append(rank)
    return ", ".join(f"{named(ranks)} at {place}" for place, ranks in by_place.items())


def _fates(drive: Drive, failures: Mapping[int, Failure]) -> dict[int, str]:
    """What became of the ranks that failed because others did: not their fault, and told apart."""
    who = "is gone" if _has_peers_gone(drive, failures) else "has failed"
    cut_off = {
        rank: f"lost its connection to a rank that {who}, at {_line(failures[rank])}; state kept"
        for rank in sorted(_cut_off(drive, failures))
    }
    stops = {
        rank: f"{how}, at {_line(failures[rank])}; state kept"
        for rank, how in stopped(drive.run.progress).items()
        if rank in failures
    }
    cut_off |= stops
    if drive.patience.reason not in ("failure", "user"):
        return cut_off
    has_waited = drive.patience.reason == "failure" and not drive.patience.has_given_up
    grace = f" after {drive.patience.grace:g} s" if has_waited else ""
    after = f"interrupted{grace}, state kept"
    released = sorted(_released(drive, failures))
    return {rank: f"was at {_place(drive, rank, failures[rank])}; {after}" for rank in released} | cut_off


def _failed_by_themselves(drive: Drive, failures: Mapping[int, Failure]) -> set[int]:
    """The ranks that ended neither by the user's press nor because of another rank."""
    return set(failures) - set(_fates(drive, failures))


def _released(drive: Drive, failures: Mapping[int, Failure]) -> set[int]:
    """The ranks that were interrupted, or whose collective was broken off: these say so by an error of torch's."""
    return _interrupted(drive, failures) | (set(failures) & set(drive.waiting) if drive.released else set())


def _interrupted(drive: Drive, failures: Mapping[int, Failure]) -> set[int]:
    """The ranks that worked until they were interrupted: who raises the same error by itself has failed.

    So has, as far as others are concerned, one that the user had stopped before, although it had not ended yet.
    """
    late = [rank for rank in drive.late if rank not in drive.run.progress.stopped]
    return {rank for rank in late if rank in failures and failures[rank].type_name == "KeyboardInterrupt"}


def _cut_off(drive: Drive, failures: Mapping[int, Failure]) -> set[int]:
    found = {rank for rank, failure in failures.items() if is_cut_off(failure)}
    if found and not _has_peers_gone(drive, failures):  # by one that failed, and destroyed its groups in a `finally`
        return set() if drive.released or len(found) == len(failures) else found
    return found


def _has_peers_gone(drive: Drive, failures: Mapping[int, Failure]) -> bool:
    progress = drive.run.progress
    return bool(progress.gone or progress.stopped or _missed(drive, failures))


def _missed(drive: Drive, failures: Mapping[int, Failure]) -> set[int]:
    """The dead ranks that it has waited for; where it was cut off, those it had to do without from the start."""
    if drive.run.progress.missed or not any(map(is_cut_off, failures.values())):
        return drive.run.progress.missed
    return _absent(drive)


def _absent(drive: Drive) -> set[int]:
    """The dead ranks of the mesh that it did not run on: mostly such as had died before, which was told then."""
    return set(drive.mesh.roster.dead()) - set(drive.run.ranks)


def _line(failure: Failure) -> str:
    return failure.place or "an unknown line"


def _timed_out(drive: Drive, failures: Mapping[int, Failure]) -> dict[int, Failure]:
    """The failures, with `TimeoutError` for ranks that a timeout interrupted: nobody pressed a key."""
    if drive.patience.reason != "timeout":
        return dict(failures)
    seconds = f"{drive.patience.timeout:g} s"
    late = {
        rank: msgspec.structs.replace(
            failures[rank],
            type_name="TimeoutError",
            message=f"not done after {seconds}, at {_place(drive, rank, failures[rank])}; interrupted, state kept",
        )
        for rank in _interrupted(drive, failures)
    }
    return {rank: late.get(rank, failure) for rank, failure in failures.items()}


def _place(drive: Drive, rank: int, failure: Failure) -> str:
    """Where it was before it was interrupted; of one that did not say so in time, where that has struck."""
    return drive.waiting.get(rank) or _line(failure)
