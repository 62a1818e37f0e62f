"""What a rank prints and shows, in its order: text comes by the pipe, displays by the data lane. Pure."""

from __future__ import annotations

from collections import deque

from ...runtime.wire.tape import Event, Shown, Text
from ..outcome import Display


class DisplayOrder:
    """Puts the displays of one rank back to their marks in its text.

    Example:
        >>> rank = DisplayOrder()
        >>> rank.on_event(Text(1, "stdout", "before ")), rank.on_event(Shown(1, 7))
        ([Text(run=1, stream='stdout', text='before ')], [])
        >>> rank.on_event(Text(1, "stdout", "after"))
        []
        >>> [type(item).__name__ for item in rank.on_display(Display(1, 7, {"text/plain": "x"}))]
        ['Display', 'Text']
    """

    def __init__(self) -> None:
        self._held: deque[Event] = deque()  # from a mark on whose display has not come
        self._early: dict[int, Display] = {}  # displays whose mark has not come

    def on_event(self, event: Event) -> list[Text | Display]:
        """What can be told now that this came through the pipe."""
        self._held.append(event)
        return self._ready()

    def on_display(self, display: Display) -> list[Text | Display]:
        """What can be told now that this display came."""
        self._early[display.number] = display
        return self._ready()

    def rest(self) -> list[Text | Display]:
        """Everything that is held, at the end of the rank: a mark without its display tells nothing."""
        held = [event for event in self._held if isinstance(event, Text)]
        early = list(self._early.values())
        self._held.clear()
        self._early.clear()
        return [*held, *early]

    def _ready(self) -> list[Text | Display]:
        ready: list[Text | Display] = []
        while self._held:
            event = self._held[0]
            if isinstance(event, Shown):
                if event.number not in self._early:
                    break
                ready.append(self._early.pop(event.number))
            elif isinstance(event, Text):
                ready.append(event)
            self._held.popleft()
        return ready
