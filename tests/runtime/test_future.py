"""Futures: blocked on, awaited, both, and from wherever."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.future import Future, Promise
from meshbook.runtime.wire.reactor import Reactor

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench


def test_a_value():
    promise: Promise[int] = Promise()
    future = promise.future
    assert not future.done()
    assert repr(future) == "<Future: waiting>"
    promise.resolve(3)
    assert future.done()
    assert (future.get(), future.result(), future.get(0), future.exception()) == (3, 3, 3, None)
    assert repr(future) == "<Future: 3>"


def test_an_error():
    promise: Promise[int] = Promise()
    error = ValueError("boom")
    promise.fail(error)
    for _ in range(2):
        with pytest.raises(ValueError, match="boom") as caught:
            promise.future.get()
        assert caught.value is error
    assert promise.future.exception() is error
    assert repr(promise.future) == "<Future: failed: ValueError('boom')>"


@given(st.lists(st.integers() | st.text(), min_size=1, max_size=5))
def test_only_the_first_settling_counts(settlings: list[int | str]):
    promise: Promise[int] = Promise()
    heard: list[Future[int]] = []
    future = promise.future
    future.add_done_callback(heard.append)
    for what in settlings:
        if isinstance(what, int):
            promise.resolve(what)
        else:
            promise.fail(ValueError(what))
    first = settlings[0]
    assert heard == [future]
    assert future.exception() is None if isinstance(first, int) else str(future.exception()) == first


def test_a_timeout_leaves_it_open():
    promise: Promise[int] = Promise()
    with pytest.raises(TimeoutError, match=r"no answer after 0\.001 s; the call goes on"):
        promise.future.get(0.001)
    assert isinstance(promise.future.exception(0), TimeoutError)
    promise.resolve(1)
    assert promise.future.get(0.001) == 1


def test_a_timeout_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="timeout must be a number of seconds, not 'soon'"):
        Promise[int]().future.get(timeout="soon")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_a_timeout_that_is_none(timeout: float):
    with pytest.raises(ValueError, match=r"invalid timeout .*: it must be a number of seconds"):
        Promise[int]().future.get(timeout)
    settled = Promise[int]()
    settled.resolve(1)
    with pytest.raises(ValueError, match=r"invalid timeout .*: it must be a number of seconds"):
        settled.future.get(timeout)


def test_it_cannot_be_made_or_sent():
    with pytest.raises(TypeError, match="cannot be constructed directly"):
        Future()
    with pytest.raises(TypeError, match="send its value"):
        pickle.dumps(Promise[int]().future)


def test_callbacks_run_once_before_and_after(monkeypatch: pytest.MonkeyPatch):
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    promise: Promise[int] = Promise()
    heard: list[object] = []
    promise.future.add_done_callback(lambda future: heard.append(future.get()))
    promise.future.add_done_callback(lambda future: 1 / 0)
    promise.future.add_done_callback(lambda future: heard.append("last"))
    assert heard == []
    promise.resolve(5)
    assert heard == [5, "last"]
    promise.future.add_done_callback(lambda future: heard.append("late"))
    assert heard == [5, "last", "late"]
    assert [report.exc_type for report in reported] == [ZeroDivisionError]


@pytest.mark.parametrize("error", [None, ValueError("no")])
def test_one_promise_follows_a_future(error: Exception | None) -> None:
    led, leader = Promise[str](), Promise[int]()
    led.follow(leader.future, "done")
    assert not led.future.done()
    leader.resolve(1) if error is None else leader.fail(error)
    assert led.future.exception() is error
    assert error is not None or led.future.get() == "done"


def test_another_thread_settles(reactor: Reactor):
    for kind in (None, reactor):
        promise: Promise[int] = Promise(kind)
        thread = threading.Thread(target=promise.resolve, args=(7,))
        promise_got = threading.Thread(target=promise.future.get)
        promise_got.start()
        thread.start()
        assert promise.future.get(10) == 7
        thread.join()
        promise_got.join()


def test_awaiting():
    promise: Promise[int] = Promise()

    async def main() -> tuple[int, ...]:
        loop = asyncio.get_running_loop()
        loop.call_soon(promise.resolve, 4)
        first = await promise.future
        return first, await promise.future, await asyncio.wait_for(promise.future.as_asyncio(), 5)

    assert asyncio.run(main()) == (4, 4, 4)


def test_awaiting_an_error_and_many():
    promises: list[Promise[int]] = [Promise() for _ in range(3)]

    async def main() -> list[Any]:
        twins = [promise.future.as_asyncio() for promise in promises]
        threading.Thread(target=promises[1].fail, args=(KeyError("k"),)).start()
        promises[0].resolve(0)
        promises[2].resolve(2)
        return await asyncio.gather(*twins, return_exceptions=True)

    first, error, last = asyncio.run(main())
    assert (first, last) == (0, 2)
    assert isinstance(error, KeyError)


def test_who_stops_awaiting_leaves_the_call_alone():
    promise: Promise[int] = Promise()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(promise.future.as_asyncio(), 0.001)

    asyncio.run(give_up())
    promise.resolve(1)  # the loop that waited is closed by now
    assert promise.future.get() == 1


def test_awaiting_needs_a_loop():
    with pytest.raises(ValueError, match=r"no active event loop: use \.get\(\)"):
        Promise[int]().future.__await__()


def test_answers_of_ranks_can_be_blocked_on_inside_a_running_loop(inproc: Bench):
    workers = inproc.workers()

    async def main() -> list[Any]:
        blocked = workers.add.call(1).get(10).values()
        both = asyncio.gather(workers.add.call(1), workers.add.call(1))
        return [blocked, *(answer.values() for answer in await both)]

    assert asyncio.run(main()) == [[1, 1], [2, 2], [3, 3]]


def test_a_callback_that_waits_for_another_call_is_told(inproc: Bench, monkeypatch: pytest.MonkeyPatch):
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    workers = inproc.workers()
    done = threading.Event()

    def callback(_: object) -> None:
        try:
            workers.add.call(1).get()
        finally:
            inproc.reactor.announce(done)

    workers.add.call(1).add_done_callback(callback)
    assert inproc.reactor.wait(done, 10)
    assert workers.add.call(1).get(10).values() == [3, 3]
    assert ["`await` it instead" in str(report.exc_value) for report in reported] == [True]


PROGRAM = """
import threading
from meshbook.runtime.future import Promise
from meshbook.runtime.wire.reactor import Reactor
{before}
reactor = Reactor()
promise = Promise(reactor)
try:
    reactor.schedule(lambda: print("waits", flush=True))
    promise.future.get()
