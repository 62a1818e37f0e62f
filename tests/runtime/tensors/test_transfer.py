"""What has come to a rank and was not taken yet."""

from __future__ import annotations

import threading
from typing import Any

from meshbook.runtime.tensors.program import Poison
from meshbook.runtime.tensors.transfer import Arrivals


def test_each_is_taken_once_and_the_first_that_came_counts() -> None:
    arrivals = Arrivals()
    arrivals.put(1, "shard")
    arrivals.put(1, "the rank has died")
    assert arrivals.take(1) == "shard"
    arrivals.put(1, "the rank has died")
    assert arrivals._values == {}  # pyright: ignore[reportPrivateUsage]


def test_who_comes_first_waits() -> None:
    arrivals, taken = Arrivals(), list[Any]()
    taker = threading.Thread(target=lambda: taken.append(arrivals.take(2)))
    taker.start()
    arrivals.put(3, "later")
    arrivals.put(2, "shard")
    taker.join()
    assert (taken, arrivals.take(3)) == (["shard"], "later")


def test_what_is_left_out_is_not_kept_whenever_it_comes() -> None:
    arrivals = Arrivals()
    arrivals.put(1, "never taken: who would have died")
    arrivals.put(2, "left out")
    arrivals.leave(2)
    arrivals.leave(3)
    arrivals.put(3, "left out before it came")
    assert arrivals._values == {}  # pyright: ignore[reportPrivateUsage]
    arrivals.put(4, "shard")
    assert arrivals.take(4) == "shard"


def test_at_the_end_nobody_waits_any_more() -> None:
    arrivals, taken = Arrivals(), list[Any]()
    taker = threading.Thread(target=lambda: taken.append(arrivals.take(1)))
    taker.start()
    arrivals.end(end := Poison(0, 0, "stopped", ""))
    taker.join()
    assert taken == [end]
