from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.outcome import Display
from meshbook.kernel.output.display_order import DisplayOrder
from meshbook.runtime.wire.tape import Event, Shown, Text


def text(words: str) -> Text:
    return Text(1, "stdout", words)


def display(number: int) -> Display:
    return Display(1, number, {"text/plain": f"display {number}"})


def test_text_passes_at_once() -> None:
    rank = DisplayOrder()
    assert rank.on_event(text("a")) == [text("a")]
    assert rank.on_event(text("b")) == [text("b")]


def test_text_behind_a_mark_waits_for_its_display() -> None:
    rank = DisplayOrder()
    assert rank.on_event(Shown(1, 1)) == []
    assert rank.on_event(text("after")) == []
    assert rank.on_display(display(1)) == [display(1), text("after")]
    assert rank.on_event(text("later")) == [text("later")]


def test_a_display_that_is_early_waits_for_its_mark() -> None:
    rank = DisplayOrder()
    assert rank.on_display(display(1)) == []
    assert rank.on_event(text("before")) == [text("before")]
    assert rank.on_event(Shown(1, 1)) == [display(1)]


def test_at_the_end_of_a_rank_all_that_is_held_is_told() -> None:
    rank = DisplayOrder()
    rank.on_display(display(2))
    rank.on_event(Shown(1, 1))
    rank.on_event(text("after"))
    assert rank.rest() == [text("after"), display(2)]
    assert rank.rest() == []


@given(st.lists(st.sampled_from(["text", "show"]), max_size=30), st.randoms(use_true_random=False))
def test_however_the_two_lanes_interleave_the_order_is_that_of_the_rank(kinds: list[str], random: object) -> None:
    said = [text(f"{place}") if kind == "text" else display(place) for place, kind in enumerate(kinds)]
    pipe: list[Event] = [item if isinstance(item, Text) else Shown(1, item.number) for item in said]
    lane = [item for item in said if isinstance(item, Display)]
    rank = DisplayOrder()
    told: list[Text | Display] = []
    while pipe or lane:
        takes_pipe = bool(pipe) and (not lane or random.random() < 0.5)  # pyright: ignore[reportAttributeAccessIssue]
        told += rank.on_event(pipe.pop(0)) if takes_pipe else rank.on_display(lane.pop(0))
    assert told == said
    assert rank.rest() == []
