"""Comms of a rank: what ipywidgets (and anything on the package `comm`) speaks to its other half in the browser with.

A rank has no sockets to a front-end. Its comms send notes to the notebook's kernel, which opens the real ones under the
same ids (`widgets.comms`); what the browser answers comes back as calls, so a callback of the user's runs on the rank's
main thread, when no cell runs there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import comm
import msgspec
from comm.base_comm import BaseComm

from ...runtime.ranks.imports import when_imported

Kind = Literal["comm_open", "comm_msg", "comm_close"]


class CommMessage(msgspec.Struct, frozen=True):
    """One message of a comm, in either direction."""

    kind: Kind
    comm_id: str
    data: dict[str, Any]
    metadata: dict[str, Any] = {}
    buffers: tuple[bytes, ...] = ()
    target_name: str = ""
    target_module: str | None = None


_tell: Callable[[CommMessage], object] | None = None


class RankComm(BaseComm):
    """What `comm.create_comm` makes on a rank."""

    def publish_msg(
        self,
        msg_type: str,
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        buffers: Sequence[Any] | None = None,
        **keys: Any,
    ) -> None:
        copies = tuple(bytes(buffer) for buffer in buffers or ())
        message = CommMessage(cast("Kind", msg_type), self.comm_id, data or {}, metadata or {}, copies, **keys)
        if _tell is not None:
            _tell(message)


def install(tell: Callable[[CommMessage], object]) -> None:
    """Let all comms of this process speak through `tell`, and output widgets catch what is printed and shown here."""
    global _tell
    _tell = tell
    comm.create_comm = RankComm
    when_imported("ipywidgets.widgets.widget_output", _teach_output_widgets)


def heed(message: CommMessage) -> None:
    """Give a comm of this process what came from the browser. What a callback raises is logged, on stderr."""
    manager = comm.get_comm_manager()
    if message.comm_id not in manager.comms:
        return  # it was closed here meanwhile
    handle = manager.comm_close if message.kind == "comm_close" else manager.comm_msg
    content = {"comm_id": message.comm_id, "data": message.data}
    given = {
        "content": content,
        "metadata": message.metadata,
        "buffers": [memoryview(each) for each in message.buffers],
    }
    with _Loud(logging.getLogger("Comm")):
        handle(cast("Any", None), "", cast("Any", given))


class _Loud:
    """A logger's errors reach stderr, whatever the user's code has set up."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._handler = logging.StreamHandler()

    def __enter__(self) -> None:
        self._had_parent, self._logger.propagate = self._logger.propagate, False
        self._logger.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.propagate = self._had_parent


def _teach_output_widgets() -> None:
    """`with Output():` asks the front-end to divert what comes for the cell: here the widget takes it in itself."""
    from .output_widget import teach

    teach()
