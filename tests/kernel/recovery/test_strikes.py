"""Ctrl-C anywhere as a cell or a function is sent: no rank works on what nobody watches, and all works as before."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.recovery import repairs
from meshbook.kernel.run import Run
from meshbook.kernel.stopping.stop_button import StopButton
from meshbook.runtime import healing
from meshbook.runtime.controller import regroup, resize, roster
from tests.kernel.cells import values
from tests.strikes import strike_everywhere

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("m", {"dp": 2}, engine=engine, path=sys.path, backend="none") as mesh:
        yield mesh


ENDLESS = "import time\nwhile True: time.sleep(0.001)  # {}"


def test_a_cell_that_was_interrupted_as_it_was_sent_can_be_run_again(mesh: Mesh) -> None:
    """Each is of a source that ranks have not seen before; where no place is left to strike at, it runs."""
    number = itertools.count()
    sources: list[str] = []

    def send() -> None:
        sources.append(f"{next(number)}")
        mesh.run(sources[-1]).finished.result(20)

    def send_again() -> None:
        assert values(mesh, sources[-1]) == [sources[-1]] * 2

    send()
    assert len(strike_everywhere(send, send_again)) > 100


def test_ranks_do_not_go_on_with_a_cell_that_was_interrupted_as_it_was_sent(mesh: Mesh) -> None:
    numbers, runs = itertools.count(), list[Run]()

    def send() -> None:
        runs.append(mesh.run(ENDLESS.format(next(numbers))))

    def check() -> None:
        while runs:  # Python itself has swallowed Ctrl-C, or it did not come any more
            run = runs.pop()
            mesh.interrupt(run.ranks, run.call)
        assert values(mesh, "1 + 1") == ["2"] * 2

    assert len(strike_everywhere(send, check, lambda frame: frame.f_code is send.__code__)) > 100
    check()


STUBBORN = "import time\ntry:\n    time.sleep(0.3)\nfinally:\n    time.sleep(0.3)\n    {} / 0"


def test_the_next_cell_is_not_behind_one_that_was_interrupted_as_it_was_sent(mesh: Mesh) -> None:
    """Else it would not be run where that one fails. Struck at is where it has been sent already."""
    numbers = itertools.count()

    def send() -> None:
        mesh.run(STUBBORN.format(next(numbers))).finished.get(20)

    def check() -> None:
        assert values(mesh, "1 + 1") == ["2"] * 2

    assert len(strike_everywhere(send, check, lambda frame: frame.f_code is not Mesh._note.__code__)) >= 1


def test_the_same_of_a_function(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until presses are counted: from then on they may come too late."""
    counting: list[StopButton] = []
    enter, leave = StopButton.__enter__, StopButton.__exit__
    monkeypatch.setattr(StopButton, "__enter__", lambda button: (enter(button), counting.append(button))[0])
    monkeypatch.setattr(StopButton, "__exit__", lambda button, *_: (leave(button), counting.clear()))

    def call() -> None:
        assert mesh.execute(pow, 2, 10).values() == [1024, 1024]

    call()
    assert len(strike_everywhere(call, call, lambda _: bool(counting))) > 100
    assert not counting


def test_a_second_press_does_not_leave_ranks_at_work(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    run, interrupt = mesh.run(ENDLESS.format("pressed twice")), mesh.roster.interrupt
    again = lambda *args: (signal.raise_signal(signal.SIGINT), interrupt(*args))  # noqa: E731
    monkeypatch.setattr(mesh.roster, "interrupt", again)
    with pytest.raises(KeyboardInterrupt):
        mesh.stop(run)
    assert sorted(run.finished.get(10).progress.failed) == [0, 1]


REPLACES = {module.__file__ for module in (healing, resize, roster, repairs)}


def test_a_restart_that_is_interrupted_leaves_ranks_as_they_were_or_dead(mesh: Mesh, engine: str, leaks: Any) -> None:
    """Not such as die a moment later, under the next cell, or are neither dead nor on their way."""
    if engine == "inproc":
        pytest.skip("threads do not die")

    def restart() -> None:
        mesh.heal([1], replay="none")

    def check() -> None:
        check_living(mesh)
        mesh.heal(replay="none")
        check_living(mesh)

    restart()
    assert len(strike_everywhere(restart, check, lambda frame: frame.f_code.co_filename not in REPLACES)) > 30
    leaks.allow_what_stands()  # another process than before


@pytest.mark.parametrize("first", [1, 2], ids=["as it ends", "as the new one comes up"])
def test_a_second_press_does_not_bring_back_the_prompt_before_ranks_are_gone(
    mesh: Mesh, engine: str, monkeypatch: pytest.MonkeyPatch, leaks: Any, first: int
) -> None:
    if engine == "inproc":
        pytest.skip("threads do not die")
    waits = itertools.count(1)

    def press_and_wait(*args: Any) -> bool:
        if next(waits) >= first:
            signal.raise_signal(signal.SIGINT)
        return regroup.wait_until(*args)

    monkeypatch.setattr(healing, "wait_until", press_and_wait)
    monkeypatch.setattr(healing, "regroup", lambda *_: press_and_wait(mesh.roster, lambda: True, 1.0))
    with pytest.raises(KeyboardInterrupt):
        mesh.heal([1], replay="none")
    assert next(waits) == first + 2 and mesh.roster.dead() == [1]
    monkeypatch.undo()
    mesh.heal(replay="none")
    check_living(mesh)
    leaks.allow_what_stands()  # another process than before


def test_a_resize_that_is_interrupted_leaves_a_mesh_of_one_size_or_the_other(engine: str) -> None:
    if engine == "inproc":
        pytest.skip("threads do not die")
    with Mesh.up("e", {"dp": 2}, path=sys.path, backend="none") as mesh:

        def resize() -> None:
            mesh.resize({"dp": 2 if mesh.num_ranks == 3 else 3}, replay="none")

        def check() -> None:
            assert mesh.axes == {"dp": len(mesh.roster.states)}
            check_living(mesh)
            mesh.heal(replay="none")
            check_living(mesh)

        assert len(strike_everywhere(resize, check, lambda frame: frame.f_code.co_filename not in REPLACES)) > 30


def check_living(mesh: Mesh) -> None:
    """Those that are not known to be dead do live."""
    alive = mesh.roster.alive()
    assert values(mesh, "rank", alive) == [str(rank) for rank in alive]