except KeyboardInterrupt:
    print("interrupted", promise.future)
print(promise.future.done())
reactor.schedule(lambda: promise.resolve(1))
print(promise.future.get(10))
reactor.close()
"""

FOLLOWS = """
import time
class Reactor(Reactor):
    def __init__(self):
        super().__init__()
        threading.Thread(target=self.wait, args=(threading.Event(), 1000), daemon=True).start()
        while not self._leader or self._leader == self._thread.ident:
            time.sleep(0)
"""


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("before", ["", FOLLOWS], ids=["leading", "following"])
def test_ctrl_c_ends_the_wait_and_not_the_call(before: str, until: Callable[..., Any]):
    source = PROGRAM.format(before=before)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.read() == "interrupted <Future: waiting>\nFalse\n1\n"
    assert process.returncode == 0


def test_an_error_that_was_raised_holds_nothing_in_a_circle():
    class Boom(Exception):
        """Unlike an `Exception` it can be referred to weakly."""

    promise: Promise[int] = Promise()
    promise.fail(Boom())
    held = weakref.ref(promise.future.exception() or Boom())
    gc.disable()
    try:
        try:
            promise.future.get()
        except Boom as boom:
            assert boom.__traceback__ is not None and boom.__traceback__.tb_next is not None
            arguments = inspect.getargvalues(boom.__traceback__.tb_next.tb_frame)
            assert set(arguments.args) <= set(arguments.locals), "IPython prints them"
            del promise, arguments
        assert held() is None
    finally:
        gc.enable()


def test_who_awaits_a_stop_iteration_hears_of_it() -> None:
    promise: Promise[int] = Promise()

    async def wait() -> None:
        with pytest.raises(RuntimeError, match="StopIteration: the end") as told:
            await promise.future
        assert isinstance(told.value.__cause__, StopIteration)

    promise.fail(StopIteration("the end"))
    asyncio.run(wait())


def test_who_has_stopped_to_await_is_forgotten() -> None:
    promise: Promise[int] = Promise()

    async def wait() -> None:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(promise.future, 0)

    asyncio.run(wait())
    assert not promise._callbacks  # pyright: ignore[reportPrivateUsage]
