"""Which operation comes next: by chance, and by what is possible. A seed gives one story."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Operation(NamedTuple):
    """A method of a world, and its arguments."""

    name: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


class Chooser:
    """Chooses among kinds of operations, each with its weight; a kind that is not possible now gives None."""

    _kinds: Mapping[Callable[[], Operation | None], float]

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def next(self) -> Operation:
        while True:
            kind = self._random.choices(list(self._kinds), list(self._kinds.values()))[0]
            if (operation := kind()) is not None:
                return operation

    def _one(self, of: Sequence[T]) -> T | None:
        return self._random.choice(of) if of else None

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance
