"""What the user is asked about ranks that do not react to the stop button, where there is somebody to ask."""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Generator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.future import Future
from ...runtime.ranges import named
from ..debug.asking import Asker
from ..debug.ladder import Rung, enter
from ..debug.sitting import selecting_in, serve
from ..waiting.waited import Tell
from .heard import listen, reactions

if TYPE_CHECKING:
    from ..mesh import Mesh
    from ..run import Run

PROMPT = "stop> "

OVER = "(the question is over; where its box stays, as in JupyterLab, press Enter there, or stop, before the next cell)"


class What(Enum):
    """What can be done about them, by the letter that chooses it."""

    WAIT = ""
    WHERE = "w"
    ATTACH = "a"
    KILL = "k"
    LEAVE = "g"


class Choice(NamedTuple):
    what: What
    selector: str = ""
    """Of `ATTACH`: which ranks; all that do not react where it is empty."""


class MenuError(ValueError):
    """What was typed is none of the choices."""


def choice_of(line: str) -> Choice:
    """What the user has chosen. Raises `MenuError`, whose text says what there is.

    Example:
        >>> choice_of("a 3"), choice_of("")
        (Choice(what=<What.ATTACH: 'a'>, selector='3'), Choice(what=<What.WAIT: ''>, selector=''))
    """
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if word not in {what.value for what in What} or (rest and word != What.ATTACH.value):
        raise MenuError(f"{line.strip()!r} is none of w, a [RANKS], k, g, or nothing")
    return Choice(What(word), rest)


def text_of(places: dict[int, str], heard: Collection[int] = ()) -> str:
    """The menu: where who has not ended is, and what there is to choose.

    Example:
        >>> print(text_of({1: "cell 5 line 3"}))
        rank 1 does not react yet (cell 5 line 3)
          w          all stacks
          a [RANKS]  look inside, with the debugger
          k          kill it
          g          leave it busy, and go on here
          Enter      wait on (stop again kills)
    """
    them = "them" if len(places) > 1 else "it"
    rows = [
        *(f"{named(ranks)} {said}" for ranks, said in reactions([*places], heard, places).items()),
        "  w          all stacks",
        "  a [RANKS]  look inside, with the debugger",
        f"  k          kill {them}",
        f"  g          leave {them} busy, and go on here",
        "  Enter      wait on (stop again kills)",
    ]
    return "\n".join(rows)


class Withdrawable:
    """Asks a user for a line, and takes the question back when what it is about is over.

    Only the signal of the stop button ends a question, on the main thread: this sends it.
    """

    def __init__(self, user: Asker, over: Future[Any]) -> None:
        self._user = user
        self._is_asking = self._is_withdrawn = False
        self.has_left_box = False
        """Was it taken back after it was asked? No message tells a front-end so: JupyterLab waits for Enter."""
        self._lock = threading.Lock()
        over.add_done_callback(lambda _: self._withdraw())

    def ask(self, prompt: str) -> str | None:
        """A line; None where the question was taken back. Raises `KeyboardInterrupt` and `EOFError` as `Asker` does."""
        with self._heard():
            try:
                return self._answer_to(prompt)
            except KeyboardInterrupt:
                self._is_asking = False  # it may have come just before that was said
                if self._is_withdrawn:
                    self.has_left_box = True
                    return None
                raise

    def _answer_to(self, prompt: str) -> str | None:
        try:
            with self._lock:
                self._is_asking = not self._is_withdrawn
            return self._user.ask(prompt) if self._is_asking else None
        finally:
            with self._lock:
                self._is_asking = False

    def _withdraw(self) -> None:
        main = threading.main_thread()
        with self._lock:
            self._is_withdrawn = True
            if self._is_asking and threading.current_thread() is not main:
                signal.pthread_kill(main.ident or 0, signal.SIGINT)

    @contextmanager
    def _heard(self) -> Generator[None]:
        """Inside, the signal ends the question; our own that comes too late for it is nobody's."""

        def on_signal(number: int, frame: object) -> None:
            if self._is_asking or not self._is_withdrawn:
                raise KeyboardInterrupt

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = signal.signal(signal.SIGINT, on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, former)


def offer(mesh: Mesh, run: Run, user: Asker, tell: Tell) -> What:
    """Ask what is to be done about the ranks of a run that do not react, and do what only looks.

    What it gives is `WAIT`, `KILL` or `LEAVE`; `WAIT` also where they have reacted meanwhile, or nobody
    answers. Raises `KeyboardInterrupt` when the user presses stop again.
    """
    question = Withdrawable(user, run.finished)
    places = dict.fromkeys(run.owing, "") | mesh.where(run.owing, timeout=0.2)
    user.show(text_of(places, listen(mesh.roster, run.owing).ranks))
    while True:
        try:
            line = question.ask(PROMPT)
            if question.has_left_box:
                user.show(OVER)
            choice = choice_of(line) if line is not None else Choice(What.WAIT)
            if choice.what is What.WHERE:
                user.show(f"{mesh.stacks(run.owing)}")
            elif choice.what is What.ATTACH:
                _attach(mesh, run, user, choice.selector, tell)
            else:
                return choice.what
        except ValueError as mistake:
            user.show(f"{mistake}")
        except EOFError:
            return What.WAIT


def _attach(mesh: Mesh, run: Run, user: Asker, selector: str, tell: Tell) -> None:
    ranks = selecting_in(mesh)(selector) if selector else run.owing
    for rung, found in enter(mesh, ranks).items():
        if rung is not Rung.LIVE:
            user.show(f"{named(found)}: {rung.value}")
        if rung is Rung.STACK:
            user.show(f"{mesh.stacks(found)}")
    serve(mesh, user, run.finished.done, tell, stays=True)
