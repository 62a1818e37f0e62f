"""What ranks report: collected without waiting, sent calmly, kept within bounds."""

from __future__ import annotations

import itertools
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshbook
from meshbook.runtime.controller.meters import FEWEST, Loop, Mark, Meters, Series
from meshbook.runtime.ranks.meter import MOST, Meter
from meshbook.runtime.ranks.place import Place, enter
from meshbook.runtime.wire.messages import BarState, Metered, Packet, decoder
from meshbook.runtime.wire.unicode import packed


class Ear:
    """Takes what a meter sends, on its thread."""

    def __init__(self) -> None:
        self.heard: list[Metered] = []
        self.news = threading.Event()

    def __call__(self, message: Metered) -> None:
        self.heard.append(message)
        self.news.set()


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def meter(ear: Ear) -> Iterator[Meter]:
    meter = Meter(ear, num_ranks=1)
    yield meter
    meter.close()
    if meter._thread is not None:
        meter._thread.join(5)


def test_a_report_is_sent_by_itself(meter: Meter, ear: Ear) -> None:
    meter.log(3, {"loss": 0.5, "acc": 0.25})
    assert ear.news.wait(5)
    points = ear.heard[0].points
    assert {name: each[0][:2] for name, each in points.items()} == {"loss": (3.0, 0.5), "acc": (3.0, 0.25)}
    assert abs(points["loss"][0][2] - time.time()) < 5


def test_reports_without_a_step_are_counted_by_name(meter: Meter, ear: Ear) -> None:
    for value in (5.0, 6.0):
        meter.log(None, {"a": value})
    meter.log(None, {"b": 7.0})
    meter.close()
    steps = [(name, step) for message in ear.heard for name, points in message.points.items() for step, *_ in points]
    assert sorted(steps) == [("a", 0.0), ("a", 1.0), ("b", 0.0)]


def test_a_flood_is_thinned_and_its_last_point_arrives(meter: Meter, ear: Ear) -> None:
    with meter._flushing:  # nothing is sent meanwhile
        for step in range(10_000):
            meter.log(step, {"loss": float(step)})
        assert len(meter._points["loss"]) <= MOST
    meter.close()
    steps = [step for message in ear.heard for step, *_ in message.points.get("loss", ())]
    assert steps[-1] == 9_999 and steps == sorted(steps) and len(steps) < 3 * MOST


def test_a_forked_child_needs_no_lock_of_the_thread_that_is_gone(meter: Meter, ear: Ear) -> None:
    with meter._end._cond:  # pyright: ignore[reportAttributeAccessIssue] - its thread does for a moment at each pause
        child = threading.Thread(target=meter.let_go)
        child.start()
        child.join(5)
        assert not child.is_alive()
    meter.log(1, {"loss": 0.5})
    assert meter._thread is None and not ear.heard


def test_a_loop_is_told_as_long_as_it_goes_on(meter: Meter, ear: Ear) -> None:
    place = Place(0, 1, 0, {"rank": 1}, "cpu", report=ear, meter=meter)
    told: list[object] = []

    def work() -> None:
        enter(place, whole_process=False)
        items = meshbook.progress("abc", desc="letters")
        assert len(items) == 3
        told.extend(items)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(5)
    meter.close()
    bars = [bar for message in ear.heard for bar in message.bars]
    assert told == list("abc")
    assert (bars[-1].desc, bars[-1].done, bars[-1].total, bars[-1].is_over) == ("letters", 3, 3, True)


def test_after_its_end_a_meter_is_silent(meter: Meter, ear: Ear) -> None:
    meter.close()
    meter.log(1, {"loss": 1.0})
    assert ear.heard == []


