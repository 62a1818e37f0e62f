"""The IPython shell in which cells run on a rank: no history, no sockets, no terminal."""

# IPython types its own code in part only; this file and magic_shell.py are what touches it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ast
import atexit
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, cast

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult
from traitlets import Type
from traitlets.config import Config

from ..sources.editions import INSTALLED, Editions
from ..sources.heirs import estate, hand_over
from ..sources.source import name_of
from .magic_shell import MagicShell

Publish = Callable[[Mapping[str, object], Mapping[str, object], str | None, bool], None]
"""Called with a mime bundle, its metadata, its display id, and whether it replaces what has that id."""


class _Publisher(DisplayPublisher):
    """What `display()` and figures call."""

    shell: QuietShell

    def publish(
        self,
        data: dict[str, object],
        metadata: dict[str, object] | None = None,
        source: object = None,
        *,
        transient: dict[str, str] | None = None,
        update: bool = False,
        **_: object,
    ) -> None:
        self.shell.publish(data, metadata or {}, (transient or {}).get("display_id"), update)

    def clear_output(self, wait: bool = False) -> None:
        self.shell.clear(wait)


class _Hook(DisplayHook):
    """What `sys.displayhook` is on a rank, for code that user code compiles by itself: `%%capture`, say."""

    shell: Any  # a trait of IPython's, which is a QuietShell here

    def __call__(self, result: object = None) -> None:
        if result is None:
            return
        self.shell.keep_last(result)
        bundle, metadata = self.shell.display_formatter.format(result)
        if bundle:
            self.shell.display_pub.publish(data=bundle, metadata=metadata)  # who captures has put another one there


