"""Whether code is in the midst of loading a module that can be loaded once only: an exception there spoils it for good.

What C has set up when it is broken off stays, and the next import refuses ("cannot load module more than once per
process"), or crashes: torch does.
"""

from __future__ import annotations

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


def _loads_once(frame: FrameType) -> bool:
    if frame.f_code.co_name in _LOADS:  # also where somebody has found the module by himself
        return isinstance(frame.f_locals.get("self"), ExtensionFileLoader)
    if frame.f_code.co_name != _FINDS:
        return False
    spec: ModuleSpec | None = frame.f_locals.get("spec")
    is_whole = str(frame.f_locals.get("name")).partition(".")[0] in _WHOLE
    return is_whole or (spec is not None and isinstance(spec.loader, ExtensionFileLoader))
