"""Driving a cell to its end, with a mesh that only pretends: what is decided when, and what an interrupt does."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from meshbook.kernel.drive import TICK
from meshbook.kernel.driver import drive
from meshbook.kernel.failures.together import GIVEN_UP, Deeds
from meshbook.kernel.stopping import pressed
from meshbook.kernel.verdict import interrupted_text
from meshbook.runtime.engines.base import Exit
from meshbook.runtime.errors import MeshbookError
from meshbook.runtime.groups.models import Unreduced
from tests.kernel.pretended import RANKS, PretendedRun, die, drive_of


@pytest.fixture
def run() -> PretendedRun:
    return PretendedRun()


def test_it_ends_with_the_last_rank_and_then_listens_for_what_comes_late(run: PretendedRun) -> None:
    driven = drive_of(run)
    run.said = ["a"]
    for rank in RANKS:
        run.end(rank)
    drive(driven)
    assert driven.live.told == ["a", "end"]
    run.said = [(0, "b")]
    assert run.on_late is not None
    run.on_late()
    [tell] = driven.mesh.scheduled
    tell()
    assert driven.live.told[-1] == ("late", (0, "b"))


def test_what_comes_just_when_it_ends_is_not_forgotten(run: PretendedRun) -> None:
    driven = drive_of(run)
    for rank in RANKS:
        run.end(rank)
    driven.live.finish = lambda now: run.said.append((1, "in between"))
    drive(driven)
    again = driven.mesh.scheduled.pop()
    again()
    tell = driven.mesh.scheduled.pop()
    tell()
    assert driven.live.told == [("late", (1, "in between"))]


@pytest.mark.slow
def test_a_failure_is_told_once_and_the_others_are_interrupted_after_the_grace(run: PretendedRun) -> None:
    driven = drive_of(run, grace=0.3)
    run.end(1, failed=True)
    drive(driven)
    assert driven.mesh.interrupted == [([0, 2], 7)]
    assert driven.live.told == [("failed", [1], [0, 2]), "end"]
    assert driven.waiting == {0: "cell 1 line 0", 2: "cell 1 line 2"}
    assert (driven.patience.reason, driven.abandoned) == ("failure", ())


@pytest.mark.slow
def test_who_waits_for_one_that_has_failed_is_interrupted_at_once(run: PretendedRun) -> None:
    run.parted_for = 0.5
    driven = drive_of(run, grace=3600)
    run.end(1, failed=True)
    drive(driven)
    assert driven.mesh.interrupted == [([0, 2], 7)]
    assert (driven.patience.reason, driven.patience.has_given_up) == ("failure", True)


@pytest.mark.parametrize(("held", "at_work"), [({0}, set[int]()), (set[int](), {2})])
def test_who_waits_in_vain_is_left_alone_while_one_is_at_a_prompt_or_at_work(
    run: PretendedRun, monkeypatch: pytest.MonkeyPatch, held: set[int], at_work: set[int]
) -> None:
    monkeypatch.setattr("meshbook.kernel.waiting.in_vain.FIRST", 0.0)
    monkeypatch.setattr("meshbook.kernel.waiting.in_vain.EVERY", -1.0)
    driven = drive_of(run, grace=3600)
    run.end(1, failed=True)
    steps = driven.steps()
    next(steps)
    steps.send(0)  # it is seen that rank 1 has failed
    run.parted_for, driven.mesh.desk.held, driven.mesh.at_work = 0.5, frozenset(held), at_work
    steps.send(0)
    assert driven.mesh.interrupted == []
    driven.mesh.desk.held, driven.mesh.at_work = frozenset(), set()
    with pytest.raises(StopIteration):
        steps.send(0)
    assert driven.mesh.interrupted == [([0, 2], 7)]


@pytest.mark.slow
def test_each_death_is_told_once_while_others_work(run: PretendedRun) -> None:
    driven = drive_of(run, on_error="wait")
    deaths = iter([lambda: die(run, 1), lambda: die(run, 2), lambda: run.end(0)])

    def go_on(lost: dict[int, str], owing: Sequence[int]) -> None:
        driven.live.told.append((lost, list(owing)))
        next(deaths)()

    driven.live.tell_deaths = go_on
    next(deaths)()
    drive(driven)
    assert driven.live.told == [({1: "rank 1 ended"}, [0, 2]), ({2: "rank 2 ended"}, [0]), "end"]


def test_whoever_watches_is_called_at_each_step(run: PretendedRun) -> None:
    driven = drive_of(run)
    seen: list[float] = []
    driven.watches = (seen.append,)
    steps = driven.steps()
    next(steps)
    assert (steps.send(False), len(seen)) == (TICK, 1)


def test_ranks_that_do_not_react_are_left_alone(run: PretendedRun) -> None:
    driven = drive_of(run, is_deaf=True, timeout=0.01, patience=0.01)
    run.end(0)
    drive(driven)
    assert driven.mesh.interrupted == [([1, 2], 7)]
    assert driven.abandoned == (1, 2)
    assert run.progress.lost == {1: "did not react at cell 1 line 8", 2: "did not react at cell 1 line 9"}


def test_ranks_that_wait_where_no_interrupt_reaches_them_are_released(run: PretendedRun) -> None:
    driven = drive_of(run, is_deaf=True, timeout=0.01, impatience=0.01)
    driven.mesh.release = lambda ranks, call, timeout: [run.end(rank, failed=True) for rank in list(ranks)]
    driven.mesh.why_mended = "their connections were broken off"
    drive(driven)
    told = ([0, 1, 2], "still at work: interrupted again, and broke off collectives they may wait in")
    assert driven.live.told == [told, "end"]
    assert driven.abandoned == ()
    assert driven.mended.startswith("new process groups, as their connections were broken off: wrap models")


def test_the_stop_button_climbs_to_the_end(run: PretendedRun) -> None:
    driven = drive_of(run, is_deaf=True)
    run.end(0)
    steps = driven.steps()
    next(steps)
    for presses in (1, 1):
        steps.send(presses)
    with pytest.raises(StopIteration):
        steps.send(1)
    assert driven.mesh.interrupted == driven.mesh.released == [([1, 2], 7)]
    assert driven.mesh.killed == [[1, 2]]
    assert [told[1].partition(":")[0] for told in driven.live.told[:-1]] == [
        "still at work",
        "killed, as you asked",
    ]


def test_what_another_press_would_do_is_told_once(run: PretendedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressed, "_LOOKS", 0.0)
    driven = drive_of(run, is_deaf=True)
    steps = driven.steps()
    next(steps)
    for presses in (1, 0, 0):
        steps.send(presses)
    [(ranks, text)] = driven.live.told
    assert list(ranks) == RANKS
    assert "do not react yet (cell 1 line 0; cell 1 line 1; cell 1 line 2): stop again interrupts once more" in text
    assert "breaks off collectives, a third time kills" in text
    assert f"`python -m meshbook.debug attach {os.getpid()} @busy`" in text
    steps.close()


@pytest.mark.parametrize("waits_on", [False, True])
def test_who_waits_for_ranks_that_were_stopped_is_freed_by_the_same_press(
    run: PretendedRun, monkeypatch: pytest.MonkeyPatch, waits_on: bool
) -> None:
    monkeypatch.setattr(pressed, "_LOOKS", 0.0)
    driven = drive_of(run, is_deaf=True)
    steps = driven.steps()
    next(steps)
    steps.send(1)
    run.end(1)  # a moment later
    driven.patience.is_waiting_on = waits_on
    for _ in range(2):
        steps.send(0)
    assert driven.mesh.released == [([0, 2], 7)]
    steps.close()


def test_process_groups_are_mended_after_trouble_only(run: PretendedRun) -> None:
    run.mended = "freed rank 1"
    driven = drive_of(run)
    for rank in RANKS:
        run.end(rank)
    drive(driven)
    assert (driven.mesh.num_mended, driven.mended) == (0, "")
    assert driven.live.told[0] == (list(RANKS), "freed rank 1")  # before it was sent


def test_who_was_stopped_hears_that_models_have_parted(run: PretendedRun) -> None:
    driven = drive_of(run)
    driven.mesh.done = {0: Deeds(True, 2), 1: Deeds(True, 1), 2: Deeds(True, 1)}
    steps = driven.steps()
    next(steps)
    with pytest.raises(StopIteration):
        steps.send(1)
    assert interrupted_text(driven, {}).endswith(f"; {driven.together.uneven}")
    assert driven.together.uneven.startswith("rank 0 has made 2 optimizer steps in this cell, ranks 1-2 1: ")


@pytest.mark.parametrize(
    ("unreduced", "is_renewed", "given_up", "sent"),
    [
        (("begun", "", "kept"), False, GIVEN_UP, [(RANKS, "give_up_gradients")]),
        (("kept", "kept", "kept"), False, "", []),
        (("kept", "kept", "kept"), True, GIVEN_UP, []),
        (("", "", ""), True, "", []),
    ],
)
def test_gradients_that_are_to_be_reduced_later_are_given_up_on_all_ranks_or_none(
    run: PretendedRun,
    unreduced: tuple[Unreduced, ...],
    is_renewed: bool,
    given_up: str,
    sent: list[tuple[list[int], str]],
) -> None:
    driven = drive_of(run)
    driven.mesh.done = {rank: Deeds(False, 0, each) for rank, each in zip(RANKS, unreduced, strict=True)}
    driven.mesh.why_mended = "they were out of step" if is_renewed else ""
    driven.mesh.groups.begin(RANKS, renews=is_renewed)
    run.progress.outcomes.update(dict.fromkeys(RANKS, b""))
    for rank in RANKS:
        run.end(rank, failed=rank == 1)
    drive(driven)
    assert (driven.together.given_up, driven.mesh.sent) == (given_up, sent)


def test_groups_that_cannot_be_mended_are_told(run: PretendedRun) -> None:
    driven = drive_of(run)
    driven.mesh.why_mended = MeshbookError("rank 2 did not answer")
    for rank in RANKS:
        run.end(rank, failed=rank == 1)
    drive(driven)
    assert driven.mended == "no new process groups: rank 2 did not answer; `%mesh unstick` tries again"


def test_steps_can_be_looked_at_one_by_one(run: PretendedRun) -> None:
    driven = drive_of(run)
    steps = driven.steps()
    assert next(steps) == TICK
    assert steps.send(0) == TICK
    with pytest.raises(StopIteration):
        steps.send(1)
    assert (driven.patience.reason, driven.mesh.interrupted) == ("user", [(RANKS, 7)])


def test_ctrl_c_wherever_it_hits_reaches_the_ranks(run: PretendedRun) -> None:
    driven = drive_of(run)
    former = signal.getsignal(signal.SIGINT)
    run.on_take = lambda: signal.raise_signal(signal.SIGINT)  # in the middle of showing output
    drive(driven)
    assert driven.mesh.interrupted == [(RANKS, 7)]
    assert driven.patience.reason == "user"
    assert signal.getsignal(signal.SIGINT) is former


def test_ctrl_c_while_waiting_reaches_the_ranks(run: PretendedRun) -> None:
    driven = drive_of(run)

    def wait(event: threading.Event, timeout: float) -> bool:
        raise KeyboardInterrupt

    driven.mesh.wait = wait
    drive(driven)
    assert driven.mesh.interrupted == [(RANKS, 7)]


def test_ctrl_c_while_ranks_are_interrupted_does_not_stop_that(run: PretendedRun) -> None:
    driven = drive_of(run)

    def where(ranks: Sequence[int], timeout: float) -> dict[int, str]:
        raise KeyboardInterrupt

    driven.mesh.where = where
    run.on_take = lambda: signal.raise_signal(signal.SIGINT)
    drive(driven)
    assert driven.mesh.interrupted == [(RANKS, 7)]


def test_where_ranks_parted_is_asked_before_late_ones_are_interrupted(run: PretendedRun) -> None:
    driven = drive_of(run, timeout=0.01)
    drive(driven)
    assert driven.parted == ["rank 1 has issued none"]


def test_where_ranks_parted_is_told_also_where_the_user_has_been_at_a_prompt_since(run: PretendedRun) -> None:
    run.started -= 10.0
    run.parted_for = 9.0
    driven = drive_of(run, timeout=0.01)
    drive(driven)
    assert driven.parted == ["rank 1 has issued none"]


@pytest.mark.parametrize(
    ("signum", "parted"), [(signal.SIGABRT, ["[0, 2] called different things"]), (signal.SIGKILL, [])]
)
def test_who_lives_tells_why_a_rank_was_aborted(run: PretendedRun, signum: int, parted: list[str]) -> None:
    driven = drive_of(run)
    driven.mesh.states[1] = SimpleNamespace(exit=Exit(signum=signum))
    run.progress.gone.add(1)
    run.progress.lost[1] = "rank 1 is gone"
    for rank in RANKS:
        run.end(rank)
    drive(driven)
    assert driven.parted == parted


def test_a_run_is_driven_until_its_groups_were_looked_at_and_no_longer(run: PretendedRun) -> None:
    driven = drive_of(run)
    seen: list[bool] = []
    driven.mesh.mend = lambda renews: seen.append(run.is_driven) or ""
    for rank in RANKS:
        run.end(rank, failed=rank == 1)
    drive(driven)
    assert (seen, run.is_driven) == ([True], False)
    run.on_take = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError) as raised:
        drive(drive_of(run))
    assert raised.tb is not None  # which has the frames that drove it
    assert not run.is_driven


@pytest.mark.parametrize("is_dead", [False, True])
def test_groups_whose_connections_gloo_has_given_up_are_of_no_use(run: PretendedRun, is_dead: bool) -> None:
    driven = drive_of(run)
    driven.mesh.dead = lambda: [1] * is_dead
    for rank in RANKS:
        run.end(rank, failed=rank == 1, outcome=b"gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 5000ms")
    drive(driven)
    assert driven.mesh.groups.is_cut is not is_dead
    assert driven.parted == ([] if is_dead else ["[0, 1, 2] called different things"])


def test_what_ranks_say_gets_no_older_while_nobody_reads_it(run: PretendedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [time.monotonic()]
    driven = drive_of(run)
    monkeypatch.setattr("meshbook.kernel.drive.time", SimpleNamespace(monotonic=lambda: clock[0]))
    steps = driven.steps()
    next(steps)
    for seconds in (0.05, 0.05, 5.0, 0.05, 0.05):
        clock[0] += seconds
        steps.send(0)
    times = driven.live.times
    assert [now - times[0] for now in times] == pytest.approx([0, 0.05, 0.05, 0.1, 0.15])


def test_who_presses_stop_does_not_wait_for_ledgers(run: PretendedRun) -> None:
    driven = drive_of(run)
    run.on_take = lambda: signal.raise_signal(signal.SIGINT)
    drive(driven)
    assert (driven.parted, driven.mesh.interrupted) == ([], [(RANKS, 7)])


def test_ranks_that_have_not_begun_are_let_go_by_the_first_press(run: PretendedRun) -> None:
    driven = drive_of(run, is_deaf=True)
    driven.mesh.behind = dict.fromkeys(RANKS[1:], "cell 2")
    run.end(RANKS[0])
    run.on_take = lambda: signal.raise_signal(signal.SIGINT)
    drive(driven)
    assert driven.mesh.interrupted == [(RANKS[1:], 7)], "they pass the cell over when its turn comes"
    assert (driven.mesh.released, driven.mesh.killed, driven.taken_back) == ([], [], dict.fromkeys(RANKS[1:], "cell 2"))
    assert interrupted_text(driven, {}) == (
        "taken back from ranks 1-2, which still work on cell 2: `%mesh interrupt 1-2` ends that"
    )


def test_ctrl_c_when_all_are_done_still_stops_the_notebook(run: PretendedRun) -> None:
    driven = drive_of(run)
    for rank in RANKS:
        run.end(rank)
    driven.live.finish = lambda now: signal.raise_signal(signal.SIGINT)
    drive(driven)
    assert (driven.mesh.interrupted, driven.patience.reason) == ([], "user")


def test_a_death_that_comes_with_the_stop_button_is_told(run: PretendedRun) -> None:
    driven = drive_of(run)
    steps = driven.steps()
    next(steps)
    run.progress.lost[0] = "rank 0 was killed"
    run.progress.gone.add(0)
    run.end(0)
    with pytest.raises(StopIteration):  # the interrupt ends the others
        while True:
            steps.send(1)
    assert driven.patience.reason == "user"
    assert [told for told in driven.live.told if told[0] == "lost"] == [("lost", {0: "rank 0 was killed"}, [])]
