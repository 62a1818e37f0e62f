"""The loop: who runs it, who is woken when, and what an interrupt or a failing callback does to it."""

from __future__ import annotations

import _thread
import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, NoReturn

import pytest

from meshbook.runtime.wire.reactor import Bell, Reactor

Until = Callable[..., Any]


@pytest.fixture(params=["best", "poll"])
def reactor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Generator[Reactor]:
    """A loop that waits by the best there is here, and one as on systems that have `poll` only."""
    if request.param == "poll":
        monkeypatch.delattr(select, "epoll", raising=False)
    reactor = Reactor()
    yield reactor
    reactor.close()


class Pipe:
    """A pipe that the loop watches: each byte is noted, with the thread that read it."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.read_end, self.write_end = os.pipe()
        self.heard: list[tuple[bytes, str]] = []
        self.answers: dict[bytes, threading.Event] = {}
        reactor.add(self.read_end, self.on_ready)

    def on_ready(self) -> None:
        byte = os.read(self.read_end, 1)
        self.heard.append((byte, threading.current_thread().name))
        if byte in self.answers:
            self.reactor.announce(self.answers[byte])

    def send(self, byte: bytes) -> None:
        os.write(self.write_end, byte)

    def expect(self, byte: bytes) -> threading.Event:
        return self.answers.setdefault(byte, threading.Event())

    def close(self) -> None:
        self.reactor.remove(self.read_end)
        os.close(self.read_end)
        os.close(self.write_end)


@pytest.fixture
def pipe(reactor: Reactor) -> Generator[Pipe]:
    pipe = Pipe(reactor)
    yield pipe
    pipe.close()


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_what_comes_while_nobody_waits_is_heard(pipe: Pipe, until: Until):
    pipe.send(b"a")
    until(lambda: pipe.heard)
    assert pipe.heard == [(b"a", "meshbook-io")]


def test_who_waits_runs_the_loop_itself(reactor: Reactor, pipe: Pipe, until: Until):
    done = pipe.expect(b"z")

    def send() -> None:
        until(lambda: reactor._leader == threading.main_thread().ident)
        for byte in b"abcz":
            pipe.send(bytes([byte]))

    sender = in_thread(send)
    assert reactor.wait(done, 10)
    sender.join()
    assert [byte for byte, _ in pipe.heard] == [b"a", b"b", b"c", b"z"]
    assert pipe.heard[-1][1] == threading.current_thread().name


def test_several_threads_wait_at_once_and_each_byte_is_heard_once(reactor: Reactor, pipe: Pipe):
    bytes_ = [bytes([i]) for i in range(200)]
    events = {byte: pipe.expect(byte) for byte in bytes_}
    ended: list[bool] = []

    def wait(mine: list[bytes]) -> None:
        for byte in mine:
            pipe.send(byte)
            ended.append(reactor.wait(events[byte], 10))

    threads = [in_thread(lambda mine=bytes_[i::4]: wait(mine)) for i in range(4)]
    for thread in threads:
        thread.join()
    assert ended == [True] * 200
    assert sorted(byte for byte, _ in pipe.heard) == sorted(bytes_)


def test_a_follower_takes_the_lead_when_the_leader_leaves(reactor: Reactor, pipe: Pipe, until: Until):
    first, second = pipe.expect(b"1"), pipe.expect(b"2")
    threads = [in_thread(lambda event=event: reactor.wait(event, 10)) for event in (first, second)]
    until(lambda: reactor._followers == 1)
    pipe.send(b"1")
    threads[0].join()
    pipe.send(b"2")
    threads[1].join()
    assert len(pipe.heard) == 2


def test_an_event_that_another_thread_announces_ends_the_wait(reactor: Reactor, until: Until):
    event = threading.Event()

    def announce() -> None:
        until(lambda: reactor._leader == threading.main_thread().ident)
        reactor.announce(event)

    thread = in_thread(announce)
    started = time.monotonic()
    assert reactor.wait(event, 20)
    assert time.monotonic() - started < 10
    thread.join()


def test_a_wait_may_end_without_its_event(reactor: Reactor):
    started = time.monotonic()
    assert not reactor.wait(threading.Event(), 0.03)
    assert 0.03 <= time.monotonic() - started < 5
    assert not reactor.wait(threading.Event(), 0)


def test_a_follower_waits_no_longer_than_it_said(reactor: Reactor, until: Until):
    event = threading.Event()
    leader = in_thread(lambda: reactor.wait(event, 10))
    until(lambda: reactor._leader == leader.ident)
    assert not reactor.wait(threading.Event(), 0.01)
    reactor.announce(event)
    leader.join()


def test_an_event_that_is_set_needs_no_loop(reactor: Reactor):
    event = threading.Event()
    event.set()
    reactor.close()
    assert reactor.wait(event)


def test_scheduled_calls_run_in_order_and_once(reactor: Reactor):
    ran: list[int] = []
    done = threading.Event()
    threads = [
        in_thread(lambda base=base: [reactor.schedule(lambda i=i: ran.append(i)) for i in range(base, base + 100)])
        for base in (0, 1000)
    ]
    for thread in threads:
        thread.join()
    reactor.schedule(lambda: reactor.announce(done))
    assert reactor.wait(done, 10)
    assert [i for i in ran if i < 1000] == list(range(100))
    assert [i for i in ran if i >= 1000] == list(range(1000, 1100))


def test_what_a_scheduled_call_schedules_runs_too(reactor: Reactor):
    done = threading.Event()
    reactor.schedule(lambda: reactor.schedule(lambda: reactor.announce(done)))
    assert reactor.wait(done, 10)


@pytest.mark.parametrize("leads", [True, False])
def test_a_callback_cannot_wait_for_another(reactor: Reactor, leads: bool):
    errors: list[str] = []
    done = threading.Event()

    def callback() -> None:
        try:
            reactor.wait(threading.Event())
        except RuntimeError as error:
            errors.append(f"{error} {threading.current_thread() is threading.main_thread()}")
        reactor.announce(done)

    if leads:
        timer = in_thread(lambda: (time.sleep(0), reactor.schedule(callback)))
        assert reactor.wait(done, 10)
        timer.join()
    else:
        reactor.schedule(callback)
        assert done.wait(10)
    assert errors[0].startswith("this would wait for an answer on the thread that receives it")


def test_a_callback_that_raises_is_reported_and_the_loop_goes_on(reactor: Reactor, monkeypatch: pytest.MonkeyPatch):
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    done = threading.Event()
    reactor.schedule(lambda: 1 / 0)
    reactor.schedule(lambda: reactor.announce(done))
    assert reactor.wait(done, 10)
    assert [report.exc_type for report in reported] == [ZeroDivisionError]
    again = threading.Event()
    reactor.schedule(again.set)
    assert again.wait(10)


@pytest.mark.parametrize("error", [KeyError("half done"), SystemExit(3)])
def test_what_is_performed_raises_where_it_is_waited_for(reactor: Reactor, error: BaseException):
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        reactor.perform(fail)
    assert caught.value is error
    ran: list[str] = []
    reactor.perform(lambda: ran.append("the next"))
    assert ran == ["the next"]


@pytest.mark.parametrize("way_out", [SystemExit, asyncio.CancelledError, GeneratorExit])
def test_a_callback_that_would_end_a_thread_does_not_end_the_loop(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], way_out: type[BaseException]
):
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)

    def leave() -> None:
        raise way_out

    reactor.schedule(leave)
    again = threading.Event()
    reactor.schedule(again.set)
    assert again.wait(10)
    assert [report.exc_type for report in reported] == ([way_out] if way_out is not SystemExit else [])
    assert ("SystemExit" in capsys.readouterr().err) is (way_out is SystemExit)


def when_main_leads(reactor: Reactor, until: Until, call: Callable[[], None]) -> threading.Thread:
    """Schedule `call` from a thread as soon as the main thread runs the loop."""

    def wait_and_schedule() -> None:
        until(lambda: reactor._leader == threading.main_thread().ident)
        reactor.schedule(call)

    return in_thread(wait_and_schedule)


def test_ctrl_c_comes_between_callbacks(reactor: Reactor, until: Until):
    story: list[str] = []

    def callback() -> None:
        story.append("begun")
        _thread.interrupt_main()
        time.sleep(0)
        story.append("ended")

    thread = when_main_leads(reactor, until, callback)
    with pytest.raises(KeyboardInterrupt):
        reactor.wait(threading.Event(), 20)
    thread.join()
    assert story == ["begun", "ended"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_reaches_a_follower(reactor: Reactor, until: Until):
    event = threading.Event()
    leader = in_thread(lambda: reactor.wait(event, 20))
    until(lambda: reactor._leader == leader.ident)

    def interrupt() -> None:
        until(lambda: reactor._followers)
        _thread.interrupt_main()

    thread = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        reactor.wait(threading.Event(), 20)
    thread.join()
    assert leader.is_alive()
    reactor.announce(event)
    leader.join()


def test_a_handler_of_the_user_decides_what_ctrl_c_means(reactor: Reactor, until: Until):
    heard: list[int] = []
    event = threading.Event()

    def handler(signum: int, frame: object) -> None:
        heard.append(signum)
        reactor.announce(event)

    former = signal.signal(signal.SIGINT, handler)
    try:
        thread = when_main_leads(reactor, until, _thread.interrupt_main)
        assert reactor.wait(event, 10)
        thread.join()
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, former)
    assert heard == [signal.SIGINT]


def test_what_another_handler_raises_comes_between_callbacks_too(reactor: Reactor, until: Until):
    """Such as that of a time-out by `signal.alarm`: in the middle of a message it would tear it."""
    story: list[str] = []

    def late(signum: int, frame: object) -> NoReturn:
        raise TimeoutError("too late")

    def callback() -> None:
        story.append("begun")
        signal.raise_signal(signal.SIGALRM)
        story.append("ended")

    former = signal.signal(signal.SIGALRM, late)
    try:
        thread = when_main_leads(reactor, until, callback)
        with pytest.raises(TimeoutError, match="too late"):
            reactor.wait(threading.Event(), 20)
        thread.join()
        assert story == ["begun", "ended"]
        assert signal.getsignal(signal.SIGALRM) is late
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGALRM, former)


def test_a_signal_that_interrupts_no_system_call_is_not_slept_through(reactor: Reactor, until: Until):
    """As one is that comes just before the main thread sleeps. Here another thread gets it, so that it always is."""
    event, done = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def send() -> None:
        until(lambda: reactor._leader == threading.main_thread().ident)
        os.kill(os.getpid(), signal.SIGUSR1)
        in_time.append(event.wait(5))
        reactor.announce(done)

    former = signal.signal(signal.SIGUSR1, lambda *_: event.set())
    try:
        with reactor.alert():
            sender = in_thread(send)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            assert reactor.wait(done, 20)
        sender.join()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        signal.signal(signal.SIGUSR1, former)
    assert in_time == [True]
    assert signal.set_wakeup_fd(-1) == -1


def test_closing_ends_the_thread_and_wakes_who_waits(until: Until):
    reactor = Reactor()
    errors: list[str] = []

    def wait() -> None:
        try:
            reactor.wait(threading.Event())
        except RuntimeError as error:
            errors.append(str(error))

    threads = [in_thread(wait) for _ in range(3)]
    until(lambda: reactor._followers == 2)
    reactor.close()
    reactor.close()
    for thread in threads:
        thread.join()
    assert errors == ["the loop is closed: nothing comes any more"] * 3
    reactor.schedule(lambda: None)  # a finalizer may come late


def test_who_rings_while_the_loop_is_closed_writes_into_no_other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a closed descriptor is the next file's: a thread that is about to ring keeps the bell open."""
    reactor = Reactor()
    about_to, is_closed = threading.Event(), threading.Event()
    ring = Bell.ring

    def late(bell: Bell) -> None:
        if threading.current_thread().name == "late":
            about_to.set()
            assert is_closed.wait(20)
        ring(bell)

    monkeypatch.setattr(Bell, "ring", late)
    thread = threading.Thread(target=reactor.wake, name="late")
    thread.start()
    assert about_to.wait(20)
    reactor.close()
    pipes = [os.pipe() for _ in range(4)]
    is_closed.set()
    thread.join()
    for read_end, write_end in pipes:
        os.close(write_end)
        assert os.read(read_end, 1) == b""
        os.close(read_end)


