"""The dashboard as a widget: what it sends for what it sees, and what it does with a click."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from meshbook.kernel.dashboard.facts import Gpu, RankFacts
from meshbook.kernel.dashboard.frames import apply, pack
from meshbook.kernel.dashboard.sentence import Sentence
from meshbook.runtime.controller.meters import Meters
from meshbook.runtime.errors import MeshbookError
from meshbook.runtime.wire.messages import Metered
from meshbook.widgets.dashboard import KEY_FRAME, Dashboard
from meshbook.widgets.dashboard_panel import panel
from meshbook.widgets.dashboard_twin import GLYPHS, Twin, state_text
from meshbook.widgets.hands import Deed

AXES = {"dp": 2, "tp": 2}


class Source:
    """Four ranks that a test changes."""

    def __init__(self) -> None:
        self.axes = dict(AXES)
        self.facts = [RankFacts(rank, "busy", 0.0, "cell 7 line 2", run=9) for rank in range(4)]
        self.finding = self.late = self.metric = ""
        self.is_over = False

    def refresh(self, now: float) -> None: ...

    def close(self) -> None: ...


class Hands:
    """Notes what it is told to do; waits for `gate` first."""

    def __init__(self) -> None:
        self.done: list[tuple[str, list[int], list[int]]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def do(self, action: str, ranks: Sequence[int], runs: Sequence[int]) -> Deed:
        assert self.gate.wait(10)
        self.done.append((action, list(ranks), list(runs)))
        if self.error is not None:
            raise self.error
        return Deed(f"{action} done", detail="the stacks", next="more")


class Ears:
    """Stands for the front-end: keeps what the widget sends."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, Any], list[bytes]]] = []
        self.news = threading.Condition()

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        with self.news:
            self.heard.append((content, buffers))
            self.news.notify_all()

    def of(self, kind: str) -> list[tuple[dict[str, Any], list[bytes]]]:
        return [each for each in self.heard if each[0]["kind"] == kind]

    def wait(self, is_there: Callable[[], bool]) -> None:
        with self.news:
            assert self.news.wait_for(is_there, 10), self.heard


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def dashboard(source: Source, hands: Hands, ears: Ears) -> Iterator[Dashboard]:
    dashboard = Dashboard("m", AXES, source, Meters(4), hands, lambda rank: f"line of {rank}\n")
    dashboard.send = ears.send
    yield dashboard
    dashboard.retire()


def click(dashboard: Dashboard, action: str, ranks: list[int], at: float | None = None, **more: Any) -> None:
    when = time.time() if at is None else at
    dashboard.on_message({"kind": "act", "id": "c1", "action": action, "ranks": ranks, "at": when, **more}, [])


def test_the_first_frame_is_whole_and_later_ones_are_changes(dashboard: Dashboard, source: Source, ears: Ears) -> None:
    assert dashboard.on_look(source.facts, 1.0)
    source.facts[2].state = "dead"
    assert dashboard.on_look(source.facts, 1.2)
    (first, whole), (second, changes) = ears.of("frame")
    assert (first["m"], second["m"]) == ("full", "delta")
    assert apply(whole[0], changes[0]) == pack(source.facts)
    assert second["counts"] == {"busy": 3, "dead": 1} and second["lead"].startswith("rank 2 ") and second["runs"] == [9]


def test_what_has_not_changed_is_not_sent(dashboard: Dashboard, source: Source, ears: Ears) -> None:
    for facts in source.facts:
        facts.state = "idle"  # of busy ranks it is told for how long
    dashboard.on_look(source.facts, 1.0)
    assert not dashboard.on_look(source.facts, 1.2)
    assert len(ears.heard) == 1
    assert not dashboard.on_look(source.facts, 3.1)
    assert not dashboard.on_look(source.facts, 3.2)
    assert [content["kind"] for content, _ in ears.heard] == ["frame", "still"]


def test_a_view_that_comes_later_gets_a_whole_frame(dashboard: Dashboard, source: Source, ears: Ears) -> None:
    dashboard.on_look(source.facts, 1.0)
    dashboard.on_message({"kind": "hello", "view": "v2"}, [])
    assert dashboard.pulse.is_watched
    dashboard.on_look(source.facts, 1.1)
    for _ in range(KEY_FRAME):
        dashboard.on_look(source.facts, 1.2)
    assert [content["m"] for content, _ in ears.of("frame")] == ["full"] * 3
    dashboard.on_message({"kind": "bye", "view": "v2"}, [])
    assert not dashboard.pulse.is_watched


def test_the_panel_tells_of_the_selected_rank(dashboard: Dashboard, source: Source, ears: Ears) -> None:
    dashboard.on_message({"kind": "select", "ranks": [3, 99, "x"]}, [])
    dashboard.on_look(source.facts, 1.0)
    (shown, _) = ears.of("panel")[-1]
    assert (shown["title"], shown["sub"]) == ("rank 3", "dp=1, tp=1")
    assert dict(shown["rows"])["last line"] == "line of 3"
    dashboard.on_message({"kind": "select", "ranks": [0, 1]}, [])
    dashboard.on_look(source.facts, 1.1)
    assert ears.of("panel")[-1][0]["title"] == "2 ranks"


