"""The Debug Adapter Protocol on a rank: debugpy listens on loopback, and an editor attaches while the rank works.

debugpy knows code by files, and a cell is none: its text is written to one, and debugpy is told that they are the same.
"""

from __future__ import annotations

import importlib
import linecache
import os
import re
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from ..source import name_of

HOST = "127.0.0.1"
"""The protocol knows no secrets: who can connect runs code. So nobody beyond this machine can."""

_USERS_THREADS = "meshbook-actor-"


class Dap:
    """debugpy in this process; it listens once, from the first `listen` on to the end of the process."""

    def __init__(self) -> None:
        self._port = 0
        self._folder = Path()

    @property
    def is_open(self) -> bool:
        return self._port > 0

    @property
    def has_client(self) -> bool:
        """Is an editor attached?"""
        return self.is_open and bool(_module("debugpy").is_client_connected())

    def listen(self, folder: str) -> int:
        """Listen on a port of loopback, which is returned; cells get files in `folder`.

        Raises `ImportError` where there is no debugpy.
        """
        if not self.is_open:
            os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # it would warn on stderr of frozen modules
            debugpy = _module("debugpy")
            _spare_our_threads()
            _, self._port = debugpy.listen((HOST, 0), in_process_debug_adapter=True)
            # Before Python 3.12 it puts a `sys.settrace` of its own in place, which warns of each use.
            _module("pydevd_tracing").restore_sys_set_trace_func()
            self._folder = Path(folder)
            for file, entry in list(linecache.cache.items()):
                if name_of(file) is not None and len(entry) == 4:
                    self._write(file, "".join(entry[2]))
        return self._port

    def begin(self) -> None:
        """A cell or a call begins on this thread, which another debugger may have taken from the editor."""
        if self.has_client:
            _module("debugpy").trace_this_thread(True)

    def know(self, file: str, source: str, first_line: int) -> None:
        """A cell is about to run, under this file name, from this line on."""
        if self.is_open:
            self._write(file, "\n" * (first_line - 1) + source)

    def stop(self, frame: FrameType) -> None:
        """Stop here, in the editor."""
        _module("pydevd").settrace(
            suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame
        )

    def _write(self, file: str, text: str) -> None:
        path = path_of(self._folder, name_of(file) or file)
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_suffix(f".{os.getpid()}")
        own.write_text(text)
        own.replace(path)  # ranks of one machine write the same
        api = _module("_pydevd_bundle.pydevd_api").PyDevdAPI()
        entry = api.SourceMappingEntry(1, text.count("\n") + 1, 1, file)
        debugger = _module("_pydevd_bundle.pydevd_constants").get_global_debugger()
        if trouble := api.set_source_mapping(debugger, str(path), [entry]):
            raise RuntimeError(trouble)


def path_of(folder: Path, name: str) -> Path:
    """The file of a cell.

    >>> path_of(Path("/tmp"), "cell 5").name
    'cell_5.py'
    """
    return folder / f"{re.sub(r'[^a-zA-Z0-9]+', '_', name).strip('_') or 'cell'}.py"


def _spare_our_threads() -> None:
    """A stop in the editor stops all threads: without the control thread nobody could go on."""
    ours = [each for each in threading.enumerate() if each.name.startswith("meshbook-")]
    for thread in (threading.current_thread(), *ours):
        if thread is not threading.main_thread() and not thread.name.startswith(_USERS_THREADS):
            marked: Any = thread
            marked.pydev_do_not_trace = marked.is_pydev_daemon_thread = True


def _module(name: str) -> Any:
    return importlib.import_module(name)
