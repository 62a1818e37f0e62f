"""What actors print in a cell, folded and in order, and how meshes of actors look."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.runtime.actor import Actor, endpoint
from meshbook.runtime.controller.audiences import ECHO, MOST_SPANS, Audiences
from meshbook.runtime.controller.births import Made
from meshbook.runtime.mesh import ActorMesh, ProcMesh
from meshbook.runtime.node import shape_of
from meshbook.runtime.shape import Shape
from meshbook.runtime.wire.messages import View
from meshbook.runtime.wire.tape import Shown, Text
from meshbook.widgets.actors import ActorList
from meshbook.widgets.hearing import Hearing
from meshbook.widgets.live import BUDGET, WINDOW


class Page:
    """A stage that keeps what it is given."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.is_left = False

    def write(self, text: str, stream: str = "stdout") -> None:
        self.said.append((stream, text))

    def leave(self) -> None:
        self.is_left = True

    def display(self, *_: object, **__: object) -> None: ...

    def clear(self, wait: bool = False) -> None: ...

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.said)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def roster(num_ranks: int = 2, name: str = "m", **more: Any) -> Any:
    states = dict.fromkeys(range(num_ranks))
    facts = {"states": states, "name": name, "mesh": id(states), "is_stopped": False, "dead": list}
    return SimpleNamespace(**(facts | more))


