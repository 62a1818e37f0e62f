"""The notebook's side of comms that ranks have opened: each has a twin here, under the same id.

What a rank's widget says goes out as if the cell that made it had said it; what the browser says goes to that rank.
A rank that ends, or a mesh that goes down, closes its comms: the browser then shows its widgets as disconnected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from comm.base_comm import BaseComm

from ..kernel.comms import CommMessage, Kind
from ..runtime.roster import Roster

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


class Comms:
    """The twins of one notebook, by their ids."""

    def __init__(self) -> None:
        self._twins: dict[str, tuple[Roster, int, Twin]] = {}
        self._watched: set[int] = set()  # meshes by number

    def take(self, roster: Roster, rank: int, message: CommMessage, stage: Publisher, answer: Answer) -> None:
        """A rank's comm has said this. One that it opens speaks as this stage, and is answered by `answer`."""
        if message.kind == "comm_open":
            self._watch(roster)
            self._twins[message.comm_id] = roster, rank, Twin(stage, message, answer)
        elif message.comm_id in self._twins:
            _, _, twin = self._twins[message.comm_id]
            if message.kind == "comm_msg":
                twin.send(message.data, message.metadata, list(message.buffers))
            else:
                del self._twins[message.comm_id]
                twin.close(message.data, message.metadata, list(message.buffers))

    def _watch(self, roster: Roster) -> None:
        if roster.mesh not in self._watched:
            self._watched.add(roster.mesh)
            roster.on_change.append(lambda rank: self._on_change(roster, rank))

    def _on_change(self, roster: Roster, rank: int) -> None:
        """Close the twins of a rank that has ended; on the thread that runs the loop."""
        state = roster.states.get(rank)
        if state is None or state.exit is not None:
            for comm_id, (its_roster, its_rank, twin) in list(self._twins.items()):
                if its_roster is roster and its_rank == rank:
                    del self._twins[comm_id]
                    twin.close()
