"""Waiting for a cell in each of the three ways, with a mesh that only pretends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from meshbook.kernel import driver
from meshbook.kernel.driver import drive_async, drive_in_background
from tests.kernel.pretended import RANKS, PretendedRun, die, drive_of


@pytest.fixture
def run() -> PretendedRun:
    return PretendedRun()


def test_an_awaited_cell_leaves_the_loop_to_others(run: PretendedRun) -> None:
    driven = drive_of(run)
    turns: list[int] = []

    async def other() -> None:
        for rank in RANKS:
            await asyncio.sleep(0)
            turns.append(rank)
            run.end(rank)

    async def both() -> None:
        await asyncio.gather(drive_async(driven), other())

    asyncio.run(both())
    assert (turns, driven.live.told) == (RANKS, ["end"])


def test_ctrl_c_that_comes_with_news_is_not_lost() -> None:
    async def both_at_once() -> int:
        news = asyncio.Event()
        pause = asyncio.create_task(driver._pause(news, 5.0))
        await asyncio.sleep(0)
        news.set()
        pause.cancel()
        return await pause

    assert asyncio.run(both_at_once()) == 1


def test_an_awaited_cell_wakes_when_a_rank_dies(run: PretendedRun) -> None:
    driven = drive_of(run, on_error="wait")

    def end_the_others(lost: dict[int, str], owing: Sequence[int]) -> None:
        driven.live.told.append((lost, list(owing)))
        run.end(0)
        run.end(2)

    driven.live.tell_deaths = end_the_others

    async def other() -> None:
        while run.on_trouble is None:
            await asyncio.sleep(0)
        die(run, 1)
        run.on_trouble()

    async def both() -> None:
        await asyncio.gather(drive_async(driven), other())

    asyncio.run(both())
    assert driven.live.told == [({1: "rank 1 ended"}, [0, 2]), "end"]
    assert run.on_trouble is None, "the loop is closed by now"


def test_a_cancelled_cell_interrupts_its_ranks_and_ends_well(run: PretendedRun) -> None:
    driven = drive_of(run)

    async def main() -> None:
        task = asyncio.ensure_future(drive_async(driven))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()  # ipykernel's answer to SIGINT
        await task

    asyncio.run(main())
    assert driven.mesh.interrupted == [(RANKS, 7)]
    assert driven.patience.reason == "user"


def test_ranks_of_a_cell_whose_loop_was_closed_may_still_say_something(run: PretendedRun) -> None:
    """As where a front-end drops the subshell in which the cell waits."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # asyncio would tell of the task that nobody ended
    waiting = drive_async(drive_of(run))
    task = loop.create_task(waiting)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert run.on_said is not None and run.on_trouble is not None and not task.done()
    run.on_said()
    run.on_trouble()
    for rank in RANKS:
        run.end(rank)
    waiting.close()


def test_a_press_in_the_first_moments_of_an_awaited_cell_counts(run: PretendedRun) -> None:
    driven = drive_of(run)

    def wait(event: threading.Event, timeout: float) -> bool:
        raise KeyboardInterrupt

    driven.mesh.wait = wait
    asyncio.run(drive_async(driven))
    assert driven.mesh.interrupted == [(RANKS, 7)]


def test_in_the_background_the_rule_for_late_ranks_holds_too(run: PretendedRun) -> None:
    driven = drive_of(run, timeout=0.01)
    thread = threading.Thread(target=drive_in_background, args=(driven,))
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert (driven.mesh.interrupted, driven.patience.reason) == ([(RANKS, 7)], "timeout")
