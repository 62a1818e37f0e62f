"""Who tells the reader of a cell what its ranks say, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ..run import Progress, Said


class Teller(Protocol):
    """Who tells the reader what ranks say and what becomes of them: `widgets.live.Live` in a notebook.

    Of what a subclass leaves out, it tells nothing.
    """

    def update(self, said: Iterable[Said], now: float) -> None:
        """Take what came, tell what is due."""

    def catch_up(self, said: Iterable[Said], now: float) -> None:
        """Tell all that came: the user is asked something now."""

    def finish(self, now: float) -> None:
        """Tell all that is left."""

    def late(self, said: Iterable[Said], now: float, is_last: bool = False) -> float | None:
        """Tell what came after the end; seconds after which to be called again, if it keeps something back."""

    def tell_failures(self, progress: Progress, owing: Sequence[int]) -> None:
        """Say that ranks failed while others still work."""

    def tell_deaths(self, lost: Mapping[int, str], owing: Sequence[int]) -> None:
        """Say how ranks ended while others still work."""

    def note(self, ranks: Sequence[int], mark: str, line: str) -> None:
        """A line about ranks that they did not say themselves."""
