"""Who sits at a prompt hears at once of ranks that fail or die."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

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


@pytest.fixture
def roster() -> Any:
    return cast(Any, SimpleNamespace(on_change=[]))


def test_it_looks_at_first_and_after_each_change_on_a_thread_of_its_own(roster: Any) -> None:
    looks = Looks()
    with Lookout(roster, looks):
        assert looks.come(), "who has died before"
        [changed] = roster.on_change
        changed(3)
        assert looks.come()
    assert threading.current_thread() not in looks.threads


def test_nobody_looks_any_more_after_the_end(roster: Any) -> None:
    looks = Looks()
    with pytest.raises(KeyboardInterrupt), Lookout(roster, looks):
        assert looks.come()
        [changed] = roster.on_change
        raise KeyboardInterrupt
    changed(1)
    assert roster.on_change == []
    assert not any(thread.is_alive() for thread in looks.threads)


def test_changes_of_one_moment_are_one_look(roster: Any) -> None:
    looks = Looks()
    with Lookout(roster, looks):
        assert looks.come()
        for rank in range(8):
            roster.on_change[0](rank)
        assert looks.come()
    assert len(looks.threads) == 2


class EndsThen(threading.Event):
    """The block ends right after its watcher has seen that it goes on."""

    def __init__(self, news: threading.Event) -> None:
        super().__init__()
        self._its_news = news

    def wait(self, timeout: float | None = None) -> bool:
        is_over = super().wait(timeout)
        self.set()
        self._its_news.set()
        return is_over


def test_an_end_that_comes_between_two_glances_is_heard(roster: Any) -> None:
    watcher = Lookout(roster, Looks())
    watcher._over = EndsThen(watcher._news)
    with watcher:
        watcher._thread.join(10)
        assert not watcher._thread.is_alive()
