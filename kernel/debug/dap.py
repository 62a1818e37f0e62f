"""The Debug Adapter Protocol on a rank: debugpy listens at a door, and an editor attaches while the rank works.

debugpy knows code by files, and a cell is none: its text is written to one, and debugpy is told that they are the same.
"""

from __future__ import annotations

import importlib
import linecache
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from ...runtime.groups.waits import ACTOR_THREADS
from ..sources.source import name_of
from .door import Door


class Dap:
    """debugpy in this process; it listens once, from the first `listen` on to the end of the process."""

    def __init__(self) -> None:
        self._door = ""
        self._folder = Path()
        self._places: Mapping[str, str] | None = None
        self._mapped: dict[str, Path] = {}  # by the name under which a cell was compiled: its file
        self._let_run: Callable[[threading.Thread], object] = lambda thread: None

    @property
    def is_open(self) -> bool:
        return bool(self._door)

    @property
    def has_client(self) -> bool:
        """Is an editor attached?"""
        return self.is_open and bool(_module("debugpy").is_client_connected())

    def listen(self, folder: str, places: Mapping[str, str] | None = None) -> str:
        """Listen at a socket, whose path is returned; cells are files in `folder`.

        With `places` they are where that has their names, and cells of the notebook itself are the files that they are
        there. Raises `ImportError` where there is no debugpy or none that can be kept from opening a port, and what
        `Door` raises.
        """
        if not self.is_open:
            self._open(Path(folder) / f"rank-{os.getpid()}")
        self._folder, self._places = Path(folder), places
        for file, entry in list(linecache.cache.items()):
            if name_of(file) is not None and len(entry) == 4:
                self._write(file, "".join(entry[2]))
        return self._door

    def _open(self, path: Path) -> None:
        os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # it would warn on stderr of frozen modules
        _module("debugpy.server.api")  # which lets pydevd be found
        debugpy, pydevd = _module("debugpy"), _module("pydevd")
        if not hasattr(pydevd, "create_server_socket"):
            raise ImportError("this version of debugpy would listen on a port that is open to all users")
        spare_our_threads()
        door, usual = Door(path, _trace_all), pydevd.create_server_socket
        pydevd.create_server_socket = lambda host, port: door  # pyright: ignore[reportUnknownLambdaType]
        try:
            self._door, _ = debugpy.listen(("127.0.0.1", 0), in_process_debug_adapter=True)
        finally:
            pydevd.create_server_socket = usual
        lives = _module("_pydevd_bundle.pydevd_thread_lifecycle")
        self._let_run = partial(lives.internal_run_thread, set_additional_thread_info=lives.set_additional_thread_info)
        _let_run_at_interrupts(_debugger(), self._let_run)
        # Before Python 3.12 it puts a `sys.settrace` of its own in place, which warns of each use.
        _module("pydevd_tracing").restore_sys_set_trace_func()

    def place(self, places: Mapping[str, str]) -> None:
        """Cells of these names that run from now on are these files."""
        if self._places is not None:
            self._places = {**self._places, **places}

    def begin(self) -> None:
        """A cell or a call begins on this thread, which another debugger may have taken from the editor."""
        if self.has_client:
            spare_our_threads()  # those that have come since
            _module("debugpy").trace_this_thread(True)
        elif self.is_open and "pydevd" in type(sys.gettrace()).__module__:
            sys.settrace(None)  # before Python 3.12 it traces on for nobody: calls take 5 times as long

    def rest(self) -> None:
        """The user's code on this thread has ended: a step that it was to end is no longer one, not in our code."""
        self._let_run(threading.current_thread())

    def know(self, file: str, source: str, first_line: int, place: str = "") -> None:
        """A cell is about to run, under this file name, from this line on; `place` is its file in the notebook."""
        if self.is_open:
            if place:
                self.place({name_of(file) or file: place})
            self._write(file, "\n" * (first_line - 1) + source)

    def stop(self, frame: FrameType) -> None:
        """Stop here, in the editor."""
        _module("pydevd").settrace(
            suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame
        )

    def _write(self, file: str, text: str) -> None:
        path = self._path_of(file)
        if self._places is None or not path.exists():  # else the notebook has written it, magics and all
            _replace(path, text)
        if (former := self._mapped.pop(file, path)) != path:
            _map(former, None, 0)
        if str(path) != file:
            self._mapped[file] = path
            _map(path, file, text.count("\n") + 1)

    def _path_of(self, file: str) -> Path:
        name = name_of(file) or file
        if self._places is None:
            return path_of(self._folder, name)
        return Path(file) if Path(file).is_absolute() else Path(self._places.get(name) or path_of(self._folder, name))


def _let_run_at_interrupts(debugger: Any, let_run: Callable[[threading.Thread], object]) -> None:
    """A thread whose stop an interrupt ends is still one that is stopped, for debugpy: the next line would be a stop.

    From Python 3.12 on, where it sees all code, that line is one of ours, in which no interrupt is heard.
    """
    wait = debugger.do_wait_suspend

    def waits(thread: threading.Thread, *args: Any, **options: Any) -> Any:
        try:
            return wait(thread, *args, **options)
        except KeyboardInterrupt:
            let_run(thread)
            raise

    debugger.do_wait_suspend = waits


def _trace_all() -> None:
    """An editor comes: what runs already is traced too. (Cells that began without one are not.)"""
    debugger = _debugger()
    if debugger is not None:
        debugger.enable_tracing(debugger.trace_dispatch, apply_to_all_threads=True)
        debugger.set_tracing_for_untraced_contexts()


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = path.with_suffix(f".{os.getpid()}")
    own.write_text(text)
    own.replace(path)  # ranks of one machine write the same


def _map(path: Path, file: str | None, num_lines: int) -> None:
    """Tell debugpy that this file is what runs under the name `file`, or that it is nothing more."""
    api = _module("_pydevd_bundle.pydevd_api").PyDevdAPI()
    entries = [] if file is None else [api.SourceMappingEntry(1, num_lines, 1, file)]
    if trouble := api.set_source_mapping(_debugger(), str(path), entries):
        raise RuntimeError(trouble)


def path_of(folder: Path, name: str) -> Path:
    """The file of a cell.

    >>> path_of(Path("/tmp"), "cell 5").name
    'cell_5.py'
    """
    return folder / f"{re.sub(r'[^a-zA-Z0-9]+', '_', name).strip('_') or 'cell'}.py"


def spare_our_threads() -> None:
    """A stop in an editor stops all threads of a process: without the control thread nobody could go on."""
    ours = [each for each in threading.enumerate() if each.name.startswith("meshbook-")]
    for thread in (threading.current_thread(), *ours):
        if thread is not threading.main_thread() and not thread.name.startswith(ACTOR_THREADS):
            marked: Any = thread
            marked.pydev_do_not_trace = marked.is_pydev_daemon_thread = True


def _debugger() -> Any:
    return _module("_pydevd_bundle.pydevd_constants").get_global_debugger()


def _module(name: str) -> Any:
    return importlib.import_module(name)
