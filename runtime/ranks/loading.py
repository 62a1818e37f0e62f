"""Whether code is in the midst of loading a module that can be loaded once only: an exception there spoils it for good.

What C has set up when it is broken off stays, and the next import refuses ("cannot load module more than once per
process"), or crashes: torch does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import FrameType

_WHOLE = ("numpy", "torch")
"""Packages whose Python sets up what is in C, too: of them every import is to come to its end."""

_IMPORTLIB = "<frozen importlib._bootstrap"
_FINDS, _LOADS = "_find_and_load_unlocked", ("create_module", "exec_module")


def is_loading(frame: FrameType | None) -> bool:
    """Does this frame, or one that has led to it, load a C extension, or one of those packages?"""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTLIB) and _loads_once(frame):
            return True
        frame = frame.f_back
    return False


def after_loading(frame: FrameType | None, act: Callable[[], object]) -> None:
    """As soon as all has been loaded that `frame` is in the midst of, call `act`, which may raise, where it was wanted.

    Not where a debugger traces this thread.
    """
    importer = _importer(frame)
    if importer is None or sys.gettrace() is not None:
        return

    def pass_over(own: FrameType, event: str, arg: object) -> None:
        """Trace no other frame."""

    def step(own: FrameType, event: str, arg: object) -> None:
        importer.f_trace = None
        if sys.gettrace() is pass_over:
            sys.settrace(None)
        act()

    importer.f_trace = step
    sys.settrace(pass_over)


def _importer(frame: FrameType | None) -> FrameType | None:
    """The frame that waits for the outermost import which is to come to its end."""
    outermost: FrameType | None = None
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTLIB) and _loads_once(frame):
            outermost = frame
        frame = frame.f_back
    while outermost is not None and outermost.f_code.co_filename.startswith(_IMPORTLIB):
        outermost = outermost.f_back
    return outermost


def _loads_once(frame: FrameType) -> bool:
    if frame.f_code.co_name in _LOADS:  # also where somebody has found the module by himself
        return isinstance(frame.f_locals.get("self"), ExtensionFileLoader)
    if frame.f_code.co_name != _FINDS:
        return False
    spec: ModuleSpec | None = frame.f_locals.get("spec")
    is_whole = str(frame.f_locals.get("name")).partition(".")[0] in _WHOLE
    return is_whole or (spec is not None and isinstance(spec.loader, ExtensionFileLoader))
