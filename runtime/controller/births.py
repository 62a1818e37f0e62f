"""What the controller keeps of the actors that were made from it: who they are, and how to make them again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from ..adverbs import view_of
from ..fleet import owners_of
from ..orders import Birth
from ..shape import Shape
from ..wire.messages import View
from ..wire.outlet import owned
from .reshape import Reshape


@dataclass(slots=True)
class Made:
    """Actors of one class that were made from here."""

    name: str
    class_name: str
    owner: tuple[int, int, int]
    view: View
    ranks: tuple[int, ...]
    failed: set[int] = field(default_factory=set[int])
    """Ranks whose actor has failed for good, though its process may live; also those that a resize has dropped."""
    remaking: set[int] = field(default_factory=set[int])
    """Ranks on which it is being made again: who heals them hears how that goes, and nobody else is told."""


class Births:
    """The actors of one mesh that were made from the controller, by number, in the order in which they were made."""

    def __init__(self) -> None:
        self.made: dict[int, Made] = {}
        """Those that are supervised."""
        self._births: dict[int, Birth] = {}
        self._ended: dict[int, frozenset[int]] = {}  # the ranks on which those had failed that were stopped then

    def homes(self) -> set[int]:
        """The ranks that have some of them."""
        return {rank for made in list(self.made.values()) for rank in made.ranks}

    def note(self, birth: Birth) -> None:
        """An actor is made. Its arguments are kept as they are now: whose they are may change them afterwards."""
        kept = replace(birth, payload=owned(birth.payload))
        # Who runs cells hears of a death by the cell, and who runs a bootstrap by `ready`: neither is supervised.
        if not birth.is_everywhere:
            self.made[birth.actor] = Made(birth.name, birth.class_name, birth.owner, birth.view, birth.ranks)
        self._births[birth.actor] = kept

    def forget(self, actor: int) -> None:
        """An actor was stopped. One that had failed is known for that, and not for its stop."""
        made = self.made.pop(actor, None)
        if made is not None and made.failed:
            self._ended[actor] = frozenset(made.failed)
        self._births.pop(actor, None)

    def again_on(self, ranks: Collection[int]) -> Iterator[tuple[Birth, list[int]]]:
        """What lived on these ranks, which come new, and on which of them: it is to be made again there."""
        for birth in list(self._births.values()):
            if chosen := [rank for rank in birth.ranks if rank in ranks]:
                if birth.actor in self.made:
                    self.made[birth.actor].remaking.update(chosen)
                yield birth, chosen

    def failed(self, actor: int) -> Collection[int]:
        """The ranks on which it has failed for good."""
        made = self.made.get(actor)
        return made.failed if made is not None else self._ended.get(actor, ())

    def owners(self, rank: int) -> dict[tuple[int, int, int], str]:
        """Who owns actors that live on this rank, each with the name of its first mesh there: who failed was told."""
        living = [made for made in list(self.made.values()) if rank not in made.failed]
        return owners_of([(made.name, made.owner, made.ranks) for made in living], rank)

    def reshape(self, plan: Reshape) -> None:
        """The mesh was resized. What users made lives on where ranks keep their numbers, by which it is addressed."""
        view = view_of(Shape.row_major(plan.new))
        whole = tuple(range(plan.num_ranks))
        self._births = {
            actor: replace(birth, view=view, ranks=whole)
            if birth.is_everywhere
            else replace(birth, ranks=plan.renumbered(birth.ranks))
            for actor, birth in list(self._births.items())
            if birth.is_everywhere or (plan.keeps_numbers and plan.renumbered(birth.ranks))
        }
        self.made = {actor: made for actor, made in list(self.made.items()) if actor in self._births}
        for made in list(self.made.values()):
            former, made.ranks = made.ranks, plan.renumbered(made.ranks)
            made.failed |= {*former} - {*made.ranks}
