"""The debugger of one rank: threads that stop in it ask the notebook, and the control thread brings the answers."""

from __future__ import annotations

import builtins
import contextlib
import getpass
import itertools
import os
import pdb
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from ...runtime.ranks.place import Place
from ...runtime.system.ours import is_ours
from ...runtime.wire.unicode import packed
from .actor_threads import actor_at_work, call_on_loop, frame_of, suspended_in
from .breakpoints import Breakpoint
from .dap import Dap
from .dialog import Dialog
from .events import CANNOT_ASK, Event, Kind
from .functions import Doubt, doubt_of
from .places import Stack, place_of, suspended, users_frame
from .strikes import Strikes
from .views import locals_text, users_of, users_stack, view_of
from .watcher import Watcher

if TYPE_CHECKING:
    from .rank_pdb import RankPdb

REFUSED = (
    "this front-end cannot ask (it runs the notebook without a user): ask with input() where somebody sits, "
    "then `%mesh push` the answer"
)


_PASSED_IN_CHILD = (
    "passed over: breakpoint at {place} in a forked child (pid {pid}) of rank {rank}, with no way to the notebook; "
    "a DataLoader with num_workers=0 loads in the rank itself"
)


STEPS = (
    "answer",
    "leave",
    "heed",
    "attach",
    "inspect",
    "completions",
    "arm",
    "hits",
    "locals_at",
    "view",
    "listen",
    "place",
)
"""Methods of `Debugger` that the notebook may ask for; the control thread calls them."""

_breakpoints_of = msgspec.msgpack.Decoder(list[Breakpoint]).decode


