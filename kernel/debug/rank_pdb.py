"""IPython's debugger on a rank: its stops, its commands, and the frames it shows are those of the user's code."""

# IPython and bdb type their own code in part only; this is the one file of the debugger that touches it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import code
import ctypes
import re
import sys
from bdb import Breakpoint
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stderr, redirect_stdout
from traceback import format_exception_only
from types import FrameType, TracebackType
from typing import Any

from IPython.core.debugger import Pdb

from ...runtime.ranks.users import is_users
from ...runtime.system.ours import is_ours
from ..sources.source import name_of
from ..values.summary import shortened
from .brief import brief_text
from .dialog import PROMPT, Dialog
from .places import Stack, is_for_users, place_of, users_frame, users_index
from .remains import is_function

COMPLETE = "?"
TABLE = "%table "
_MOST_COMPLETIONS = 200
_MOST_OF_AN_ERROR = 2_000  # characters
_ASSIGNMENT = re.compile(r"\s*[A-Za-z_]\w*\s*=(?!=)")


class RankPdb(Pdb):
    """A debugger that speaks through a `Dialog`, for one thread of a rank.

    It stops where it is told to (`stop_at`), on the very line, also in a signal handler: a traced stop would wait for
    the next line, which a sleeping thread reaches when it wakes. `q` and the end of the conversation let the code go
    on; an interrupt of the rank is raised in the user's code.
    """

    def __init__(self, dialog: Dialog) -> None:
        # `nosigint`: else `c` would leave a handler that takes the next interrupt for the debugger's.
        super().__init__(stdin=dialog, stdout=dialog, nosigint=True, readrc=False)
        self.prompt = PROMPT
        self.reset()  # else nobody may ask it yet what it waits for
        self.dialog = dialog
        self.resume: Callable[[FrameType], Any] = lambda frame: None
        """Called when nothing is traced any more: who else traces takes over. Gives the frame's trace function."""
        self.on_call: Callable[[FrameType, str, Any], Any] = lambda frame, event, arg: None
        """Who else traces a function that is called, which this one runs through: gives its trace function."""
        self._was_interrupted = False
        self._has_talked = False
        self._awaiting: Stack = []
        self._last = (0, 0)
        """Where it has stopped last: the number of the frame, and the line."""

    def stop_at(self, frame: FrameType, awaiting: Stack) -> None:
        """Stop here and now, and go on as the user says.

        What is shown of a thread that waits for an event loop is where its coroutines are (`awaiting`).
        """
        if self._last == (id(frame), frame.f_lineno) and self.is_stepping:
            return  # one has stepped to this `breakpoint()`, and on from it
        sys.settrace(None)  # a step may have led here: what follows is ours, and `reset` would begin to trace anew
        self.reset()
        self._awaiting = awaiting if users_frame(frame) is None else []
        outermost = each = frame
        while each is not None:
            if not is_ours(each.f_code.co_filename):
                each.f_trace = self.trace_dispatch
            outermost, each = each, each.f_back
        self.botframe = outermost
        self.set_step()
        self.interaction(frame, None)
        sys.settrace(self.trace_dispatch if self.is_tracing else None)

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        local = super().trace_dispatch(frame, event, arg)
        if not self.is_tracing:
            return self.resume(frame)
        return self.on_call(frame, event, arg) if local is None and event == "call" else local

    def look_at(self, error: BaseException) -> None:
        """The frames of an exception, after its end."""
        self.reset()
        self.message(shortened("".join(format_exception_only(error)).strip(), _MOST_OF_AN_ERROR))
        self.interaction(None, error)

    @property
    def is_tracing(self) -> bool:
        """Does it wait for a next stop: a step, or a breakpoint of its own?"""
        return self.is_stepping or bool(self.breaks)

    @property
    def is_stepping(self) -> bool:
        return self.stopframe is None or self.stoplineno != -1

    def interaction(self, frame: FrameType | None, tb_or_exc: TracebackType | BaseException | None) -> None:
        if frame is not None:
            self._last = (id(frame), frame.f_lineno)
            self.dialog.place = place_of(self._awaiting[users_index(self._awaiting)][0] if self._awaiting else frame)
        self._has_talked = False
        was_talking, self.dialog.is_talking = self.dialog.is_talking, True
        try:
            super().interaction(frame, tb_or_exc)
        finally:
            self.dialog.is_talking = was_talking
            self._awaiting = []
            self.dialog.went(steps=self._has_talked and self.is_stepping and self.dialog.kind == "live")
        if not self._has_talked:  # IPython has swallowed an interrupt that came before the first prompt
            self._let_go()
        if self._was_interrupted:
            self._was_interrupted = False
            sys.settrace(None)
            raise KeyboardInterrupt

    def stop_here(self, frame: FrameType) -> bool:
        return super().stop_here(frame) and is_for_users(frame)

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        # The last expression of a cell is code of its own: its line comes next.
        if name_of(frame.f_code.co_filename) is None or frame.f_code.co_name != "<module>":
            super().user_call(frame, argument_list)

    def user_return(self, frame: FrameType, return_value: object) -> None:
        # The end of a cell is where its value is: below it stands nothing of the user's.
        if name_of(frame.f_code.co_filename) is None or users_frame(frame.f_back):
            super().user_return(frame, return_value)

    def break_here(self, frame: FrameType) -> bool:
        # All debuggers of a process share bdb's list, and that of another thread may have cleared this place.
        for file, lines in self.breaks.items():
            lines[:] = [line for line in lines if (file, line) in Breakpoint.bplist]
        return bool(super().break_here(frame))

    def clear_all_breaks(self) -> None:
        """Those of this thread; of bdb's own it would be those of all."""
        for file, lines in self.breaks.items():
            for line in lines:
                for breakpoint in list(Breakpoint.bplist.get((file, line), ())):
                    breakpoint.deleteMe()
        self.breaks = {}

    def get_stack(self, *args: Any, **kwargs: Any) -> tuple[Stack, int]:
        if self._awaiting:
            return self._awaiting, users_index(self._awaiting)
        stack, at = super().get_stack(*args, **kwargs)
        shown = _visible(stack)
        return [stack[i] for i in shown], max(0, sum(1 for i in shown if i <= at) - 1)

    def format_stack_entry(self, frame_lineno: tuple[FrameType, int], *args: Any, **kwargs: Any) -> str:
        text = super().format_stack_entry(frame_lineno, *args, **kwargs)
        file = frame_lineno[0].f_code.co_filename
        return text.replace(file, name_of(file) or file, 1)

    def onecmd(self, line: str) -> bool:
        # Some commands of IPython's print to `sys.stdout`, and so does what the user evaluates.
        with redirect_stdout(self.dialog), redirect_stderr(self.dialog):
            if line.startswith(COMPLETE):
                self.message("  ".join(self.completions(line[len(COMPLETE) :].strip())) or "nothing begins like that")
                return False
            if line.startswith(TABLE):
                self._say_briefly(line[len(TABLE) :])
                return False
            return bool(super().onecmd(line))

    def precmd(self, line: str) -> str:
        # `n = 3` is meant as it stands, not as `next`.
        return super().precmd(f"!{line}" if _ASSIGNMENT.match(line) else line)

    def default(self, line: str) -> None:
        super().default(line)
        self._keep_locals()

    def _disable_command_completion(self) -> AbstractContextManager[None]:
        # IPython asks for it, for statements of several lines, on every Python; only pdb of 3.13 has it.
        return nullcontext()

    def _keep_locals(self) -> None:
        """Before 3.13 an assignment to a local variable lands in a copy: it is written back at once, as debugpy does.

        Python itself does so when a trace function returns, and nobody else calls this one where a thread is struck, or
        a signal brought it here.
        """
        frame: Any = self.curframe
        if sys.version_info < (3, 13) and frame is not None and is_function(frame.f_code):
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
            frame.f_locals  # noqa: B018 - who has not read them since the last time writes nothing back

    def completions(self, prefix: str) -> list[str]:
        """What could stand where this begins: names and attributes of the frame, or commands."""
        from ..ranks.completion import complete  # loads IPython's completer

        frame: Any = self.curframe
        if frame is None:
            return []
        names = {**frame.f_globals, **self._locals()}
        if "." in prefix:
            start, words = complete(prefix, len(prefix), self.shell.Completer, names)
            return [prefix[:start] + word for word in words]
        found = {name for name in names if name.startswith(prefix) and (prefix or not name.startswith("_"))}
        commands = self.completenames(prefix, prefix, 0, len(prefix)) if prefix else []
        return sorted(found | set(commands))[:_MOST_COMPLETIONS]

    def do_frame(self, arg: str) -> None:
        """frame N
        Go to a frame; 0 is the outermost that is shown.
        """
        if not arg.isdigit():
            self.default(f"frame {arg}".rstrip())  # a name of the user's
        elif int(arg) >= len(self.stack):
            self.error(f"there are the frames 0 to {len(self.stack) - 1}")
        else:
            self._select_frame(int(arg))  # of pdb; `u` and `d` call it too
            self.lastcmd = ""  # an empty line repeats no move

    def do_quit(self, arg: str) -> bool:
        """q(uit)
        Leave the debugger: every rank goes on, and this cell stops no more.
        """
        self.dialog.has_left = True
        self.clear_all_breaks()
        self.set_continue()
        return True

    do_q = do_exit = do_EOF = do_quit

    def do_interact(self, arg: str) -> None:
        """interact
        A prompt of Python's, with the names of the frame; `exit` comes back here.
        """

        def show(value: object) -> None:  # the shell's own would show it below the cell, once that has ended
            if value is sys.exit:
                sys.exit()
            self.displayhook(value)

        frame: Any = self.curframe
        shell_shows, sys.displayhook = sys.displayhook, show
        try:
            names = {**frame.f_globals, **self._locals(), "exit": sys.exit, "quit": sys.exit}
            code.interact("*interactive*", local=names, exitmsg="")
        except SystemExit:  # the cell is not to end, and a notebook has no Ctrl-D
            pass
        finally:
            sys.displayhook = shell_shows
        self.message("left: this is the debugger again")

    def do_debug(self, arg: str) -> None:
        """debug STATEMENT
        Run a statement step by step, in a debugger within this one; `q` there comes back here.
        """
        frame: Any = self.curframe
        tracer = sys.gettrace()
        sys.settrace(None)
        self.message("ENTERING RECURSIVE DEBUGGER")
        try:
            sys.call_tracing(_Nested(self.dialog).run, (arg, frame.f_globals, self._locals()))
        except Exception as error:  # noqa: BLE001 - the user's statement
            self.error(f"{type(error).__name__}: {error}")
        finally:
            sys.settrace(tracer)
        self.message("LEAVING RECURSIVE DEBUGGER")
        self._keep_locals()

    def do_run(self, arg: str) -> None:
        """run
        Not here: `%%on_mesh` runs a cell again.
        """
        self.error("a rank is not started again from here: run the cell again, or `%mesh restart`")

    do_restart = do_run

    def do_clear(self, arg: str) -> bool | None:
        if arg:
            return super().do_clear(arg)
        self.clear_all_breaks()
        self.message("all breakpoints of this debugger are cleared")
        return None

    do_cl = do_clear

    def _cmdloop(self) -> None:
        try:
            self.cmdloop()
        except KeyboardInterrupt:
            self._let_go()
        self._has_talked = True

    def _let_go(self) -> None:
        self._was_interrupted = True
        self.clear_all_breaks()
        self.set_continue()

    def _say_briefly(self, expression: str) -> None:
        frame: Any = self.curframe
        try:
            self.message(brief_text(eval(expression, frame.f_globals, self._locals())))
        except BaseException as error:  # noqa: BLE001 - what the user's expression raises is its answer
            self.message(f"{type(error).__name__}: {error}")

    def _locals(self) -> Any:
        frame: Any = self.curframe
        return frame.f_locals if sys.version_info >= (3, 13) else self.curframe_locals