def test_curves_are_sent_at_a_calm_pace_and_at_once_for_another_metric(
    dashboard: Dashboard, source: Source, ears: Ears
) -> None:
    meters = dashboard._meters
    meters.take(0, Metered({"loss": ((0.0, 1.0, 0.0),), "acc": ((0.0, 0.5, 0.0),)}))
    dashboard.on_look(source.facts, 1.0)
    meters.take(1, Metered({"loss": ((0.0, 3.0, 0.0),)}))
    dashboard.on_look(source.facts, 1.3)
    assert len(ears.of("curves")) == 1
    dashboard.on_look(source.facts, 2.1)
    dashboard.on_message({"kind": "metric", "name": "acc"}, [])
    dashboard.on_message({"kind": "select", "ranks": [0]}, [])
    dashboard.on_look(source.facts, 2.2)
    sent = ears.of("curves")
    assert [content["name"] for content, _ in sent] == ["loss", "loss", "acc"]
    assert memoryview(sent[1][1][0]).cast("f").tolist() == [0.0, 1.0, 2.0, 3.0]
    assert sent[2][0]["ranks"] == [0] and memoryview(sent[2][1][1]).cast("f").tolist() == [0.0, 0.5]
    assert dashboard._source.metric == "acc"


def test_two_dashboards_of_a_mesh_draw_the_same_curves(
    dashboard: Dashboard, source: Source, hands: Hands, ears: Ears
) -> None:
    other, meters = Dashboard("m", AXES, source, dashboard._meters, hands), dashboard._meters
    other.send = ears.send
    try:
        for time_, value in ((1.0, 3.0), (3.0, 5.0)):
            meters.take(0, Metered({"loss": ((time_, value, 0.0),)}))
            dashboard.on_look(source.facts, time_)
            other.on_look(source.facts, time_)
    finally:
        other.retire()
    rows = [memoryview(data[0]).cast("f").tolist() for _, data in ears.of("curves")]
    assert rows == [[1.0, 3.0, 3.0, 3.0]] * 2 + [[1.0, 3.0, 3.0, 3.0, 3.0, 5.0, 5.0, 5.0]] * 2


def test_a_metric_whose_ranks_all_went_in_a_resize_is_drawn_empty(
    dashboard: Dashboard, source: Source, ears: Ears
) -> None:
    dashboard._meters.take(3, Metered({"loss": ((1.0, 1.0, 0.0),)}))
    dashboard.on_look(source.facts, 1.0)
    dashboard._meters.renumber({0: 0, 1: 1}, 2)
    source.axes, source.facts = {"dp": 1, "tp": 2}, source.facts[:2]
    dashboard.on_look(source.facts, 3.0)
    assert ears.of("curves")[-1][1] == [b""]


def test_a_click_is_answered_at_once_and_again_when_it_is_done(dashboard: Dashboard, hands: Hands, ears: Ears) -> None:
    hands.gate.clear()
    click(dashboard, "restart", [1], runs=[9])
    assert [content["done"] for content, _ in ears.of("ack")] == [False]
    hands.gate.set()
    ears.wait(lambda: len(ears.of("ack")) == 2)
    assert hands.done == [("restart", [1], [9])]
    last = ears.of("ack")[-1][0]
    assert (last["id"], last["ok"], last["text"], last["detail"], last["next"]) == (
        "c1",
        True,
        "restart done",
        "the stacks",
        "more",
    )


@pytest.mark.parametrize(("ranks", "late", "why"), [([1], 9.0, "9.0 s late"), ([], 0.0, "no rank is selected")])
def test_a_click_that_comes_late_or_means_nobody_does_nothing(
    dashboard: Dashboard, hands: Hands, ears: Ears, ranks: list[int], late: float, why: str
) -> None:
    click(dashboard, "interrupt", ranks, at=time.time() - late)
    (answer, _) = ears.of("ack")[0]
    assert not answer["ok"] and why in answer["text"] and hands.done == []


def test_what_goes_wrong_is_told_in_the_widget(dashboard: Dashboard, hands: Hands, ears: Ears) -> None:
    hands.error = MeshbookError("rank 1 did not come back")
    click(dashboard, "restart", [1])
    ears.wait(lambda: len(ears.of("ack")) == 2)
    assert ears.of("ack")[-1][0]["text"] == "rank 1 did not come back" and not ears.of("ack")[-1][0]["ok"]