class Debugger:
    """What `breakpoint()`, `pdb.set_trace()` and `input()` do on this rank, and what comes in from the notebook.

    Nothing of pdb is imported before it is used, and nothing is traced before somebody steps.
    """

    def __init__(self, place: Place, send: Callable[[Event], None]) -> None:
        self._place = place
        self._send = send
        self._main = threading.current_thread()
        self._pid = os.getpid()
        self._talks = itertools.count(1)
        # By thread, not by its identity, which another one gets when it has ended.
        self._dialogs: WeakKeyDictionary[threading.Thread, Dialog] = WeakKeyDictionary()
        self._pdbs: WeakKeyDictionary[threading.Thread, RankPdb] = WeakKeyDictionary()
        self._by_talk: WeakValueDictionary[int, RankPdb] = WeakValueDictionary()
        self._is_passing = False  # the user has left: the main thread stops no more in this run
        self._left_at = 0
        self._others_pass = False  # nor do other threads (actors), until the user's next cell
        self._former_hook = sys.breakpointhook
        self._watcher = Watcher(self.stop)
        self._strikes = Strikes(self.stop)
        self._target = self._main
        """The thread that somebody wants to stop, or to look at."""
        self.dap = Dap()

    def install(self) -> None:
        """In a rank that is a process: the debugger's words are ours from now on."""
        self._place.stop = self.stop
        sys.breakpointhook = self._on_breakpoint
        pdb.set_trace = self._set_trace
        builtins.input = self.input
        getpass.getpass = self._getpass

    def begin(self, run: int) -> None:
        """A cell or a call begins on the main thread; runs are numbered in the order in which they were sent."""
        self._is_passing = run <= self._left_at
        self._others_pass = self._others_pass and self._is_passing
        self._watcher.take_up()
        self.dap.begin()

    def end(self) -> None:
        """It has ended: nothing is traced any more, no frame of it is kept."""
        stopped = self._pdbs.pop(self._main, None)
        if stopped is not None or self._watcher.is_armed:
            sys.settrace(None)
        if stopped is not None:
            stopped.clear_all_breaks()  # else bdb hands them to the next one that is made
        self._dialogs.pop(self._main, None)

    def _on_breakpoint(self, *args: Any, **options: Any) -> None:
        wanted = os.environ.get("PYTHONBREAKPOINT")
        if wanted:  # "0", or a debugger of the user's own
            self._former_hook(*args, **options)
            return
        if self.dap.has_client:
            self.dap.stop(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
            return
        self.stop(sys._getframe(1))  # pyright: ignore[reportPrivateUsage] - documented all the same

    def _set_trace(self, *, header: str | None = None, **_: object) -> None:
        self.stop(sys._getframe(1), header)  # pyright: ignore[reportPrivateUsage]

    def input(self, prompt: object = "", /) -> str:
        """What `input` is on a rank. Raises `EOFError` where nobody can be asked."""
        return self._asked("input", str(prompt))

    def _getpass(self, prompt: str = "Password: ", stream: object = None, **_: object) -> str:
        return self._asked("password", prompt)

    def _asked(self, kind: Kind, prompt: str) -> str:
        if os.getpid() != self._pid:
            raise EOFError(f"a forked child of rank {self._place.rank} has no way to the notebook")
        dialog = self._dialogs.get(threading.current_thread())
        if dialog is not None and dialog.is_talking:
            line = dialog.ask(prompt)  # the debugger itself asks, or what is typed into it
        else:
            dialog = self._dialog(kind)
            with self._open(dialog):
                line = dialog.ask(prompt)
                dialog.went()
        if line == CANNOT_ASK + "\n":
            raise EOFError(REFUSED)
        if not line:
            raise EOFError("nobody answers: the notebook has left the question")
        return line.removesuffix("\n")

    def stop(self, frame: FrameType, header: str | None = None) -> None:
        """Stop this thread in this frame, until the user lets it go on."""
        if os.getpid() != self._pid:
            print(
                _PASSED_IN_CHILD.format(place=place_of(frame), rank=self._place.rank, pid=os.getpid()), file=sys.stderr
            )
            return
        thread = threading.current_thread()
        dialog = self._dialogs.get(thread)
        is_passing = self._is_passing if thread is self._main else self._others_pass
        if is_passing or (dialog is not None and dialog.is_talking):
            return  # a breakpoint in what is evaluated at the prompt
        stopped = self._pdbs.get(thread)
        if stopped is None:
            stopped = self._pdbs[thread] = self._make_pdb(self._dialog("live"))
            stopped.dialog.is_over = lambda: self._is_passing if thread is self._main else self._others_pass
            if thread is self._main:
                stopped.resume = self._watcher.resume
                stopped.on_call = self._watcher.on_call
        if header:
            stopped.message(header)
        with self._open(stopped.dialog):
            stopped.stop_at(frame, self._awaiting())
        self._after(stopped)
        if thread is self._main and not stopped.is_tracing:
            self._watcher.take_up(frame)

    def _awaiting(self) -> Stack:
        """Where the coroutines of the cell, or of an actor, are, which their thread is not in now."""
        thread = threading.current_thread()
        return self._suspended() if thread is self._main else suspended_in(thread)

    def _suspended(self) -> Stack:
        awaited = self._place.awaited
        if awaited is None:
            return []
        return [entry for entry in suspended(awaited()) if not is_ours(entry[0].f_code.co_filename)]

    def post_mortem(self, error: BaseException) -> None:
        """Look at the frames that an exception has left; on the main thread, while no cell runs."""
        if self._is_passing:
            return
        looker = self._make_pdb(self._dialog("post-mortem"))
        looker.dialog.is_over = lambda: self._is_passing
        with self._open(looker.dialog):
            looker.look_at(error)

    def _make_pdb(self, dialog: Dialog) -> RankPdb:
        from .rank_pdb import RankPdb  # 20 ms, paid by who uses it

        made = self._by_talk[dialog.talk] = RankPdb(dialog)
        return made

    def _dialog(self, kind: Kind) -> Dialog:
        dialog = Dialog(next(self._talks), kind, self._tell, lambda: self._place.rank)
        dialog.thread = _name_of(threading.current_thread())
        dialog.before_asking = self._place.streams.flush
        return dialog

    @contextmanager
    def _open(self, dialog: Dialog) -> Generator[None]:
        thread = threading.current_thread()
        former, self._dialogs[thread] = self._dialogs.get(thread), dialog
        dialog.is_talking = True
        try:
            yield
        finally:
            dialog.is_talking = False
            if former is not None and former is not dialog:
                self._dialogs[thread] = former

    def _after(self, stopped: RankPdb) -> None:
        if stopped.dialog.has_left:
            stopped.dialog.has_left = False
            self._is_passing = self._others_pass = True

    def _tell(self, event: Event) -> None:
        with self._place.shield() if threading.current_thread() is self._main else contextlib.nullcontext():
            self._send(event)

    # What the notebook says; on the control thread.

    def answer(self, talk: int, turn: int, line: str) -> bool:
        """Hand in a line; whether somebody still waits for one."""
        dialog = next((each for each in list(self._dialogs.values()) if each.talk == talk), None)
        if dialog is None or not dialog.is_asking:
            return False
        dialog.put(turn, line)
        return True

    def leave(self, run: int) -> list[tuple[int, int]]:
        """Let all threads go on, and stop no more in this run, which may be about to begin.

        Gives the questions that this answers: the conversation of each, and its number there.
        """
        self._left_at = run
        self._is_passing = self._others_pass = True
        return [(dialog.talk, dialog.leave()) for dialog in list(self._dialogs.values()) if dialog.is_asking]

    def heed(self) -> None:
        """The user has begun another cell: actors stop again."""
        self._others_pass = False

    def arm(self, breakpoints: bytes, asked: int = 0) -> Doubt:
        """Stop at these from now on, and at no others that were armed from outside: encoded `Breakpoint`s.

        Gives why that of the number `asked` may stop nowhere here.
        """
        armed = _breakpoints_of(breakpoints)
        self._watcher.arm(armed)
        self._place.visits.request(self._take_up)
        point = next((each for each in armed if each.number == asked), None)
        return doubt_of(point) if point is not None else ""

    def _take_up(self, frame: FrameType) -> None:
        stopped = self._pdbs.get(self._main)
        if stopped is None or not (stopped.dialog.is_talking or stopped.is_stepping):  # else it does when it lets go
            self._watcher.take_up(frame)

    def hits(self) -> dict[int, int]:
        """How often breakpoints that were armed from outside were hit, by number."""
        return self._watcher.hits()

    def attach(self, until: float) -> str:
        """Stop the main thread where it is; where no cell runs there, an actor that works.

        `stopped` (already), `idle` (no user code runs), `late` (this could not be heard before `until`, in seconds of
        `time.time`, as C code held the rank), or `asked`: it stops now, or when the C code returns that it is in.
        """
        if time.time() > until:
            return "late"
        self._target = self._main
        dialog = self._dialogs.get(self._main)
        if dialog is not None and dialog.is_asking:
            return "stopped"
        self._is_passing = False
        if self._place.visits.request(self._visit):
            return "asked"
        return self._attach_actor()

    def _visit(self, frame: FrameType) -> None:
        if users_frame(frame) is not None or self._awaiting():
            self.stop(frame)

    def _attach_actor(self) -> str:
        found = actor_at_work()
        if found is None or found.ident is None:
            return "idle"
        self._target = found
        dialog = self._dialogs.get(found)
        if dialog is not None and dialog.is_asking:
            return "stopped"
        self._others_pass = False
        if users_frame(frame_of(found)) is not None:
            self._strikes.strike(found.ident)
        else:
            call_on_loop(found, lambda: self._visit(sys._getframe()))  # pyright: ignore[reportPrivateUsage]
        return "asked"

    def inspect(self) -> bool:
        """Let the thread be that was to stop, and look at it from another; whether there is something to see."""
        self._place.visits.cancel()
        self._strikes.cancel()
        frame = self._frame()
        if frame is not None:
            threading.Thread(target=self._inspect, name="meshbook-inspect", daemon=True).start()
        return frame is not None

    def _inspect(self) -> None:
        from .rank_pdb import Inspector

        dialog = self._dialog("inspector")
        dialog.thread = _name_of(self._target)  # that is shown, not the one that looks
        looker = Inspector(dialog)
        looker.look = self._frame
        self._by_talk[dialog.talk] = looker
        frame = self._frame()
        if frame is not None:
            with self._open(dialog):
                looker.watch(frame)
        self._dialogs.pop(threading.current_thread(), None)

    def _frame(self) -> FrameType | None:
        return frame_of(self._target)

    def locals_at(self, number: int) -> str:
        """The variables of a frame of the user's, counted from the innermost (1), while its thread runs on."""
        stack = users_stack(frame_of(self._main)) or users_of(self._suspended())
        actor = actor_at_work() if not stack else None
        if actor is not None:
            stack = users_stack(frame_of(actor)) or users_of(suspended_in(actor))
        return locals_text(stack, number)

    def completions(self, talk: int, prefix: str) -> list[str]:
        """What could stand where this begins, at the prompt of a conversation."""
        found = self._by_talk.get(talk)
        return found.completions(prefix) if found is not None else []

    def listen(self, folder: str, places: dict[str, str] | None) -> tuple[bool, str]:
        """Let an editor attach (see `Dap`): whether it can, and the path of the socket, or in words why not."""
        if self._place.visits is None:
            return False, "ranks that are threads of the notebook have no debugger of their own"
        if self.dap.has_client:
            return False, "an editor or the debugger panel is attached there: one at a time"
        try:
            return True, self.dap.listen(folder, places)
        except ImportError as missing:
            return False, f"debugpy is needed there, and is not installed: {missing}"
        except OSError as trouble:
            return False, f"cannot listen there: {trouble}"
        finally:
            if sys.breakpointhook not in (self._on_breakpoint, self._former_hook):
                sys.breakpointhook = self._on_breakpoint  # debugpy's stops nowhere while no editor is attached

    def place(self, places: dict[str, str]) -> None:
        """What files cells of these names are from now on, for the editor."""
        self.dap.place(places)

    def view(self, talk: int) -> bytes:
        """Where the thread of a conversation is: an encoded `View`; empty where it only asks for input."""
        found = self._by_talk.get(talk)
        return packed(view_of(found.stack, found.curindex)) if found is not None and found.stack else b""


def _name_of(thread: threading.Thread) -> str:
    """What a thread is called for the reader; nothing for the main one, `actor-NAME` for those of actors."""
    return "" if thread is threading.main_thread() else thread.name.removeprefix("meshbook-")
