"""Names that cells find without having set them: where the rank stands, its device, the process group of its slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime.ranks.place import Place

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
