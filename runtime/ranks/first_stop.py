"""The first `breakpoint()` of a rank that runs no cells: its debugger comes when it is wanted, from the controller.

Python's own debugger would ask on a stdin that leads nowhere, and end the endpoint.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from ..controller.root_services import ask_root
from ..errors import MeshbookError
from ..here import node
from .imports import when_imported
from .place import Place

PATIENCE = 10.0
"""Seconds that the debugger may take to come: it is imported on both sides."""


class _OfTorch:
    """What `torch.distributed.breakpoint(rank=0)` takes for its debugger; that of torch reads from /dev/stdin."""

    def __init__(self, stop: Callable[[FrameType], None]) -> None:
        self._stop = stop

    def message(self, msg: str) -> None:
        """Torch says here how to get to the frame that has called it: the prompt is there at once."""

    def set_trace(self) -> None:
        self._stop(sys._getframe(2))  # pyright: ignore[reportPrivateUsage] - documented; 1 is torch's own


def install(place: Place) -> None:
    """From now on `breakpoint()` and `pdb.set_trace()` ask the controller for a debugger. Cells bring their own."""
    own = os.getpid()

    def stop(frame: FrameType) -> None:
        if os.getpid() != own:
            where = f"{frame.f_code.co_filename} line {frame.f_lineno}"
            print(f"passed over: breakpoint at {where} in a forked child of rank {place.rank}", file=sys.stderr)
            return
        if place.stop is None:
            try:
                ask_root(node(), "bring_debugger", node().address[0]).get(PATIENCE)
            except (MeshbookError, RuntimeError, TimeoutError) as error:  # no reason for the user's code to fail
                print(f"passed over: breakpoint at line {frame.f_lineno}: no debugger came: {error}", file=sys.stderr)
        if place.stop is not None:
            place.stop(frame)

    def on_breakpoint(*args: Any, **options: Any) -> Any:
        if os.environ.get("PYTHONBREAKPOINT"):  # "0", or a debugger of the user's own
            return sys.__breakpointhook__(*args, **options)
        return stop(sys._getframe(1))  # pyright: ignore[reportPrivateUsage] - documented all the same

    def set_trace(**_: object) -> None:
        stop(sys._getframe(1))  # pyright: ignore[reportPrivateUsage] - as above

    def replace() -> None:
        setattr(sys.modules["pdb"], "set_trace", set_trace)  # noqa: B010 - a module has no such attribute to a checker

    def replace_of_torch() -> None:
        for name in {"_make_distributed_pdb", "_DistributedPdb"} & vars(sys.modules["torch.distributed"]).keys():
            setattr(sys.modules["torch.distributed"], name, partial(_OfTorch, stop))

    sys.breakpointhook = on_breakpoint
    when_imported("pdb", replace)
    when_imported("torch.distributed", replace_of_torch)
