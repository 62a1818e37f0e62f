"""Waiting awake: how long, how often, and for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from meshbook.runtime.future import Promise
from meshbook.runtime.system.cores import cores
from meshbook.runtime.wire.awake import MOST_PASSED_OVER, SECONDS, Awake, has_room
from meshbook.runtime.wire.reactor import Reactor


class Waiter:
    """Something to wait for, by a clock that goes on by a tenth of `SECONDS` with each look."""

    def __init__(self) -> None:
        self.now = 0.0
        self.comes_after = 0
        """So many looks find nothing."""
        self.looks: list[float | None] = []
        self.awake = Awake(lambda: self.now)

    def look(self, timeout: float | None) -> list[str]:
        self.looks.append(timeout)
        self.now += SECONDS / 10
        return ["it"] if timeout is None or len(self.looks) > self.comes_after else []

    def wait(self, comes_after: int, timeout: float | None = None) -> list[float | None]:
        """With which timeouts it was looked for."""
        self.looks, self.comes_after = [], comes_after
        assert self.awake.poll(self.look, timeout) == ["it"]
        return self.looks


def test_what_comes_soon_is_found_awake() -> None:
    assert Waiter().wait(comes_after=4) == [0] * 5


def test_what_does_not_is_slept_for() -> None:
    looks = Waiter().wait(comes_after=1000)
    assert looks[-1] is None and set(looks[:-1]) == {0} and len(looks) == 11


def test_a_short_wait_is_no_longer_for_it() -> None:
    assert Waiter().wait(comes_after=0, timeout=SECONDS / 2) == [SECONDS / 2]


def slept(waiter: Waiter, comes_after: int, waits: int) -> Iterator[bool]:
    return (waiter.wait(comes_after)[0] is None for _ in range(waits))


def test_what_is_in_vain_is_done_ever_more_rarely() -> None:
    awake_at = [number for number, is_asleep in enumerate(slept(Waiter(), 1000, 300)) if not is_asleep]
    gaps = [after - before for before, after in pairwise(awake_at)]
    assert gaps == [2, 4, 8, 16, 32, 64, 64, 64]
    assert max(gaps) == MOST_PASSED_OVER + 1


def test_until_it_helps_again() -> None:
    waiter = Waiter()
    assert any(slept(waiter, 1000, 100))
    assert not all(slept(waiter, 3, MOST_PASSED_OVER + 1)), "it was not tried again"
    assert not any(slept(waiter, 3, 20))


def test_each_rank_wants_a_core_and_so_does_the_controller() -> None:
    assert has_room(cores() - 1) and not has_room(cores())


@pytest.mark.parametrize("num_ranks", [0, 1, cores() - 1, cores(), 1000])
def test_a_thread_stays_awake_for_a_few_ranks_only(
    num_ranks: int, monkeypatch: pytest.MonkeyPatch, reactor: Reactor
) -> None:
    polls: list[float | None] = []

    def poll(awake: Awake, look: Callable[[float], list[tuple[int, int]]], timeout: float) -> list[tuple[int, int]]:
        polls.append(timeout)
        return look(timeout)

    monkeypatch.setattr(Awake, "poll", poll)
    with pytest.raises(TimeoutError):
        Promise[None](reactor, num_ranks).future.get(timeout=0.01)
    assert bool(polls) == (0 < num_ranks < cores())


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor()
    yield reactor
    reactor.close()
