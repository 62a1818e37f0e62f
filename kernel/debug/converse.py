"""The conversation with whoever is stopped: asks the user for lines, on the thread that runs the cell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext

from ...runtime.ranges import ranks_text
from .asking import Asker, Withdrawn
from .desk import SOON, Desk
from .dialog import PROMPT
from .events import CANNOT_ASK, LEAVE, Stop
from .lookout import Lookout
from .stops import Key, key_of
from .words import HELP, Abort, Cast, Focus, Help, Line, Quit, Who, WordError, read

_KINDS = {
    "live": "stopped",
    "post-mortem": "after its error",
    "inspector": "looked at",
    "input": "asks",
    "password": "asks",
}

_one_at_a_time = threading.Lock()
"""Two prompts at once would take each other's answers."""

Select = Callable[[str], Sequence[int]]
"""Ranks that a selector means; raises `ValueError` for one that is not written right."""


class Conversation:
    """Serves the stops of one mesh, until nobody waits.

    `select` reads selectors, `name_of` says what a rank is called; `is_over` tells that what runs has ended, so that
    nobody can stop any more. `abort` interrupts the ranks, `catch_up` shows what they have printed until now, and
    `tell_lost`, while a line is awaited, who of them has failed or died. `stays` waits for who works on a line or
    steps, however long that takes: else whoever holds this comes back to it.
    """

    def __init__(
        self,
        desk: Desk,
        asker: Asker,
        select: Select,
        name_of: Callable[[int], str],
        is_over: Callable[[], bool],
        abort: Callable[[], object],
        catch_up: Callable[[], object] = lambda: None,
        stays: bool = False,
        tell_lost: Callable[[], object] = lambda: None,
    ) -> None:
        self._desk = desk
        self._asker = asker
        self._select = select
        self._name_of = name_of
        self._is_over = is_over
        self._abort = abort
        self._catch_up = catch_up
        self._stays = stays
        self._tell_lost = tell_lost
        self._shown: Key | None = None
        self._gone: tuple[Key, int] | None = None  # the question of which was told that nobody waits for an answer

    def hold(self) -> None:
        """Ask for lines as long as somebody waits for one.

        Raises `KeyboardInterrupt` when the user presses stop at the prompt; who is stopped stays so.
        """
        with nullcontext() if self._asker.is_beside else _one_at_a_time:
            while self._is_ours() and (stop := self._next()) is not None:
                try:
                    self._serve(stop)
                except Withdrawn:
                    self._shown = None
                except EOFError:
                    self._asker.show("nobody answers any more: all ranks go on\n")
                    self._desk.leave()
                    return

    def _is_ours(self) -> bool:
        """A console takes the stops of its mesh from the prompts in cells."""
        return self._asker.is_beside == self._desk.has_console

    def _next(self) -> Stop | None:
        self._tell_news()
        while (stop := self._desk.stops.next()) is None and self._stays and self._is_owed():
            self._desk.wait(lambda: self._desk.is_wanted or not self._is_owed())
            self._tell_news()
        return stop

    def _is_owed(self) -> bool:
        """Does a rank work on a line that was typed, or make the step that was asked for?"""
        states = self._desk.mesh.roster.states
        return any(rank in states and states[rank].is_at_work for rank, _ in self._desk.stops.working)

    def _tell_news(self) -> None:
        self._catch_up()
        self._tell_dead()
        for rank, text in self._desk.take_said():
            self._asker.show(gutter({rank: text}) if rank != (self._shown or (rank,))[0] else text)

    def _tell_dead(self, asked: Stop | None = None) -> None:
        for stop in self._desk.dead():
            hint = ": any line leaves its prompt" if asked is not None and key_of(stop) == key_of(asked) else ""
            self._asker.show(f"{self._name_of(stop.rank)} has died in the debugger{hint}\n")

    def _tell_gone(self, asked: Stop) -> None:
        """It goes on, or was interrupted, by somebody else's hand: an input box cannot be taken back."""
        question = (key_of(asked), asked.turn)
        now = self._desk.stops.waiting.get(key_of(asked))
        is_gone = (now is None or now.turn != asked.turn) and asked.rank not in self._desk.mesh.roster.dead()
        if is_gone and self._gone != question:
            self._gone = question
            self._asker.show(f"{self._name_of(asked.rank)} does not wait any more: any line leaves its prompt\n")

    def _ask(self, stop: Stop, prompt: str) -> str:
        """Take a line for who waits."""
        is_secret = stop.kind == "password"
        if self._asker.is_beside:  # the cell tells, and the question is withdrawn
            return self._asker.ask(prompt, is_secret)

        def look() -> None:
            self._tell_lost()
            self._tell_dead(stop)
            self._tell_gone(stop)

        with Lookout(look):
            return self._asker.ask(prompt, is_secret)

    def _serve(self, stop: Stop) -> None:
        """Show what it says, take a line, and wait a moment for what comes of it."""
        if stop.kind in ("input", "password"):
            self._asker.show(stop.out)
            prompt = f"{self._name_of(stop.rank)} asks: {stop.prompt}"
            self._send(stop, self._ask(stop, prompt))
            return
        if self._shown != key_of(stop):
            self._asker.show(self._headline(stop))
            self._shown = key_of(stop)
        self._asker.show(stop.out)
        line = self._ask(stop, self._prompt(stop))
        if stop.prompt != PROMPT:  # it goes into code that pdb runs, as it is
            self._send(stop, line)
            return
        try:
            self._do(stop, line)
        except (WordError, ValueError) as mistake:
            self._asker.show(f"{mistake}\n")
            self._keep(stop)

    def _do(self, stop: Stop, line: str) -> None:
        match read(line):
            case Line(text):
                self._send(stop, text)
            case Quit():
                looks = [each for each in self._desk.stops.waiting.values() if each.kind == "inspector"]
                for look in looks:
                    self._desk.dismiss(look)
                if stop.kind != "inspector":
                    self._desk.leave()
                self._desk.wait(lambda: not self._desk.stops.waiting or self._is_over())
            case Abort():
                self._abort()
                # Who sits at a prompt in an event loop is cancelled when that goes on.
                if not self._desk.wait(lambda: not self._desk.stops.waiting or self._is_over()):
                    self._desk.leave()
            case Focus(selector):
                self._focus(selector)
                self._keep(stop)
            case Cast(selector, command):
                self._cast(selector, command)
            case Who():
                self._asker.show(self._list())
                self._keep(stop)
            case Help():
                self._asker.show(f"{HELP}\n")
                self._keep(stop)

    def _send(self, stop: Stop, line: str) -> None:
        if not self._desk.answer(stop, line):
            is_told = self._gone == (key_of(stop), stop.turn) or stop.rank in self._desk.mesh.roster.dead()
            if not is_told:
                self._asker.show(f"{self._name_of(stop.rank)} does not wait any more\n")
            return
        self._desk.wait(lambda: self._desk.has_come_back(key_of(stop)) or self._is_over())

    def _keep(self, stop: Stop) -> None:
        """What it had to say has been shown."""
        self._desk.mute(stop)

    def _focus(self, selector: str) -> None:
        ranks = self._select(selector)
        # Others may be a moment behind the first that stopped.
        if not self._desk.wait(lambda: any(self._desk.choose(rank) for rank in ranks)):
            raise ValueError(f"{selector!r} is not stopped: {ranks_text(self._desk.stops.ranks)} are")

    def _cast(self, selector: str, command: str) -> None:
        chosen = set(self._select(selector)) if selector else set(self._desk.stops.ranks)
        stops = [stop for key, stop in sorted(self._desk.stops.waiting.items()) if key[0] in chosen]
        if not stops:
            raise ValueError(f"no rank of {selector!r} is stopped: {ranks_text(self._desk.stops.ranks)} are")
        for stop in stops:
            self._desk.answer(stop, command)
        keys = [key_of(stop) for stop in stops]
        self._desk.wait(lambda: all(map(self._desk.has_come_back, keys)) or self._is_over(), 2 * SOON)
        said = dict(self._desk.take_said())
        for key in keys:
            if (back := self._desk.stops.waiting.get(key)) is not None:
                said[key[0]] = said.get(key[0], "") + back.out
                self._desk.mute(back)
        silent = [key[0] for key in keys if key[0] not in said]
        self._catch_up()
        if any(said.values()):
            self._asker.show(gutter(said))
        if silent:
            self._asker.show(f"{ranks_text(silent)} went on, or are not done yet\n")

    def _headline(self, stop: Stop) -> str:
        name = self._name_of(stop.rank)
        if stop.kind == "inspector":
            return f"looking at {name}, which runs on{_thread(stop)}\n"
        if stop.kind == "post-mortem":
            return f"{name} after its error\n"
        return f"{name} is stopped at {stop.place}{_thread(stop)}\n"

    def _prompt(self, stop: Stop) -> str:
        others = [other for key, other in self._desk.stops.waiting.items() if key != key_of(stop)]
        are = "" if all(other.kind == "inspector" for other in others) else " stopped"
        more = f" [{len(others)} more{are}: {ranks_text(sorted({other.rank for other in others}))}]" if others else ""
        return f"rank {stop.rank}{more} {stop.prompt}"

    def _list(self) -> str:
        places: dict[int, str] = {}
        for _, stop in sorted(self._desk.stops.waiting.items()):
            place = f"{_KINDS[stop.kind]}{stop.place and f' at {stop.place}'}{_thread(stop)}\n"
            places[stop.rank] = places.get(stop.rank, "") + place
        return gutter(places)


