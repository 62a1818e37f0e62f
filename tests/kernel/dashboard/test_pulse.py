"""The thread that looks: only while it is watched, at once when something happens, and until the mesh ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from meshbook.kernel.dashboard.facts import RankFacts
from meshbook.kernel.dashboard.pulse import BEAT, Pulse


class Source:
    """Facts that a test changes."""

    def __init__(self) -> None:
        self.axes = {"rank": 1}
        self.facts = [RankFacts(0, "idle")]
        self.finding = self.metric = ""
        self.is_over = False
        self.is_closed = False
        self.refreshed = 0
        self.failures = threading.Semaphore(0)
        self.error: Exception | None = None

    def refresh(self, now: float) -> None:
        self.refreshed += 1
        if self.error is not None:
            self.failures.release()
            raise self.error

    def close(self) -> None:
        self.is_closed = True


class Viewer:
    """Notes what it was shown."""

    def __init__(self) -> None:
        self.looks = threading.Semaphore(0)
        self.ended = threading.Event()
        self.states: list[str] = []

    def on_look(self, facts: Sequence[RankFacts], now: float) -> bool:
        self.states.append(facts[0].state)
        self.looks.release()
        return False

    def on_end(self, facts: Sequence[RankFacts], now: float) -> None:
        self.ended.set()


Made = tuple[Pulse, Source, Viewer]


@pytest.fixture
def make() -> Iterator[Callable[..., Made]]:
    pulses: list[Pulse] = []

    def create(**options: object) -> Made:
        source, viewer = Source(), Viewer()
        pulses.append(Pulse(source, viewer, **options))  # type: ignore[arg-type]
        pulses[-1].start()
        return pulses[-1], source, viewer

    yield create
    for pulse in pulses:
        pulse.close()


def test_nobody_watches_and_nothing_is_looked_at(make: Callable[..., Made]) -> None:
    pulse, source, viewer = make(hz=1000)
    assert not pulse.is_watched
    pulse.wake()
    pulse.wake()
    pulse.close()
    assert pulse.count == 0 and source.refreshed == 1  # for the last state
    assert viewer.ended.is_set() and source.is_closed


def test_it_looks_while_a_view_is_there(make: Callable[..., Made]) -> None:
    pulse, _, viewer = make(hz=200)
    pulse.seen("a view")
    for _ in range(5):
        assert viewer.looks.acquire(timeout=5)
    pulse.unseen("a view")
    assert not pulse.is_watched


def test_what_happens_is_seen_at_once(make: Callable[..., Made]) -> None:
    pulse, source, viewer = make(hz=0.01)
    pulse.seen("a view")
    assert viewer.looks.acquire(timeout=5)
    source.facts[0].state = "dead"
    pulse.wake()
    assert viewer.looks.acquire(timeout=5)
    assert viewer.states[-1] == "dead"


def test_a_look_that_fails_is_told_once_and_the_next_ones_are_seen(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_value))
    pulse, source, viewer = make(hz=1000)
    source.error = KeyError(3)
    pulse.seen("a view")
    for _ in range(3):
        assert source.failures.acquire(timeout=5)
    source.error = None
    assert viewer.looks.acquire(timeout=5)
    assert len(told) == 1 and isinstance(told[0], KeyError)


def test_a_view_that_gives_no_sign_of_life_is_gone(make: Callable[..., Made]) -> None:
    now = [0.0]
    pulse, _, _ = make(hz=1000, clock=lambda: now[0])
    pulse.seen("a view")
    assert pulse.is_watched
    now[0] = BEAT + 1
    assert not pulse.is_watched


def test_it_ends_with_its_source_also_while_nobody_watches(make: Callable[..., Made]) -> None:
    pulse, source, viewer = make()
    source.is_over = True
    pulse.wake()
    assert viewer.ended.wait(5)
    pulse.close()
    assert source.is_closed
