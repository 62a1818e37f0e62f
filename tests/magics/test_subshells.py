"""The stop button for cells of subshells, with a stand-in for the kernel's loop."""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.kernel.stopping import beside
from meshbook.magics.subshells import SubshellStop

_LATER = 0.05  # seconds in which a cell that did not wait would have begun


class SubshellThread(threading.Thread):
    """It is known by its name, which is that of ipykernel's."""


@pytest.fixture
def callbacks() -> Any:
    """What the main thread is to do when it has time; between its cells it ignores Ctrl-C."""
    asked: SimpleQueue[Any] = SimpleQueue()
    loop = SimpleNamespace(add_callback=lambda *call: asked.put(call))
    stop = SubshellStop(SimpleNamespace(kernel=SimpleNamespace(io_loop=loop)))
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop.load()
    yield asked
    stop.unload()
    signal.signal(signal.SIGINT, former)


def _run_next(callbacks: SimpleQueue[Any]) -> None:
    call, *args = callbacks.get(timeout=5)
    call(*args)


def test_a_cell_begins_when_the_main_thread_hears_the_button_for_it(callbacks: SimpleQueue[Any]) -> None:
    has_begun, may_end, presses = threading.Event(), threading.Event(), list[int]()

    def press() -> None:
        presses.append(1)

    def cell() -> None:
        assert beside.join(press)
        has_begun.set()
        may_end.wait(5)
        beside.leave(press)

    thread = SubshellThread(target=cell)
    thread.start()
    assert not has_begun.wait(_LATER)
    _run_next(callbacks)
    assert has_begun.wait(5)
    signal.raise_signal(signal.SIGINT)
    may_end.set()
    thread.join(5)
    _run_next(callbacks)
    assert presses == [1] and signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_it_waits_for_no_cell_of_the_main_shell(callbacks: SimpleQueue[Any]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as ipykernel does for its time
    has_begun = threading.Event()
    press = list[int]().clear

    def cell() -> None:
        assert beside.join(press)
        has_begun.set()
        beside.leave(press)

    thread = SubshellThread(target=cell)
    thread.start()
    assert has_begun.wait(1.0)
    thread.join(5)
    for _ in range(2):
        _run_next(callbacks)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
