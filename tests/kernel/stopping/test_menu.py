"""The menu about ranks that do not react: what is chosen, and questions that are taken back. No processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from meshbook.kernel.stopping.menu import Choice, MenuError, What, Withdrawable, choice_of, text_of
from meshbook.runtime.future import Promise


class Typist:
    """Somebody who does something when asked, rather than type."""

    can_ask = True
    is_beside = False

    def __init__(self, do: Callable[[], Any]) -> None:
        self._do = do

    def ask(self, prompt: str, is_secret: bool = False) -> str:
        return self._do()

    def show(self, text: str) -> None: ...


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        ("", Choice(What.WAIT)),
        (" w ", Choice(What.WHERE)),
        ("a", Choice(What.ATTACH)),
        ("a dp=1", Choice(What.ATTACH, "dp=1")),
        ("k", Choice(What.KILL)),
        ("g", Choice(What.LEAVE)),
    ],
)
def test_choices(line: str, choice: Choice) -> None:
    assert choice_of(line) == choice


@pytest.mark.parametrize("line", ["x", "b", "k 3", "attach 3", "wait"])
def test_no_choices(line: str) -> None:
    with pytest.raises(MenuError, match="is none of w, a"):
        choice_of(line)


def test_it_names_ranks_and_their_places_once() -> None:
    assert text_of({3: "line 2", 1: "line 2", 2: ""}).startswith("ranks 1-3 do not react yet (line 2)\n")


def test_who_has_heard_and_works_on_is_told_apart() -> None:
    rows = text_of({1: "line 2", 2: "line 9", 3: "line 9"}, heard=[2, 3]).splitlines()
    assert rows[:2] == ["rank 1 does not react yet (line 2)", "ranks 2-3 were interrupted, and work on (line 9)"]
    assert text_of({1: "line 2"}, heard=[1]).startswith("rank 1 was interrupted, and works on (line 2)\n")


def test_an_answer() -> None:
    assert Withdrawable(Typist(lambda: "k"), Promise[Any]().future).ask("") == "k"


def test_a_question_is_taken_back_when_all_is_over() -> None:
    promise: Promise[Any] = Promise()
    others = threading.Thread(target=promise.resolve, args=(None,))

    def wait() -> str:
        others.start()
        threading.Event().wait(30)
        return "too late"

    former = signal.getsignal(signal.SIGINT)
    question = Withdrawable(Typist(wait), promise.future)
    assert question.ask("") is None and question.has_left_box
    others.join()
    assert signal.getsignal(signal.SIGINT) is former


def test_what_is_over_is_not_asked() -> None:
    promise: Promise[Any] = Promise()
    promise.resolve(None)
    question = Withdrawable(Typist(lambda: "k"), promise.future)
    assert question.ask("") is None and not question.has_left_box


def test_the_stop_button_is_the_users() -> None:
    def press() -> str:
        signal.raise_signal(signal.SIGINT)
        return "not heard"

    with pytest.raises(KeyboardInterrupt):
        Withdrawable(Typist(press), Promise[Any]().future).ask("")


def test_stop_that_comes_with_an_answer_does_not_leave_the_question_open(monkeypatch: pytest.MonkeyPatch) -> None:
    promise: Promise[Any] = Promise()
    question = Withdrawable(Typist(lambda: "k"), promise.future)
    entries = iter([False, True])

    class Interrupted:
        """A lock that stop is pressed at when it is taken for the second time."""

        def __enter__(self) -> None:
            if next(entries, False):
                raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(question, "_lock", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        question.ask("")
    heard: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        others = threading.Thread(target=promise.resolve, args=(None,))
        others.start()
        others.join()
    finally:
        signal.signal(signal.SIGINT, former)
    assert heard == []
