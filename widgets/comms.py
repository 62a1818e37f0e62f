"""The notebook's side of comms that ranks have opened: each has a twin here, under the same id.

What a rank's widget says goes out as if the cell that made it had said it; what the browser says goes to that rank.
A rank that ends, or a mesh that goes down, closes its comms: the browser then shows its widgets as disconnected. So
does a resize that gives ranks other numbers: what the browser says would come to another rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from comm.base_comm import BaseComm

from ..kernel.ranks.comms import CommMessage, Kind
from ..runtime.controller.roster import Roster

Answer = Callable[[CommMessage], object]
"""Passes on what the browser says."""


class Publisher(Protocol):
    """Sends messages to the front-end in the name of a cell: a `NotebookStage`."""

    def publish(
        self, kind: str, content: Mapping[str, object], metadata: Mapping[str, object], buffers: Sequence[bytes]
    ) -> None: ...


class Twin(BaseComm):
    """A comm of the notebook's kernel that stands for one of a rank."""

    def __init__(self, stage: Publisher, message: CommMessage, answer: Answer) -> None:
        self._stage = stage
        super().__init__(
            target_name=message.target_name,
            data=message.data,
            metadata=message.metadata,
            buffers=list(message.buffers),
            comm_id=message.comm_id,
            target_module=message.target_module,
        )
        self._answer = answer
        self.on_msg(lambda said: self._pass_on("comm_msg", said))
        self.on_close(lambda said: self._pass_on("comm_close", said))

    def _pass_on(self, kind: Kind, said: dict[str, Any]) -> None:
        buffers = tuple(bytes(buffer) for buffer in said.get("buffers", ()))
        self._answer(CommMessage(kind, self.comm_id, said["content"].get("data", {}), {}, buffers))

    def publish_msg(
        self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
    ) -> None:
        content: dict[str, object] = {"data": data or {}, "comm_id": self.comm_id, **keys}
        self._stage.publish(msg_type, content, metadata or {}, buffers or [])


class _Home(NamedTuple):
    """Where the comm is that a twin stands for."""

    roster: Roster
    mesh: int
    """The number of the mesh; another one says that its ranks have other numbers."""
    rank: int


class Comms:
    """The twins of one notebook, by their ids."""

    def __init__(self) -> None:
        self._twins: dict[str, tuple[_Home, Twin]] = {}
        self._meshes: WeakKeyDictionary[Roster, int] = WeakKeyDictionary()  # those watched, with their numbers

    def take(self, roster: Roster, rank: int, message: CommMessage, stage: Publisher, answer: Answer) -> None:
        """A rank's comm has said this. One that it opens speaks as this stage, and is answered by `answer`."""
        if message.kind == "comm_open":
            self._watch(roster)
            self._twins[message.comm_id] = _Home(roster, roster.mesh, rank), Twin(stage, message, answer)
        elif message.comm_id in self._twins:
            _, twin = self._twins[message.comm_id]
            if message.kind == "comm_msg":
                twin.send(message.data, message.metadata, list(message.buffers))
            else:
                del self._twins[message.comm_id]
                twin.close(message.data, message.metadata, list(message.buffers))

    def _watch(self, roster: Roster) -> None:
        if roster not in self._meshes:
            self._meshes[roster] = roster.mesh
            roster.on_change.append(lambda rank: self._on_change(roster, rank))

    def _on_change(self, roster: Roster, rank: int) -> None:
        """Close the twins of a rank that has ended, and all where ranks got other numbers; on the loop's thread."""
        state = roster.states.get(rank)
        has_ended = state is None or state.exit is not None
        if has_ended or roster.mesh != self._meshes[roster]:
            self._meshes[roster] = roster.mesh
            for comm_id, (home, twin) in list(self._twins.items()):
                if home.roster is roster and (home.mesh != roster.mesh or (has_ended and home.rank == rank)):
                    del self._twins[comm_id]
                    twin.close()
