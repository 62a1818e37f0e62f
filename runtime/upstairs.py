"""Who stands above the runtime and looks after its users, also in a program that has loaded no magics.

The runtime does not know them: the face of the package, which stands above all, says how each is had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Attendant:
    """A module that is loaded when it is first needed."""

    def __init__(self) -> None:
        self._load: Callable[[], Any] | None = None
        self._module: Any = None

    def come_by(self, load: Callable[[], Any]) -> None:
        """What `load` returns is the module."""
        self._load = load

    @property
    def has_come(self) -> bool:
        """Was it needed before?"""
        return self._module is not None

    def __call__(self) -> Any:
        if self._module is None:
            assert self._load is not None, "the face of the package was never imported"
            self._module = self._load()
        return self._module


porter = Attendant()
"""Talks with who comes in by the hatch, and serves ranks that stop: `receive`, `bring_debugger` and `look`."""

unattended = Attendant()
"""Tells the user of a script what hangs: `look_at_calls()`."""