def test_a_descriptor_is_not_heard_of_after_its_removal(reactor: Reactor, until: Until):
    pipe = Pipe(reactor)
    reactor.remove(pipe.read_end)
    reactor.remove(pipe.read_end)
    reactor.watch_writes(pipe.read_end, True)
    pipe.send(b"a")
    other = Pipe(reactor)
    other.send(b"b")
    until(lambda: other.heard)
    assert pipe.heard == []
    pipe.close()
    other.close()


def test_writable_is_told_only_when_asked(reactor: Reactor, until: Until):
    calls: list[None] = []
    read_end, write_end = os.pipe()
    reactor.add(write_end, lambda: (calls.append(None), reactor.watch_writes(write_end, False)))
    reactor.watch_writes(write_end, True)
    until(lambda: calls)
    heard = threading.Event()
    reactor.schedule(lambda: reactor.schedule(heard.set))
    assert heard.wait(10)
    assert len(calls) == 1
    reactor.remove(write_end)
    os.close(read_end)
    os.close(write_end)


def test_what_is_asked_for_later_runs_on_the_loop_in_the_order_of_its_time(reactor: Reactor):
    done, ran = threading.Event(), list[str]()

    def begin() -> None:
        reactor.later(0.03, lambda: (ran.append("last"), reactor.announce(done)))
        reactor.later(0.01, lambda: ran.append(threading.current_thread().name))
        reactor.later(0.0, lambda: ran.append("first"))

    started = time.monotonic()
    reactor.schedule(begin)
    assert done.wait(10)  # not `reactor.wait`: the background thread runs the loop
    assert time.monotonic() - started >= 0.03
    assert ran == ["first", "meshbook-io", "last"]


def test_what_is_asked_for_later_comes_while_a_thread_waits(reactor: Reactor):
    done = threading.Event()
    reactor.schedule(lambda: reactor.later(0.01, lambda: reactor.announce(done)))
    assert reactor.wait(done, 10)