class QuietShell(MagicShell):
    """An `InteractiveShell` that starts over in a new namespace when told; others run its cells.

    Give it `publish`, `clear` and `keep_last` before its first use. `run_cell` works still, for magics that call it.
    """

    displayhook_class = Type(_Hook)
    display_pub_class = Type(_Publisher)

    publish: Publish
    clear: Callable[[bool], None]
    keep_last: Callable[[object], None]
    """Called with a value that `_` is to be."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(config=_config(), user_module=ModuleType("__main__"), **kwargs)
        atexit.unregister(self.atexit_operations)  # nothing to save; it would clear names that threads still use
        cast("Any", self.compile).format_code_name = _label
        self._transformers = self._count_transformers()
        self.editions = Editions()
        self._former: list[tuple[ModuleType, dict[str, Any]]] = []  # modules that are renewed, and what they had
        # IPython's other call for completions is "provisional" and wants `catch_warnings` around it: those
        # filters are the process's, and a cell may run on another thread meanwhile.
        warnings.filterwarnings("ignore", category=PendingDeprecationWarning, module=r"IPython\.core\.completer")

    def init_virtualenv(self) -> None:
        """Whoever started this process has chosen its Python and its path."""

    def init_prompts(self) -> None:
        """Nobody types at a rank: where `sys.ps1` is there, libraries such as Lightning refuse to train over ranks."""

    def init_sys_modules(self) -> None:
        """`__main__` is registered by `live_in`."""

    def live_in(self, module: ModuleType, names: Mapping[str, object], *, as_main: bool) -> None:
        """Start over in an empty module that holds `names` and IPython's own."""
        if as_main:
            sys.modules["__main__"] = module
        self.user_module, self.user_ns = self.prepare_user_module(module)
        self.ns_table.update(user_global=module.__dict__, user_local=self.user_ns)
        self.Completer.namespace = self.Completer.global_namespace = self.user_ns
        self.user_ns_hidden.clear()
        self.init_user_ns()
        for listing in ("In", "Out", "_ih"):
            del self.user_ns[listing]  # always empty here: nothing is kept of what ran before
        self.user_ns.update(names)
        self.user_ns_hidden.update(names)

    @property
    def has_default_syntax(self) -> bool:
        return self._transformers == self._count_transformers()

    @property
    def future_flags(self) -> int:
        return self._future_flags

    @future_flags.setter
    def future_flags(self, flags: int) -> None:
        self._future_flags = flags
        self.compile.flags |= flags  # magics such as %timeit compile with these

    _future_flags = 0
    _is_reloading = False
    _num_modules = 0

    def autoreload(self, is_on: bool) -> None:
        """Let IPython's autoreload renew modules whose files have changed before each cell, or do so no more.

        Who has asked for it in a cell keeps it.
        """
        if is_on != self._is_reloading:
            self._is_reloading = is_on
            cast("Any", self.extension_manager).load_extension("autoreload")
            # It logs what it prints: without a handler, stderr would show the same traceback twice.
            logging.getLogger("autoreload").addHandler(logging.NullHandler())
            self.run_line_magic("autoreload", "2" if is_on else "0")
            self._tell_of_stale()
        if is_on and len(sys.modules) != self._num_modules:
            self._num_modules = len(sys.modules)
            self._skip_installed()

    def _tell_of_stale(self) -> None:
        """Else it takes the files as they are now for those that were imported."""
        getattr(self._reloader, "modules_mtimes", {}).update(self.editions.stale())

    def _reload_whole(self) -> None:
        """Modules that have changed are to be run anew from their first line to their last.

        IPython 9 compiles what has changed by itself, and counts its lines from 1: errors and the debugger would show
        other lines, breakpoints would not be met. And where one edit was taken whole, as the first often is, those
        after it would not come to the modules that have imported the class.
        """
        if (deduper := getattr(self._reloader, "deduper_reloader", None)) is not None:
            deduper.enabled = False  # by itself too little: `%autoreload` sets it each time
            deduper.maybe_reload_module = self._decline

    def _decline(self, module: ModuleType) -> bool:
        """What IPython gives where it cannot renew a part of a module, and so renews all of it."""
        self._former.append((module, estate(module)))
        return False

    def _settle(self) -> None:
        """Who has imported something of the modules that were renewed has the new one."""
        while self._former:
            module, former = self._former.pop()
            hand_over(former, module, self.user_ns)

    @property
    def _reloader(self) -> Any:
        """IPython's own affair: None, or without what we look for there, in a version that has it otherwise."""
        return getattr(self.magics_manager.registry.get("AutoreloadMagics"), "_reloader", None)

    def _skip_installed(self) -> None:
        """What is installed does not change under the user's hands: to look at it would cost each cell 10 ms.

        A reloader that cannot be told so looks at all of them.
        """
        skip = getattr(self._reloader, "mark_module_skipped", None)
        if skip is None:
            return
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(INSTALLED):
                skip(name)

    def translated(self, source: str) -> str:
        return str(self.transform_cell(source))

    def rewritten(self, tree: ast.Module) -> ast.Module:
        return cast("ast.Module", self.transform_ast(tree)) if self.ast_transformers else tree

    def _count_transformers(self) -> tuple[int, ...]:
        given = self.input_transformer_manager
        kinds = (given.cleanup_transforms, given.line_transforms, given.token_transformers)
        return (*map(len, kinds), len(self.input_transformers_post), len(self.ast_transformers))

    def before_cell(self, source: str) -> ExecutionResult:
        """Tell the extensions (autoreload) that a cell starts; give what this returns to `after_cell`."""
        info = ExecutionInfo(source, False, False, True, None)
        info.transformed_cell = source
        result = ExecutionResult(info)
        self._tell("pre_execute")
        if self.events.callbacks["pre_run_cell"]:  # autoreload is among them, if it is on
            self._reload_whole()
            self.events.trigger("pre_run_cell", info)
            self._settle()
        return result

    def after_cell(self, result: ExecutionResult) -> None:
        """Tell the extensions, and matplotlib, which shows the open figures, that a cell has ended."""
        self.editions.look()
        self._tell("post_execute")
        self._tell("post_run_cell", result)

    def _tell(self, event: str, *args: object) -> None:
        if self.events.callbacks[event]:
            self.events.trigger(event, *args)

    def show(self, *values: object, display_id: str | None = None, update: bool = False) -> None:
        """`display` of this shell; the one in `IPython.display` speaks to the shell of the process."""
        for value in values:
            bundle, metadata = cast("Any", self.display_formatter).format(value)
            if bundle:
                self.publish(bundle, metadata, display_id, update)

    def prints(self, error: BaseException) -> bool:
        """Has the user asked for another traceback than Python's, by `%xmode` or in a class of theirs?"""
        if isinstance(error, KeyboardInterrupt):  # it comes to all ranks at once, and has its line
            return False
        is_own = hasattr(error, "_render_traceback_") or isinstance(error, UsageError)
        return is_own or self.InteractiveTB.mode != "Context"

    def printed_error(self, error: BaseException) -> list[str]:
        """Its traceback as `%xmode` or its class wants it, in parts to be joined; whole, as it hangs on the error.

        Raises what a user's `repr` or `_render_traceback_` raises.
        """
        try:
            if isinstance(error, UsageError):
                return [f"UsageError: {error}"]
            if hasattr(error, "_render_traceback_"):
                return list(cast("Any", error)._render_traceback_())
            return self.InteractiveTB.structured_traceback(type(error), error, error.__traceback__, tb_offset=0)
        finally:
            # The formatter keeps the traceback, and with its frames all the cell's tensors.
            formatter: Any = self.InteractiveTB
            formatter.tb = formatter.etype = formatter.evalue = None


def _config() -> Config:
    return Config(
        {
            "HistoryManager": {"enabled": False},
            "InteractiveShell": {"cache_size": 0, "autocall": 0},
            "IPCompleter": {"use_jedi": False, "evaluation": "limited"},
        }
    )


def _label(file: str) -> tuple[str, str] | None:
    """What IPython's tracebacks call a cell: "Cell 5, line 3"."""
    name = name_of(file)
    if name is None:
        return None
    word, _, rest = name.partition(" ")
    return (word.capitalize(), rest) if rest else ("Cell", name)
