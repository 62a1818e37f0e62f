"""What IPython's magics do on a rank: scripts, commands, packages. What wants a screen or an editor is refused."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, cast

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from .command import code_of
from .packages import MANAGERS, a_turn, answered


class MagicShell(InteractiveShell):
    """An `InteractiveShell` without a user who could answer: its magics end, and what they raise fails the cell."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_hook("show_in_pager", _print_page)
        self.set_hook("editor", _refuse_editor)
        cast("Any", self).set_next_input = _refuse_next

    def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
        if reason := refusal(magic_name, line):
            raise UsageError(reason)
        if magic_name not in MANAGERS:
            return super().run_line_magic(magic_name, line, _stack_depth + 1)
        with a_turn():
            ran = super().run_line_magic(magic_name, answered(magic_name, line), _stack_depth + 1)
        print("On ranks that is `%mesh restart`.")  # below IPython's note that the kernel may want a restart
        return ran

    def system(self, cmd: str) -> None:
        """`!cmd`: a child that writes to our own file descriptors, after what was printed before it."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        command = str(self.var_expand(cmd, depth=1))
        code = code_of(command)
        self.user_ns["_exit_code"] = code
        if code and getattr(self, "system_raise_on_error", False):  # IPython 9.13 and later
            raise subprocess.CalledProcessError(code, cmd)

    def safe_execfile(self, fname: Any, *where: Any, exit_ignore: bool = False, **options: Any) -> None:
        """`%run FILE`: what it raises fails the cell. IPython prints it, and goes on."""
        try:
            super().safe_execfile(fname, *where, exit_ignore=exit_ignore, **(options | {"raise_exceptions": True}))
        except SystemExit:
            if not exit_ignore:
                raise
        except BaseException:
            self._keep_names(where[0])
            raise

    def new_main_mod(self, filename: str, modname: str) -> ModuleType:
        """The `__main__` of a script: IPython takes from one that runs again what `multiprocessing` asks it for."""
        module = super().new_main_mod(filename, modname)
        module.__dict__.setdefault("__spec__", None)
        return module

    def safe_run_module(self, mod_name: str, where: dict[str, Any]) -> None:
        """`%run -m MODULE`, likewise."""
        try:
            where.update(runpy.run_module(mod_name, run_name="__main__", alter_sys=True))
        except SystemExit as end:
            if end.code:
                raise

    def _keep_names(self, names: Mapping[str, object]) -> None:
        """Those that a script had set when it failed, as IPython does at its end."""
        self.user_ns.update({name: value for name, value in names.items() if name not in ("__name__", "__file__")})

    def enable_gui(self, gui: str | None = None) -> None:
        """`%matplotlib inline` asks for no window; a rank has none to give."""
        if gui:
            raise UsageError(f"a rank has no screen for {gui!r}: use `%matplotlib inline`")

    def ask_exit(self) -> None:
        """`exit` and `quit` in a cell."""
        raise SystemExit


def refusal(magic: str, line: str) -> str:
    """Why a line magic of IPython's would find nothing on a rank, and where to look instead; empty for all others.

    Example:
        >>> refusal("debug", "")
        'the error of a cell before is looked into by `%mesh debug --pm`, in a cell of its own'
        >>> refusal("debug", "f(3)")
        ''
    """
    if magic == "pdb":
        return "ranks stop where a cell fails with `%%on_mesh --on-error debug`"
    if magic in ("debug", "tb") and not line.strip():
        return "the error of a cell before is looked into by `%mesh debug --pm`, in a cell of its own"
    return ""


def _refuse_editor(*_: object) -> None:
    """`%edit`."""
    raise UsageError("a rank has no editor: edit the file, or the cell, in the notebook")


def _refuse_next(*_: object, **__: object) -> None:
    """`%load` and `%recall` write what they find into a cell."""
    raise UsageError("a rank writes into no cell: use this magic in a cell of the notebook itself")


def _print_page(shell: MagicShell, data: str | dict[str, str], start: int = 0, screen_lines: int = 0) -> None:
    """`name?`: a rank has no pager, so the page is printed."""
    print(data.get("text/plain", "") if isinstance(data, dict) else data)
