"""Async functions as functions that return futures."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from meshbook.runtime import Future, returns_future

SEEN: list[object] = []


@returns_future
async def double(x: int, *, fail: bool = False) -> int:
    """Twice as much."""
    await asyncio.sleep(0)
    SEEN.append((x, threading.current_thread().name))
    if fail:
        raise ValueError("cannot double")
    return 2 * x


@returns_future
async def forever() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        SEEN.append("cancelled")


@pytest.fixture(autouse=True)
def _forget() -> None:
    SEEN.clear()


def test_it_looks_like_the_function() -> None:
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
    assert isinstance(double(1), Future)


def test_nothing_runs_until_somebody_looks() -> None:
    future = double(2)
    assert SEEN == []
    assert not future.done()
    assert future.get() == 4
    assert future.done()
    assert [(2, threading.current_thread().name)] == SEEN
    assert (future.get(), future.result(), future.exception()) == (4, 4, None)
    assert len(SEEN) == 1


def test_awaited_it_runs_on_that_loop() -> None:
    async def main() -> list[int]:
        future = double(3)
        assert await asyncio.gather(_await(future), _await(future)) == [6, 6]
        return [await future, future.get(), await future.as_asyncio()]

    assert asyncio.run(main()) == [6, 6, 6]
    assert len(SEEN) == 1


def test_get_in_a_running_loop() -> None:
    async def main() -> int:
        return double(4).get()

    assert asyncio.run(main()) == 8


def test_what_it_raises_is_the_observers() -> None:
    future = double(5, fail=True)
    with pytest.raises(ValueError, match="cannot double") as caught:
        future.get()
    assert future.exception() is caught.value

    async def main() -> None:
        with pytest.raises(ValueError, match="cannot double"):
            await double(5, fail=True)

    asyncio.run(main())


def test_a_timeout_of_get_cancels_the_body() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="did not finish in time"):
        forever().get(timeout=0.01)
    assert SEEN == ["cancelled"]
    assert time.monotonic() - began < 5
    with pytest.raises(ValueError, match="timeout"):
        forever().get(timeout=-1)


def test_a_timeout_of_the_body_is_its_own() -> None:
    @returns_future
    async def give_up() -> None:
        raise TimeoutError("the database is slow")

    with pytest.raises(TimeoutError, match="the database is slow"):
        give_up().get(timeout=10)


def test_wrong_arguments_are_told_at_the_call() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        double()  # pyright: ignore


def test_what_is_not_async_is_refused() -> None:
    with pytest.raises(TypeError, match="returns_future requires an async function"):
        returns_future(lambda: 3)  # pyright: ignore[reportArgumentType]


def test_one_that_nobody_looks_at_is_silent() -> None:
    double(6)
    assert SEEN == []


async def _await(future: Future[int]) -> int:
    return await future
