"""A module that starts processes as it is imported: each of them would import it for its actors, and start some."""

from __future__ import annotations

import sys
from types import FrameType

from ..errors import marked
from ..wire import codec


def refuse_unguarded() -> None:
    """Raise `RuntimeError` where this is called by a module that is imported because something of it is unpickled.

    Without end, a rank that unpickles an actor's class would start ranks that unpickle it. `multiprocessing` refuses
    the same.
    """
    module = _imported_by_decode()
    if module:
        what = f"module {module} starts processes as it is imported, and its ranks import it too"
        raise marked(
            RuntimeError(f'{what}: put what starts them under `if __name__ == "__main__":` or into a function')
        )


def _imported_by_decode() -> str:
    """The module whose import this thread is in, if unpickling has led to it; the one nearest to that."""
    module = ""
    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage] - it is documented
    while frame is not None and frame.f_code is not codec.decode.__code__:
        if frame.f_code.co_name == "<module>":
            module = str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return module if frame is not None else ""