def _thread(stop: Stop) -> str:
    return f", thread {stop.thread}" if stop.thread else ""


def pass_over(
    desk: Desk, tell: Callable[[Sequence[int], str, str], object], why: str = "this front-end has no prompt"
) -> None:
    """Where nobody can be asked: let all go on, and say so."""
    passed: dict[str, list[int]] = {}
    for stop in desk.stops.waiting.values():
        if stop.kind in ("input", "password"):
            desk.answer(stop, CANNOT_ASK)
        else:
            passed.setdefault(_state(stop), []).append(stop.rank)
            desk.answer(stop, LEAVE)
    for state, ranks in passed.items():
        tell(sorted(ranks), "◌", f"passed over: {state}, and {why}")
    for rank, text in desk.take_said():
        for line in text.strip().splitlines():
            tell([rank], "┆", line)


def _state(stop: Stop) -> str:
    return "stopped after its error" if stop.kind == "post-mortem" else f"stopped at {stop.place}"


def gutter(texts: Mapping[int, str]) -> str:
    """What ranks said, equal texts once, with who said it in front.

    Example:
        >>> print(gutter({0: "7\\n", 1: "7\\n", 2: "a\\nb\\n"}), end="")
        0-1 │ 7
          2 │ a
            │ b
    """
    by_text: dict[str, list[int]] = {}
    for rank, text in sorted(texts.items()):
        by_text.setdefault(text.strip("\n"), []).append(rank)
    names = {text: ranks_text(ranks) for text, ranks in by_text.items()}
    width = max(map(len, names.values()), default=0)
    return "".join(_rows(names, width))


def _rows(names: Mapping[str, str], width: int) -> Iterable[str]:
    for text, name in names.items():
        first, *others = text.split("\n")
        yield f"{name:>{width}} │ {first}\n"
        yield from (f"{'':>{width}} │ {line}\n" for line in others)
