"""A conversation as the rank has it: one message a question, and only its own answers."""

from __future__ import annotations

from meshbook.kernel.debug.dialog import MAX_OUT, Dialog
from meshbook.kernel.debug.events import LEAVE, Event, Stop, Went


def dialog(told: list[Event]) -> Dialog:
    return Dialog(7, "live", told.append, lambda: 3)


def test_what_was_written_comes_with_the_question() -> None:
    told: list[Event] = []
    talk = dialog(told)
    talk.write("> here\n")
    talk.write("ipdb> ")
    talk.put(1, "p x")
    assert talk.readline() == "p x\n"
    assert told == [Stop(3, 7, 1, "live", "ipdb> ", "> here\n")]


def test_an_answer_to_another_question_is_no_answer() -> None:
    told: list[Event] = []
    talk = dialog(told)
    talk.put(9, "late")
    talk.put(1, "this")
    assert talk.ask("? ") == "this\n"


def test_leaving_ends_the_question() -> None:
    talk = dialog([])
    talk.put(1, LEAVE)
    assert talk.ask("? ") == "" and talk.has_left


def test_a_flood_is_cut_and_said() -> None:
    told: list[Event] = []
    talk = dialog(told)
    for _ in range(10):
        talk.write("x" * MAX_OUT)
    talk.went()
    (went,) = told
    assert isinstance(went, Went) and len(went.out) < MAX_OUT + 100 and "not shown" in went.out


def test_who_has_left_before_it_asks_is_not_asked() -> None:
    told: list[Event] = []
    talk = dialog(told)
    talk.is_over = lambda: True
    assert talk.ask("ipdb> ") == "" and talk.has_left and not told
    talk.leave()  # it came too late for that question, and is not taken for the next
    talk.is_over = lambda: False
    talk.put(2, "n")
    assert talk.ask("ipdb> ") == "n\n"
