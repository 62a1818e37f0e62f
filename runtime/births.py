"""What the controller keeps of the actors that were made from it: who they are, and how to make them again."""

from __future__ import annotations

from dataclasses import dataclass, field

from .wire.codec import Encoded
from .wire.messages import View


@dataclass(slots=True)
class Made:
    """Actors of one class that were made from here."""

    name: str
    class_name: str
    owner: tuple[int, int, int]
    view: View
    ranks: tuple[int, ...]
    failed: set[int] = field(default_factory=set[int])
    """Ranks whose actor has failed for good, though its process may live."""


@dataclass(frozen=True, slots=True)
class Birth:
    """How actors were made: what it takes to make one again on a rank that was restarted.

    Large arguments are kept as references: an array that the notebook has changed since is as it is now.
    """

    name: str
    view: View
    owner: tuple[int, int, int]
    payload: Encoded
    on_main: bool
    ranks: tuple[int, ...]
