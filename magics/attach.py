"""`python -m meshbook.debug`: what runs here, where it is, and the debugger's prompt, in a terminal of its own."""

from __future__ import annotations

import argparse
import getpass
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from ..kernel.debug.letters import Attach, Complete, End, Line, Look, Out, Question, Watch, Wire, Words
from ..kernel.failures.story import without_escapes
from .found import Found, NotFound, choose, find, knock
from .options import seconds

_PATIENCE = 0.5
"""Seconds that the Tab key waits for the words of a rank."""

_TARGET = "TARGET is a pid, the name of a mesh, or PID/MESH; without one, the only script there is."
_SELECTOR = "SEL names ranks, as in a notebook: 3, dp=1,tp=0, @busy."
_PROMPT = "At the prompt: %rank, %who, %cast, %table, ?prefix, q; Tab completes."


def main(arguments: Sequence[str]) -> int:
    """What the command line asks for; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "ls":
            print("\n".join(map(str, find())) or "no script or notebook of yours has a mesh here")
            return 0
        found, mesh, selector = choose(find(), options.words)
        match options.command:
            case "stacks":
                return _ask(found, Look(mesh, selector, options.native))
            case "profile":
                return _ask(found, Watch(mesh, selector, options.seconds))
            case _:
                return _attach(found, mesh, selector)
    except (NotFound, OSError) as reason:
        print(f"meshbook.debug: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m meshbook.debug", description=__doc__, epilog=_TARGET)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("ls", help="your scripts and notebooks with their meshes, and who is stopped where")
    for name, told in (
        ("attach", "talk with ranks that are stopped, and stop those that SEL names"),
        ("stacks", "where every rank is, merged; also of ranks that hang"),
        ("profile", "on which lines ranks spend their time, side by side; Ctrl-C tells what was seen so far"),
    ):
        about = f"{_SELECTOR} {_PROMPT}" if name == "attach" else _SELECTOR
        command = commands.add_parser(name, help=told, epilog=f"{_TARGET} {about}")
        command.add_argument("words", nargs="*", metavar="TARGET SEL")
        if name == "profile":
            command.add_argument(
                "--for", type=_seconds, default=3.0, metavar="S", dest="seconds", help="look for S seconds"
            )
        if name == "stacks":
            command.add_argument("--native", action="store_true", help="frames of C too, where py-spy is installed")
    return parser


def _seconds(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _ask(found: Found, question: Look | Watch) -> int:
    """Print the answer. Ctrl-C asks for what there is of it by now, pressed again it leaves."""
    with knock(found.path, None) as stream, _first_press(lambda: stream.shutdown(socket.SHUT_WR)):
        wire = Wire(stream)
        wire.send(question)
        if isinstance(question, Watch) and sys.stderr.isatty():
            print(f"looking for {question.seconds:g} s; Ctrl-C shows what was seen by then", file=sys.stderr)
        while (letter := wire.recv_from_process()) is not None:
            if isinstance(letter, Out):
                print(_as_shown(letter.text), end="")
            elif isinstance(letter, End):
                return _end(letter)
    return _gone(found)


@contextmanager
def _first_press(do: Callable[[], None]) -> Generator[None]:
    """Inside, the first Ctrl-C does this and raises nothing."""

    def press(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, former)
        do()

    former = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _attach(found: Found, mesh: str, selector: str) -> int:
    with knock(found.path, None) as stream:
        wire = Wire(stream)
        wire.send(Attach(mesh, selector))
        end = Terminal(wire).run()
    return _end(end) if end is not None else _gone(found)


def _end(end: End) -> int:
    if end.text:
        print(f"meshbook.debug: {end.text}" if end.is_fault else end.text, file=sys.stderr if end.is_fault else None)
    return 1 if end.is_fault else 0


def _gone(found: Found) -> int:
    print(f"pid {found.pid} has ended")
    return 0


_DEAF = 0.2
"""Seconds after which who types has not heard a signal."""


class _News(BaseException):
    """Something came while a line was typed."""


class Terminal:
    """The user's side of a conversation: letters come on a thread of their own, lines are typed on the main one."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._news: SimpleQueue[Out | Question | End | None] = SimpleQueue()  # None: the other side has gone
        self._words: SimpleQueue[Words] = SimpleQueue()
        self._is_typing = self._is_called = False
        self._heard = threading.Event()
        """Nothing is typed any more of what was when a signal was sent."""
        self._typed = ""
        """What was typed when news came: it stands at the next prompt."""
        self._found: list[str] = []

    def run(self) -> End | None:
        """Until the process says that it is over; None where it says nothing any more, or the user has left."""
        former = signal.signal(signal.SIGUSR1, self._on_news)
        _prepare_editing(self._complete, lambda: self._typed)
        threading.Thread(target=self._receive, name="meshbook-letters", daemon=True).start()
        try:
            return self._talk()
        finally:
            signal.signal(signal.SIGUSR1, former)

    def _talk(self) -> End | None:
        asked: Question | None = None
        while True:
            try:
                asked, end = self._take(asked)
                if end is not _GOING:
                    return end
                if asked is not None and self._answer(asked):
                    asked = None
            except KeyboardInterrupt:
                if asked is None:
                    return End("left: all ranks go on")
                self._typed = ""
                print("\n(q leaves and lets all ranks go on)")
            except EOFError:
                print()
                return End("left: all ranks go on")

    def _take(self, asked: Question | None) -> tuple[Question | None, Any]:
        """What has come; where nothing is asked, wait for something."""
        while True:
            try:
                letter = self._news.get(block=asked is None)
            except Empty:
                return asked, _GOING
            if letter is None or isinstance(letter, End):
                return asked, letter
            if isinstance(letter, Out):
                print(_as_shown(letter.text), end="", flush=True)
            else:
                asked = letter if letter.number else None

    def _answer(self, asked: Question) -> bool:
        """Let a line be typed; whether it was, and nothing came meanwhile that is to be shown first."""
        try:
            line = self._typed_line(asked)
        except _News:
            print()
            return False
        self._typed = ""
        self._wire.send(Line(asked.number, line))
        return True

    def _typed_line(self, asked: Question) -> str:
        lines: list[str] = []
        try:
            self._heard = threading.Event()
            self._is_called, self._is_typing = False, True
            try:
                if not self._news.empty():
                    raise _News
                # One step of the interpreter, between whose parts no signal is heard: a line that was typed is kept.
                lines.extend(map(getpass.getpass if asked.is_secret else input, [asked.prompt]))
            finally:
                self._is_typing = False
                self._heard.set()
        except _News:
            if asked.is_secret or lines:
                self._typed = "" if asked.is_secret else lines[0]
            raise
        return lines[0]

    def _on_news(self, signum: int, frame: FrameType | None) -> None:
        if self._is_typing:
            self._is_typing = False
            self._heard.set()
            self._typed = _line_so_far()
            raise _News

    def _receive(self) -> None:
        letter = self._wire.recv_from_process()
        while letter is not None:
            if isinstance(letter, Words):
                self._words.put(letter)
            elif isinstance(letter, Out | Question | End):
                self._tell(letter)
            letter = self._wire.recv_from_process()
        self._tell(None)

    def _tell(self, letter: Out | Question | End | None) -> None:
        self._news.put(letter)
        if self._is_typing and not self._is_called:
            self._is_called = True
            self._call(self._heard)

    def _call(self, heard: threading.Event) -> None:
        """End the typing. Once, as a second signal while `input` is left is a SystemError of Python's.

        But not one that is about to begin: it has looked for signals, and sleeps until the next letter. One that has
        not heard it gets another.
        """
        while not heard.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            heard.wait(_DEAF)

    def _complete(self, text: str, number: int) -> str | None:
        """What readline calls for the Tab key: the word of this number that begins so."""
        if number == 0:
            prefix = text.removeprefix("?")
            mark = text[: len(text) - len(prefix)]
            self._wire.send(Complete(prefix))
            self._found = [mark + word for word in self._words_for(prefix)]
        return self._found[number] if number < len(self._found) else None

    def _words_for(self, prefix: str) -> Sequence[str]:
        """What could stand there, from a rank that says so in time; what comes later is for a Tab that was long ago."""
        deadline = time.monotonic() + _PATIENCE
        with suppress(Empty):
            while (found := self._words.get(timeout=max(0.0, deadline - time.monotonic()))).prefix != prefix:
                pass
            return found.words
        return ()


_GOING = object()


def _as_shown(text: str) -> str:
    """In a file or a pipe without colours."""
    return text if sys.stdout.isatty() else without_escapes(text)


def _prepare_editing(complete: Any, typed: Callable[[], str]) -> None:
    """Line editing, history, the Tab key and what was typed before for `input`, where the terminal has them."""
    try:
        import readline
    except ImportError:  # a Python that was built without it
        return
    readline.set_startup_hook(lambda: readline.insert_text(typed()))
    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n()[]{},;=+-*/<>'\"")
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")


def _line_so_far() -> str:
    readline = sys.modules.get("readline")
    return readline.get_line_buffer() if readline is not None else ""
