"""A cell that was sent while another one was under way: it does not begin where that one has failed.

Other ranks are still in that one, and are about to leave it: what this one issued in their groups meanwhile would meet
what they wait in.
"""

from __future__ import annotations

from typing import NamedTuple

from ..outcome import Failure, Outcome


class Behind(NamedTuple):
    """The cell that is to end first."""

    cell: int
    """Its number; 0: there is none."""
    name: str

    @property
    def refusal(self) -> Outcome:
        """How a cell ends that does not begin.

        Example:
            >>> Behind(3, "cell 4").refusal.failure.message
            'not run: cell 4, which was to end first, has failed here'
        """
        said = f"not run: {self.name}, which was to end first, has failed here"
        return Outcome(failure=Failure("RuntimeError", said, (), f"RuntimeError: {said}"))


NOTHING = Behind(0, "")
