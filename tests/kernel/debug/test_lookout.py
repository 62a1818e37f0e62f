"""Who sits at a prompt hears at once of ranks that fail or die."""

from __future__ import annotations

import signal
import threading

import pytest

from meshbook.kernel.debug.lookout import Lookout


class Looks:
    """Counts looks, and the threads they were made on."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self._come = threading.Semaphore(0)

    def __call__(self) -> None:
        self.threads.append(threading.current_thread())
        self._come.release()

    def come(self) -> bool:
        """Wait for the next."""
        return self._come.acquire(timeout=10)


def test_it_looks_again_and_again_on_a_thread_of_its_own() -> None:
    looks = Looks()
    with Lookout(looks):
        assert looks.come() and looks.come()
    assert threading.current_thread() not in looks.threads


def test_nobody_looks_any_more_after_the_end() -> None:
    looks = Looks()
    with pytest.raises(KeyboardInterrupt), Lookout(looks):
        assert looks.come()
        raise KeyboardInterrupt
    assert not any(thread.is_alive() for thread in looks.threads)


def test_ctrl_c_as_it_begins_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    lookout, start = Lookout(Looks()), threading.Thread.start

    def pressed(thread: threading.Thread) -> None:
        start(thread)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(threading.Thread, "start", pressed)
    with pytest.raises(KeyboardInterrupt), lookout:
        raise AssertionError("not reached")
    assert not lookout._thread.is_alive()
