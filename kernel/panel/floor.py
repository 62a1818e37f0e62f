"""Who is stopped, and which of them the client shows. Pure: what has happened goes in, what to tell comes out.

JupyterLab's panel knows one stopped thread: the one that it heard of last. It asks for that one's frames when it hears
that it has stopped, and at no other time; when it hears that any thread goes on, it shows nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Show:
    """Tell the client that this one is stopped: it shows it, or shows anew what it has of it."""

    adapter: int
    is_new: bool
    """Was another one shown, or none? Else only the others that are stopped have changed."""


@dataclass(frozen=True, slots=True)
class Hide:
    """Tell the client that the one it shows has gone on."""

    adapter: int


Told = list[Show | Hide]


@dataclass(slots=True)
class Floor:
    """The stopped ones, by number; one is shown. What steps keeps the focus: it is shown again when it stops again.

    Example:
        >>> floor = Floor()
        >>> floor.stopped(2), floor.stopped(1)
        ([Show(adapter=2, is_new=True)], [Show(adapter=2, is_new=False)])
        >>> floor.commanded(2, is_step=True), floor.went(2), floor.stopped(2)
        (None, [Hide(adapter=2)], [Show(adapter=2, is_new=True)])
        >>> floor.commanded(2, is_step=False), floor.went(2)
        (None, [Hide(adapter=2), Show(adapter=1, is_new=True)])
    """

    held: set[int] = field(default_factory=set[int])
    shown: int | None = None
    _focus: int | None = None
    _is_stepping: bool = False

    def stopped(self, adapter: int) -> Told:
        """It has stopped."""
        self.held.add(adapter)
        if adapter == self._focus:
            return self._show(adapter)
        if self.shown is None:
            return [] if self._is_stepping else self._show(adapter)
        return [Show(self.shown, is_new=False)]

    def went(self, adapter: int) -> Told:
        """It goes on, or is gone."""
        if adapter not in self.held:
            return []
        self.held.discard(adapter)
        if adapter != self.shown:
            return [] if self.shown is None else [Show(self.shown, is_new=False)]
        self.shown = None
        return [Hide(adapter), *([] if self._is_stepping else self.waited())]

    def waited(self) -> Told:
        """What steps has had its time: others are shown until it stops."""
        self._is_stepping = False
        return self._show(min(self.held)) if self.shown is None and self.held else []

    def looked(self, adapter: int) -> Told:
        """The user looks at a frame of it."""
        if adapter not in self.held or adapter == self.shown:
            return []
        self._focus, self._is_stepping = adapter, False
        return self._show(adapter)

    def commanded(self, adapter: int, *, is_step: bool) -> None:
        """The user lets it go on; with a step it will stop again, perhaps at once."""
        self._focus, self._is_stepping = (adapter, True) if is_step else (None, False)

    def left(self, adapter: int) -> Told:
        """It stops no more: it has ended, or is debugged no longer."""
        if adapter == self._focus:
            self._focus, self._is_stepping = None, False
        return self.went(adapter)

    def _show(self, adapter: int) -> Told:
        if adapter == self._focus:
            self._is_stepping = False
        is_new, self.shown = self.shown != adapter, adapter
        return [Show(adapter, is_new)]
