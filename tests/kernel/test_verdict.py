"""Where ranks were when they were stopped, also those that were too busy to say so. Without processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from meshbook.kernel.drive import Drive
from meshbook.kernel.driver import drive
from meshbook.kernel.outcome import Failure, Frame
from meshbook.kernel.stopping.patience import Patience
from meshbook.kernel.verdict import _fates, _tracebacks, interrupted_text, note_failed
from tests.kernel.pretended import RANKS, PretendedLive, PretendedMesh, PretendedRun, drive_of

FRAMES = (Frame("cell 7", 3, "<module>", "while True: pass", True), Frame("x.py", 9, "spin", "", False))
HIT = Failure("KeyboardInterrupt", "", FRAMES, "")


class BusyMesh(PretendedMesh):
    """Its rank 1 is too busy to say in time where it is: the interrupt hits it all the same."""

    def where(self, ranks: Sequence[int], timeout: float) -> dict[int, str]:
        return {rank: "cell 7 line 3" for rank in ranks if rank != 1}


def stopped_drive(*before: int) -> Drive:
    """The ranks `before` had been stopped one by one."""
    run = PretendedRun()
    run.progress.stopped.update(dict.fromkeys(before, "interrupted, as you asked"))
    mesh: Any = BusyMesh(run)
    pretended: Any = run
    live: Any = PretendedLive()
    run.on_take = lambda: signal.raise_signal(signal.SIGINT)
    driven = Drive(mesh, pretended, live, Patience(time.monotonic()))
    drive(driven)
    return driven


def test_a_rank_that_did_not_say_where_it_was_is_where_the_interrupt_struck() -> None:
    told = interrupted_text(stopped_drive(), dict.fromkeys(RANKS, HIT))
    assert told == "interrupted: ranks 0-2 at cell 7 line 3; they are idle and keep their state"


def test_one_that_ended_meanwhile_is_not_said_to_have_been_anywhere() -> None:
    told = interrupted_text(stopped_drive(), {0: HIT, 2: HIT})
    assert told == "interrupted: ranks 0,2 at cell 7 line 3; they are idle and keep their state"


def test_who_has_failed_by_itself_meanwhile_is_not_said_to_have_been_interrupted() -> None:
    broken = Failure("ValueError", "it is nan", FRAMES, "")
    told = interrupted_text(stopped_drive(), {0: HIT, 1: HIT, 2: broken})
    assert told == "interrupted: ranks 0-1 at cell 7 line 3; they are idle and keep their state"


def test_the_tracebacks_of_who_has_failed_by_itself_come_first() -> None:
    failures = {0: HIT, 1: HIT, 2: Failure("ValueError", "it is nan", FRAMES, "Traceback: it is nan")}
    first, second = _tracebacks(stopped_drive(), failures).split("\n\n")
    assert "Traceback: it is nan" in first and "KeyboardInterrupt" in second


def test_one_that_died_meanwhile_is_not_said_to_be_idle() -> None:
    driven = stopped_drive()
    driven.run.progress.gone.add(2)
    told = interrupted_text(driven, {0: HIT, 1: HIT})
    assert told.endswith("they are idle and keep their state; rank 2 is dead: `%mesh restart @dead`")
    assert "ranks 0-1 at cell 7 line 3" in told
    driven.run.progress.gone.update(RANKS)
    assert interrupted_text(driven, {}) == "interrupted; ranks 0-2 are dead: `%mesh restart @dead`"


def test_one_that_was_stopped_before_has_failed_although_it_had_not_ended_then() -> None:
    driven = stopped_drive(1)
    result: Any = SimpleNamespace(failed=RANKS, failures=dict.fromkeys(RANKS, HIT))
    note_failed(driven, result)
    assert driven.mesh.last_failed == (1,)


def test_who_has_lost_a_rank_that_failed_is_not_among_the_failed() -> None:
    """That one has destroyed its groups in a `finally`, as scripts do, which broke off those of the others."""
    where = Frame("/lib/torch/distributed/distributed_c10d.py", 3169, "all_reduce", "work.wait()", False)
    lost = Failure("RuntimeError", "[x/gloo/transport/tcp/pair.cc:5] Connection closed by peer [::1]:7", (where,), "")
    failures = {0: lost, 1: Failure("ValueError", "bad batch", FRAMES, ""), 2: lost}
    driven = drive_of(PretendedRun())
    result: Any = SimpleNamespace(failed=RANKS, failures=failures)
    note_failed(driven, result)
    assert driven.mesh.last_failed == (1,)
    assert _fates(driven, failures) == dict.fromkeys(
        (0, 2), "lost its connection to a rank that has failed, at an unknown line; state kept"
    )
    result.failures = dict.fromkeys(RANKS, lost)  # of groups that were broken before
    note_failed(driven, result)
    assert driven.mesh.last_failed == (0, 1, 2)