class Room:
    """A hearing with its stage and clock; its timer never rings, the test calls what it would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, is_named: bool = False) -> None:
        self.page, self.clock = Page(), Clock()
        self.hearing = Hearing(self.page, lambda roster: roster.name if is_named else "", self.clock)  # type: ignore[arg-type]
        self.rings = 0
        monkeypatch.setattr(self.hearing, "_look_again", self._ask_to_ring)

    def _ask_to_ring(self) -> None:
        self.rings += 1

    def say(self, mesh: Any, rank: int, text: str, stream: Any = "stdout") -> None:
        self.hearing.on_said(mesh, rank, Text(1, stream, text))

    def ring(self) -> None:
        self.clock.now += 2 * WINDOW
        self.hearing._on_time()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch, is_named=True)


def test_what_all_ranks_say_is_told_at_once(room: Room) -> None:
    m = roster()
    room.say(m, 0, "hi\n")
    assert room.page.text == ""
    room.say(m, 1, "hi\n")
    assert room.page.text == "0-1 │ hi\n"


def test_numbers_of_many_actors_are_one_line(room: Room) -> None:
    m = roster(states=dict.fromkeys(range(24)))
    for rank in range(24):
        room.say(m, rank, f"loss {rank}\n")
    room.ring()
    assert room.page.text.startswith("0-23 │ loss 0…23\n   … ┆ a…b: ")


def test_a_line_waits_for_its_equals_no_longer_than_the_window(room: Room) -> None:
    room.say(roster(), 1, "alone\n")
    assert room.rings
    room.ring()
    assert room.page.text == "  1 │ alone\n"


def test_before_an_answer_all_is_told_also_half_a_line(room: Room) -> None:
    m = roster()
    room.say(m, 0, "whole\nhalf")
    room.hearing.settle()
    assert room.page.text == "  0 │ whole\n  0 │ half\n"
    room.hearing.settle()
    assert room.page.text.count("half") == 1


def test_half_a_line_of_a_running_call_waits_for_its_end(room: Room) -> None:
    m = roster()
    room.say(m, 0, "50 %")
    room.ring()
    assert room.page.text == ""
    room.say(m, 0, "\r100 %\n")
    room.ring()
    assert room.page.text == "  0 │ 100 %\n"


def test_after_the_end_half_a_line_is_told_too(room: Room) -> None:
    m = roster()
    room.hearing.end()
    assert room.page.is_left
    room.say(m, 0, "late")
    room.ring()
    assert room.page.text == "  0 │ late\n"


def test_of_a_flood_after_the_end_it_is_told_that_there_is_more(room: Room) -> None:
    m = roster()
    room.hearing.end()
    for number in range(4_000):
        room.say(m, 0, f"line {number}\n")
        room.ring()
    told = room.page.text.splitlines()
    assert told[:-1] == [f"  0 │ line {number}" for number in range(len(told) - 1)]
    assert told[-1] == "  … ┆ more is not shown here: `%mesh logs` has all"


def test_few_ranks_of_two_meshes_speak_in_their_order_and_are_named(named: Room) -> None:
    ping, pong = roster(1, "ping"), roster(1, "pong")
    for text in ("one\n", "two\n"):
        named.say(ping, 0, text)
        named.say(pong, 0, text)
    named.hearing.settle()
    assert named.page.text.splitlines() == [f"{who} 0 │ {text}" for text in ("one", "two") for who in ("ping", "pong")]


def test_many_ranks_of_two_meshes_are_folded(named: Room) -> None:
    meshes = roster(64, "a"), roster(64, "b")
    for rank in range(64):
        for mesh in meshes:
            named.say(mesh, rank, "same\n")
    named.hearing.settle()
    assert named.page.text == "a 0-63 b 0-63 │ same\n"


def test_streams_stay_apart(room: Room) -> None:
    m = roster(1)
    room.say(m, 0, "out\n")
    room.say(m, 0, "err\n", "stderr")
    room.say(m, 0, "out\n")
    assert room.page.said == [("stdout", "  0 │ out\n"), ("stderr", "  0 │ err\n"), ("stdout", "  0 │ out\n")]


def test_too_much_is_cut_and_its_end_is_told_at_the_end(room: Room) -> None:
    m = roster(1)
    for number in range(BUDGET // 4):
        room.say(m, 0, f"line {number}\n")
    room.hearing.settle()
    room.hearing.end()
    assert "more lines" in room.page.text and room.page.text.endswith(f"line {BUDGET // 4 - 1}\n")
    assert len(room.page.text) < 3 * BUDGET
    room.hearing.end()
    assert room.page.text.count("more lines") == 1


def test_marks_of_displays_say_nothing(room: Room) -> None:
    room.hearing.on_said(roster(), 0, Shown(1, 2))
    assert not room.rings


def test_listeners_are_found_by_call_however_calls_interleave() -> None:
    audiences = Audiences()
    one, two = Any, Mapping
    for run, listener in ((1, one), (2, one), (5, two), (4, one), (7, None), (6, two), (8, one)):
        audiences.note(run, listener)  # type: ignore[arg-type]
    assert [audiences.of(run) for run in range(9)] == [ECHO, one, one, one, one, two, two, ECHO, one]


def test_a_call_noted_late_does_not_take_what_another_has() -> None:
    audiences = Audiences()
    audiences.note(11, "b")  # type: ignore[arg-type]
    audiences.note(10, "a")  # type: ignore[arg-type]
    assert [audiences.of(run) for run in (10, 11, 12)] == ["a", "b", "b"]


def test_old_listeners_are_forgotten() -> None:
    audiences = Audiences()
    for run in range(1, MOST_SPANS + 10):
        audiences.note(run, str(run))  # type: ignore[arg-type]
    assert audiences.of(1) is ECHO
    assert audiences.of(MOST_SPANS + 9) == str(MOST_SPANS + 9)


class Counter(Actor):
    @endpoint
    def add(self, n: int, times: int = 1) -> int:
        """Add to it.

        More words.
        """
        return n * times

    @endpoint(explicit_response_port=True)
    def later(self, port: Any, what: str) -> None: ...


def actors(dead: tuple[int, ...] = (), is_stopped: bool = False, failed: tuple[int, ...] = ()) -> ActorMesh[Any]:
    facts = {"mesh": 1, "is_stopped": is_stopped, "axes": {"dp": 2, "tp": 2}}
    fleet: Any = SimpleNamespace(**facts, dead=lambda: list(dead), failed=lambda actor: failed)
    return ActorMesh(fleet, Shape.row_major({"dp": 2, "tp": 2}), 7, "c<0>", Counter)


def pretty(thing: Any) -> str:
    pieces: list[str] = []
    thing._repr_pretty_(SimpleNamespace(text=pieces.append), False)
    return "".join(pieces)


def test_an_actor_mesh_shows_name_class_axes_state_and_endpoints() -> None:
    assert pretty(actors()).splitlines() == [
        "ActorMesh c<0> of Counter · dp=2 × tp=2 · 4 ranks · alive",
        "  add(n: int, times: int = 1) -> int  Add to it.",
        "  later(what: str) -> None",
    ]
    html = actors()._repr_html_()
    assert "c&lt;0&gt;" in html and html.count("<li>") == 2
    assert repr(actors().add) == "<Endpoint c<0>.add(n: int, times: int = 1) -> int>"


def test_a_mesh_says_who_is_gone() -> None:
    assert "rank 3 dead" in pretty(actors(dead=(3,)))
    assert "alive" in pretty(actors(dead=(3,)).slice(dp=0))
    assert "ranks 0-2 failed, rank 3 dead" in pretty(actors(dead=(3,), failed=(0, 1, 2, 3)))
    assert "stopped" in pretty(actors(is_stopped=True))
    procs = ProcMesh(actors(dead=(1, 2))._fleet, Shape.row_major({"dp": 4}))
    assert repr(procs) == "<ProcMesh {dp=4}, ranks 1-2 dead>"
    assert "dp=4 · 4 ranks · ranks 1-2 dead" in procs._repr_html_()


def test_the_list_escapes_names_and_counts_who_is_left() -> None:
    view = View(("dp",), 0, (2,), (1,))
    made = {
        1: Made("kernel", "KernelActor", (0, 0, 0), view, (0, 1)),
        2: Made("<b>", "f.<locals>.Counter", (0, 0, 0), view, (0, 1), {1}),
    }
    listing = ActorList([roster(births=SimpleNamespace(made=made)), roster(made=made, is_stopped=True)])
    [row] = listing.data()
    assert row["class"] == "Counter" and row["failed"] == [1] and row["axes"] == dict(shape_of(view).extent)
    assert "✗ failed 1, others alive" in repr(listing)
    made[2].failed.add(5)
    [row] = ActorList([roster(births=SimpleNamespace(made=made))]).data()
    assert (row["failed"], row["dropped"]) == ([1], [5])
    assert "✗ failed 1, dropped 5, others alive" in repr(ActorList([roster(births=SimpleNamespace(made=made))]))
    assert "&lt;b&gt;" in listing._repr_html_() and '<tr class="mb-bad">' in listing._repr_html_()


def test_an_empty_list_says_how_to_fill_it() -> None:
    assert "m.spawn" in repr(ActorList([]))
    assert "m.spawn" in ActorList([])._repr_html_()