def test_a_forked_child_reports_nothing(meter: Meter, ear: Ear) -> None:
    meter.log(1, {"loss": 1.0})
    assert ear.news.wait(5)
    pid = os.fork()
    if pid == 0:
        meter.log(2, {"loss": 2.0})
        os._exit(0 if meter._end.is_set() else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_outside_of_a_mesh_reports_are_quiet_and_still_checked() -> None:
    meshbook.log(step=1, loss=0.5)
    assert list(meshbook.progress(iter([1, 2]))) == [1, 2]
    with pytest.raises(TypeError, match="pass total="):
        len(meshbook.progress(iter([1])))
    with pytest.raises(ValueError):
        meshbook.log(loss="much")


def test_a_report_costs_microseconds(meter: Meter) -> None:
    started = time.perf_counter()
    for step in range(20_000):
        meter.log(step, {"loss": 0.5})
    assert (time.perf_counter() - started) / 20_000 < 100e-6  # 2 us on a quiet machine


def test_the_message_survives_the_wire() -> None:
    message = Metered({"loss": ((1.0, float("inf"), 2.0),)}, (BarState(1, "epoch", 3, -1, 0.5),))
    assert decoder.decode(packed(Packet(message))).message == message


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e9, 1e9), st.just(0.0)), min_size=1, max_size=300))
def test_a_series_keeps_its_last_point_within_its_bound(points: list[tuple[float, float, float]]) -> None:
    series = Series(most=16)
    series.extend(points)
    assert len(series.steps) <= 16
    assert series.last == points[-1]
    assert set(series.points()) <= set(points)


def test_the_more_ranks_the_shorter_each_history() -> None:
    meters = Meters(num_ranks=100_000)
    meters.take(0, Metered({"loss": tuple((float(step), 0.0, 0.0) for step in range(1000))}))
    assert len(meters.history()["loss"][0]) <= FEWEST


def test_each_reader_gets_all_at_first_and_then_only_what_is_new() -> None:
    meters, early, late = Meters(num_ranks=2), dict[Series, Mark](), dict[Series, Mark]()
    meters.take(0, Metered({"loss": ((0.0, 1.0, 9.0),)}))
    assert meters.fresh(early) == [("loss", 0, [(0.0, 1.0, 9.0)])]
    assert meters.fresh(early) == []
    meters.take(1, Metered({"loss": ((1.0, 2.0, 9.0),)}))
    assert meters.fresh(early) == [("loss", 1, [(1.0, 2.0, 9.0)])]
    assert meters.fresh(late) == [("loss", 0, [(0.0, 1.0, 9.0)]), ("loss", 1, [(1.0, 2.0, 9.0)])]


def test_nothing_is_kept_for_a_reader_that_reads_no_more() -> None:
    meters, marks = Meters(num_ranks=1), dict[Series, Mark]()
    report = [Metered({"loss": ((float(step), 0.5, 9.0),)}) for step in range(1000)]

    def grown(times: int) -> int:
        tracemalloc.start()
        try:
            for message in report * times:
                meters.take(0, message)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    meters.fresh(marks)
    assert grown(20) < 20_000 * 3 * 8 * 1.3  # three numbers a point, and the spare room of arrays


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 11))
def test_what_is_left_out_of_a_series_moves_no_mark(lengths: list[int], read_after: int) -> None:
    series, numbers, mark, seen = Series(most=16), itertools.count(), (0, 0), -1
    for turn, length in enumerate(lengths):
        series.extend([(float(next(numbers)), 0.0, 0.0) for _ in range(length)])
        if turn == read_after:
            mark, seen = series.mark, int(series.last[0])
    assert series.since(mark) == [point for point in series.points() if point[0] > seen]


def test_the_speed_of_a_loop_is_that_of_late() -> None:
    loop = Loop(BarState(1, "", 0, 100, 0.0))
    for seconds, done in [(0.5, 5), (1.0, 10), (2.0, 40), (2.5, 41)]:
        loop.take(BarState(1, "", done, 100, seconds))
    assert loop.rate == pytest.approx(30.0)
    assert loop.state.done == 41


def test_the_outermost_loop_is_the_one_to_show() -> None:
    meters = Meters(num_ranks=1)
    meters.take(0, Metered({}, (BarState(1, "epochs", 1, 9, 1.0), BarState(2, "batches", 5, 7, 0.5))))
    assert meters.loop(0) is not None and meters.loop(0).state.desc == "epochs"  # type: ignore[union-attr]
    meters.forget_loops(0)
    assert meters.loop(0) is None


def test_a_resize_renumbers_what_ranks_reported() -> None:
    meters = Meters(num_ranks=3)
    for rank in range(3):
        meters.take(rank, Metered({"loss": ((0.0, float(rank), 0.0),)}))
    meters.renumber({2: 0, 0: 1}, 2)
    assert {rank: point[1] for rank, point in meters.last("loss").items()} == {0: 2.0, 1: 0.0}
