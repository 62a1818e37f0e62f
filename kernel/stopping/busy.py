"""Waits for ranks that may be busy with a cell: it is told whom they are for, and where these are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...runtime.controller.gather import Gather
from ...runtime.ranges import named
from ..failures.interrupted import Interrupted

if TYPE_CHECKING:
    from ..questions import Questions

TOLD_AFTER = 3.0
"""Seconds of silence."""


def wait_for(mesh: Questions, gather: Gather, what: str, then: str = "") -> None:
    """Wait until all ranks have answered; after some seconds say on stderr who has not.

    Raises:
        Interrupted: Ctrl-C ended the wait; the ranks go on, and do what they were asked to do `then`.
    """
    try:
        if not gather.wait(TOLD_AFTER):
            print(f"{what} waits for {places_text(mesh, gather.owing)}", file=sys.stderr)
            gather.wait()
    except KeyboardInterrupt:
        told = f"{what} was stopped, as it waited for {places_text(mesh, gather.owing)}"
        raise Interrupted(f"{told}; {then}" if then else told) from None


def places_text(mesh: Questions, ranks: Sequence[int]) -> str:
    """Example: `ranks 0-1 (at cell 3 line 2), rank 3`."""
    places = mesh.where(ranks)
    by_place: dict[str, list[int]] = {}
    for rank in ranks:
        by_place.setdefault(places.get(rank, ""), []).append(rank)
    return ", ".join(named(at) + (f" (at {place})" if place else "") for place, at in by_place.items())
