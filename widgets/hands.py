"""What clicking in a dashboard does, as the dashboard sees it: it asks, and is told in a line what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Deed:
    """What came of a click: a line, perhaps a longer text, and what the same button would do next."""

    text: str
    detail: str = ""
    next: str = ""


class Hands(Protocol):
    """Who does what is clicked: `magics.dash.MeshHands`. Called on threads of their own; may take its time."""

    def do(self, action: str, ranks: Sequence[int], runs: Sequence[int]) -> Deed:
        """Do it to these ranks; where it is meant for what runs, only to those that work on one of `runs`."""
        ...