class _Nested(RankPdb):
    """Steps through a statement that was typed at the prompt of another, whose breakpoints are not its own."""

    def __init__(self, dialog: Dialog) -> None:
        super().__init__(dialog)
        self.prompt = f"({PROMPT.strip()}) "

    def do_quit(self, arg: str) -> bool:
        """q(uit)
        Break the statement off.
        """
        self.set_quit()
        return True

    do_q = do_exit = do_EOF = do_quit


class Inspector(RankPdb):
    """Looks at a thread that goes on meanwhile, from another one: `w`, `u`, `d`, `p`, `ll`; nothing that moves it."""

    def watch(self, frame: FrameType) -> None:
        """Show this frame of another thread, until the user leaves."""
        self.reset()
        outermost = frame
        while outermost.f_back is not None:
            outermost = outermost.f_back
        self.botframe = outermost
        self.interaction(frame, None)

    def onecmd(self, line: str) -> bool:
        word = line.split(maxsplit=1)[0] if line.strip() else ""
        if word in _MOVES:
            self.message("the rank runs on and is only looked at: `q` leaves, `refresh` looks again")
            return False
        return super().onecmd(line)

    def default(self, line: str) -> None:
        if line.startswith("!"):
            super().default(line)
            return
        try:
            compile(line, "<stdin>", "eval")
        except SyntaxError:
            self.error("the rank runs on and is only looked at; `!` in front of a statement runs it all the same")
        else:
            self.do_p(line)

    def do_refresh(self, arg: str) -> None:
        """refresh
        Look again where the thread is now.
        """
        frame = self.look()
        if frame is None:
            self.message("it has ended")
            return
        self.setup(frame, None)
        self.print_stack_entry(self.stack[self.curindex])

    def _keep_locals(self) -> None:
        """Its thread has gone on: what is in the copy is old."""

    look: Callable[[], FrameType | None]
    """Gives the frame in which the thread is now."""


_STEPS = "n next s step c cont continue r return unt until j jump restart run"
_MOVES = frozenset(f"{_STEPS} b break tbreak cl clear debug".split())


def _visible(stack: Stack) -> list[int]:
    """Which of these frames are shown: from the user's first on, without ours; all, where none is the user's."""
    files = [frame.f_code.co_filename for frame, _ in stack]
    first = next((i for i, file in enumerate(files) if is_users(file)), None)
    shown = [i for i, file in enumerate(files) if first is not None and i >= first and not is_ours(file)]
    return shown or list(range(len(stack)))