def test_a_resized_mesh_is_laid_out_anew(dashboard: Dashboard, source: Source, ears: Ears) -> None:
    dashboard.on_look(source.facts, 1.0)
    dashboard.selected = [3]
    source.axes = {"dp": 3, "tp": 2}
    source.facts = [RankFacts(rank) for rank in range(6)]
    dashboard.on_look(source.facts, 1.1)
    assert (dashboard.axes, dashboard.sizes, dashboard.selected) == (["dp", "tp"], [3, 2], [])
    assert ears.of("frame")[-1][0]["m"] == "full"


def test_at_the_end_the_last_state_stays_in_every_place_it_was_shown(dashboard: Dashboard, source: Source) -> None:
    shown: list[tuple[dict[str, object], str | None, bool]] = []

    class Stage:
        def display(self, data: Any, metadata: Any = None, display_id: str | None = None, update: bool = False) -> None:
            shown.append((dict(data), display_id, update))

        def leave(self) -> None: ...

    dashboard.show(Stage())  # type: ignore[arg-type]
    dashboard.show(Stage())  # type: ignore[arg-type]
    dashboard.on_end(source.facts, 5.0)
    one, other = (display_id for _, display_id, _ in shown[:2])
    assert [(each[1], each[2]) for each in shown] == [(one, False), (other, False), (one, True), (other, True)]
    for data, *_ in shown[2:]:
        assert data.keys() == {"text/plain", "text/html"}
        assert "4 busy" in str(data["text/plain"]) and "its last state" in str(data["text/plain"])
    assert dashboard._repr_mimebundle_()[0] == shown[-1][0]


def test_a_page_that_is_loaded_after_the_end_still_sees_the_last_frame(
    dashboard: Dashboard, source: Source, ears: Ears
) -> None:
    dashboard.on_look(source.facts, 1.0)
    dashboard.on_end(source.facts, 5.0)
    ears.heard.clear()
    dashboard.on_message({"kind": "hello", "view": "v9"}, [])
    (frame, data), (end, _) = ears.heard
    assert (frame["m"], end["kind"], data) == ("full", "end", [pack(source.facts)])
    dashboard.on_message({"kind": "bye", "view": "v9"}, [])
    assert len(ears.heard) == 2


# The static twin and the panel.


def test_the_twin_says_the_same_as_text_and_as_html() -> None:
    facts = [RankFacts(0, "busy", 1.0, "cell 7 line 2"), RankFacts(1, "dead", 3.0, why="died of SIGKILL")]
    facts[0].cpu, facts[0].memory, facts[0].gpu = 0.99, 3 << 29, Gpu(0.87, 61 << 30, 80 << 30, 54)
    facts[0].loop, facts[0].done, facts[0].total, facts[0].rate = "epoch", 3, 10, 2.5
    said = Sentence("rank 1 died of SIGKILL 4 s ago", "", "bad")
    twin = Twin("mesh m", {"dp": 2}, facts, said, 7.0, ["loss at step 9: 0.5"])
    for text in (repr(twin), twin._repr_html_()):
        for part in ("rank 1 died", "cell 7 line 2", "99%", "1.5 GB", "87%", "54 °C", "epoch 3/10", "loss at step 9"):
            assert part in text, part
    assert repr(twin).splitlines()[3].startswith(f"{GLYPHS['dead']} rank 1")


def test_of_many_ranks_the_twin_lists_those_that_are_not_as_most() -> None:
    facts = [RankFacts(rank, "busy") for rank in range(1024)]
    facts[37].state = "idle"
    text = repr(Twin("mesh m", {"rank": 1024}, facts, Sentence("fine"), 1.0))
    assert "rank 37" in text and "and 1023 more ranks" in text and len(text.splitlines()) == 4
    facts[37].state = "busy"
    text = repr(Twin("mesh m", {"rank": 1024}, facts, Sentence("fine"), 1.0))
    assert text.splitlines()[2:] == ["1024 ranks: `%mesh status` lists all"]


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (RankFacts(0, "waiting", 0.0, waiting="all_reduce", waiting_since=8.0), "waiting in all_reduce for 42 s"),
        (RankFacts(0, "dead", 46.0, why="died of SIGKILL"), "dead, died of SIGKILL 4 s ago"),
        (RankFacts(0, "stopped", 40.0, why="stopped (SIGSTOP)"), "stopped (SIGSTOP) for 10 s"),
        (RankFacts(0, "idle", 40.0), "idle for 10 s"),
    ],
)
def test_a_state_in_words(facts: RankFacts, text: str) -> None:
    assert state_text(facts, 50.0) == text


def test_the_panel_of_several_ranks_sums_them_up() -> None:
    facts = [RankFacts(r, "busy", cpu=0.5 + r / 10, memory=(r + 1) << 30, place=f"cell {r}") for r in range(5)]
    shown = panel(facts, {"rank": 5}, 1.0)
    assert shown["title"] == "5 ranks" and shown["sub"] == "0-4"
    rows = dict(shown["rows"])
    assert rows["cpu"] == "50% to 90%, median 70%" and rows["at"] == "cell 0; cell 1; cell 2 and 2 more"
