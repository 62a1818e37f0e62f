"""The actor that runs cells: one lives on every rank of a mesh that a notebook brought up."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Any

import msgspec

from ..runtime.actor import Actor, control_endpoint, endpoint
from ..runtime.ranks import ledger, waits
from ..runtime.ranks.place import Place, here
from ..runtime.wire import codec
from .cell import CellShell
from .failure import is_users
from .outcome import Display
from .source import lines_text
from .summary import readable

_encode = msgspec.msgpack.Encoder().encode

VALUE_LIMIT = 1 << 20
"""Bytes up to which the value of a cell travels to the notebook by itself; a larger one stays until it is pulled."""


class RankMesh:
    """What `mesh` is in a cell: this rank's place in its mesh.

    `mesh.coord` and `mesh.sizes` map axes to this rank's index and to sizes; `mesh.device_mesh` is a torch
    `DeviceMesh` with these axes by name.
    """

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def rank(self) -> int:
        return self._place.rank

    @property
    def coord(self) -> dict[str, int]:
        return dict(self._place.coord)

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self._place.axes)

    @property
    def device_mesh(self) -> Any:
        """The mesh as torch knows it. Raises `RuntimeError` without process groups (`--pg none`)."""
        if self._place.groups is None:
            raise RuntimeError("this rank has no process groups")
        return self._place.groups.device_mesh

    def __repr__(self) -> str:
        axes = " ".join(f"{axis}={i}/{self.sizes[axis]}" for axis, i in self.coord.items())
        return f"<rank {self.rank} of mesh {axes}>"


def _names_of(place: Place) -> dict[str, object]:
    """What a cell finds of its place in the mesh."""
    return {
        "rank": place.rank,
        "world_size": place.world_size,
        "local_rank": place.local_rank,
        "coord": dict(place.coord),
    }


class KernelActor(Actor):
    """Runs cells in a namespace of its own, which lives as long as the rank."""

    _on_main_thread = True

    def __init__(self) -> None:
        place = here()
        self._place = place
        self._shown = 0
        self._main = threading.get_ident()
        self._sources: dict[int, str] = {}
        self._names = _names_of(place)
        names = {"mesh": RankMesh(place), "device": place.device, **self._names}
        self._cells = CellShell(names, self._show, dumps=codec.dumps, limit=VALUE_LIMIT)
        place.awaited = lambda: self._cells.awaited
        place.movers.append(lambda move: self._rename())

    def _rename(self) -> None:
        """The mesh was resized: names that tell where this rank stands tell it anew, unless the user took them over."""
        namespace = self._cells.namespace
        former, self._names = self._names, _names_of(self._place)
        for name, value in self._names.items():
            if name not in namespace or namespace[name] is former[name]:
                namespace[name] = value

    @endpoint
    def run(
        self, cell: int, key: int, source: str | None, name: str, first_line: int, members: tuple[int, ...]
    ) -> tuple[bool, bytes]:
        """Run a cell; whether it did well, and its encoded `Outcome`.

        `source` is None when this rank has been sent it before under the same `key`; it begins in line `first_line`
        of what the user sees. `members` are the ranks of a
        partial slice (empty: the whole mesh), whose process group the cell finds as `group`.
        """
        if source is not None:
            self._sources[key] = source
        self._provide_group(members)
        outcome = self._cells.run(self._sources[key], run=cell, name=name, first_line=first_line)
        return outcome.failure is None, _encode(outcome)

    @endpoint
    def forget(self, keys: tuple[int, ...]) -> None:
        """Drop sources that the controller will not refer to any more."""
        for key in keys:
            self._sources.pop(key, None)

    @endpoint
    def push(self, names: dict[str, object]) -> None:
        """Put values into the namespace."""
        self._cells.namespace.update(names)

    @endpoint
    def pull(self, name: str, max_bytes: int) -> object:
        """A value of the namespace. Raises `NameError` if there is none, `ValueError` if it is over `max_bytes`."""
        names = self._cells.namespace
        if name not in names:
            raise NameError(f"name {name!r} is not defined on rank {self._place.rank}")
        value = names[name]
        size = codec.encode(value).nbytes
        if size > max_bytes:
            raise ValueError(
                f"{name} is {readable(size)} on rank {self._place.rank}, over the limit of {readable(max_bytes)}: "
                f"ask for it with --max-bytes {size}"
            )
        return value

    @control_endpoint
    def complete(self, text: str, cursor: int) -> tuple[int, list[str]]:
        """Where the word at the cursor begins and what could stand there."""
        return self._cells.complete(text, cursor)

    @control_endpoint
    def where(self) -> str:
        """Which line of which cell runs now, and the collective it waits in, in one line."""
        frame = sys._current_frames().get(self._main)  # pyright: ignore[reportPrivateUsage] - documented all the same
        # Not `extract_stack`, which looks at each file on the disk: ranks are asked this while they work.
        stack = [(each.f_code.co_filename, line) for each, line in traceback.walk_stack(frame)] if frame else []
        lines = lines_text(reversed(stack)) or lines_text(self._cells.suspended_at())
        waiting = waits.current
        return lines + (f", waiting in {waiting[0]}" if waiting is not None else "")

    @control_endpoint
    def ledger(self, limit: int) -> bytes:
        """The last collectives that this rank has issued: an encoded `RankLedger`."""
        return _encode(ledger.read(is_users, limit))

    def _provide_group(self, members: tuple[int, ...]) -> None:
        groups = self._place.groups
        if groups is not None and groups.is_up:
            whole = tuple(range(self._place.world_size))
            self._cells.namespace["group"] = groups.slice_group(members or whole)

    def _show(self, display: Display) -> None:
        self._shown += 1
        # The place in the text first: the reader holds what follows it until the display itself has come.
        self._place.streams.show(self._shown)
        self._place.note("display", msgspec.structs.replace(display, number=self._shown))
