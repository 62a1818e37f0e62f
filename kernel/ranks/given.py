"""Names that cells find without having set them: where the rank stands, its device, the process group of its slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.groups.groups import Groups
from ...runtime.ranks.place import Place
from ..failures.cut_off import NO_STORE

_NOTE = "note: `{name}` has been set, for later cells too: `del {name}` brings back {what}"

_TOLD = {
    "rank": "the number of the rank",
    "local_rank": "the rank's number on its host",
    "world_size": "the number of ranks",
    "coord": "the place of the rank",
    "group": "the process group of each cell's slice",
}
"""What may be missed where a cell takes such a name for something else, as LoRA's `rank = 8` and loops do."""


class Given:
    """Keeps these names up to date in a namespace, unless the user has taken one over; `del` brings it back."""

    def __init__(self, namespace: dict[str, Any], names: Mapping[str, object], hidden: dict[str, Any]) -> None:
        """`names` are there already. What is in `hidden` too, `%who` does not list."""
        self._namespace = namespace
        self._hidden = hidden
        self._names = dict(names)
        self._taken: set[str] = set()
        self.first = dict(namespace)
        """What was there before the first cell, as it is now."""

    def move(self, place: Place) -> None:
        """The mesh was resized: names that tell where this rank stands tell it anew."""
        for name, value in names_of(place).items():
            self._give(name, value)

    def replace_group(self, group: object) -> list[object]:
        """The process group of the next cell; what it was until now, wherever we held it."""
        former = [self._names.get("group")]
        if self._is_ours("group"):
            former.append(self._namespace.pop("group", None))
        self._give("group", group)
        return former

    def restore(self) -> None:
        """Before a cell: bring back what was deleted."""
        for name, value in self._names.items():
            self._namespace.setdefault(name, value)
            self._hidden.setdefault(name, value)  # `%reset` has emptied both

    def notes(self) -> list[str]:
        """After a cell: what it has taken over, each told once."""
        taken = {name for name in _TOLD if name in self._names and not self._is_ours(name)}
        fresh, self._taken = taken - self._taken, taken
        return [_NOTE.format(name=name, what=_TOLD[name]) for name in _TOLD if name in fresh]

    def _give(self, name: str, value: object) -> None:
        if self._is_ours(name):
            self._namespace[name] = value
        self._names[name] = self.first[name] = self._hidden[name] = value

    def _is_ours(self, name: str) -> bool:
        if name not in self._namespace:
            return True
        found, given = self._namespace[name], self._names.get(name)
        return found is given or (type(found) is int and found == given)


def names_of(place: Place) -> dict[str, object]:
    """What a cell finds of its place in the mesh."""
    return {
        "rank": place.rank,
        "world_size": place.world_size,
        "local_rank": place.local_rank,
        "coord": dict(place.coord),
    }


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


class _NoGroup:
    """What `group` is where it cannot be made now: most cells do not ask for it."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no process group of this slice: {self._why}")

    def __repr__(self) -> str:  # torch shows it in an error of its own
        return f"<no process group of this slice: {self._why}>"


def group_of(groups: Groups, members: tuple[int, ...], has_store: bool) -> Any:
    """What `group` is in a cell for these ranks; without a store that answers, no new one is made."""
    if groups.whole_group is None and groups.trouble:
        return _NoGroup(f"new ones could not be made here: {groups.trouble}; `%mesh unstick` tries again")
    if groups.whole_group is None:
        return _NoGroup("there is no default one any more; `%mesh unstick` or `dist.init_process_group()` makes one")
    if not has_store and not groups.has_slice(members):
        return _NoGroup(f"rank {groups.plan.store_rank}, which serves their store, is stopped")
    try:
        return groups.slice_group(members)
    except RuntimeError as error:  # of torch: the rank that serves the store has just gone
        return _NoGroup(f"rank {groups.plan.store_rank}, {NO_STORE}: {error}")
