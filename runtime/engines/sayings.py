"""What a rank printed, in a form that travels between an agent and its controller."""

from __future__ import annotations

from collections.abc import Sequence

from ..wire.tape import Ended, Event, Shown, Text

Saying = tuple[str, int, str | int]


def sayings(events: Sequence[Event]) -> tuple[Saying, ...]:
    """Events to plain tuples: kind, run, and text or number.

    Example:
        >>> events = [Text(3, "stdout", "hi"), Shown(3, 1), Ended(3)]
        >>> sayings(events)
        (('stdout', 3, 'hi'), ('shown', 3, 1), ('ended', 3, 0))
        >>> events_of(sayings(events)) == events
        True
    """
    return tuple(_saying(event) for event in events)


def _saying(event: Event) -> Saying:
    if isinstance(event, Text):
        return event.stream, event.run, event.text
    return ("shown", event.run, event.number) if isinstance(event, Shown) else ("ended", event.run, 0)


def events_of(said: Sequence[Saying]) -> list[Event]:
    """The way back."""
    return [_event(*each) for each in said]


def _event(kind: str, run: int, what: str | int) -> Event:
    if kind == "shown":
        return Shown(run, int(what))
    return Ended(run) if kind == "ended" else Text(run, "stderr" if kind == "stderr" else "stdout", str(what))
