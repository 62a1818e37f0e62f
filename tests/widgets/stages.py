"""Stages for tests: one writes down what happens on it, one shows what a page would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshbook.widgets.stage import StreamName


class Paper:
    """A stage that writes down what happens on it."""

    can_update = True

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.shown: list[tuple[dict[str, object], str | None, bool]] = []
        """The displays: their bundle, their id, and whether each is an update."""

    @property
    def ids(self) -> list[str | None]:
        return [display_id for _, display_id, _ in self.shown]

    def write(self, text: str, stream: StreamName = "stdout") -> None:
        self.events.append((stream, text))

    def display(
        self,
        data: Mapping[str, object],
        metadata: Mapping[str, object] | None = None,
        display_id: str | None = None,
        update: bool = False,
    ) -> None:
        self.events.append(("update" if update else "display", data["text/plain"]))
        self.shown.append((dict(data), display_id, update))

    def clear(self, wait: bool = False) -> None:
        self.events.append(("clear", wait))

    def leave(self) -> None: ...


class Page(Paper):
    """A stage that, like a page, shows each display where it first stood, in its last state."""

    def __init__(self, can_update: bool = True) -> None:
        super().__init__()
        self.can_update = can_update
        self.num_messages = self.num_put = 0
        self._places: dict[str, str] = {}

    def write(self, text: str, stream: StreamName = "stdout") -> None:
        self._put(f"stream {len(self._places)}", text, False)

    def display(
        self,
        data: Mapping[str, object],
        metadata: Mapping[str, object] | None = None,
        display_id: str | None = None,
        update: bool = False,
    ) -> None:
        self.shown.append((dict(data), display_id, update))
        self._put(display_id or f"display {len(self._places)}", f"[{data.get('text/plain', '')}]\n", update)

    def _put(self, place: str, text: str, update: bool) -> None:
        assert update == (place in self._places)
        self.num_messages += 1
        self.num_put += not update
        self._places[place] = text

    @property
    def blocks(self) -> list[str]:
        """What stands on it, from above: a display in brackets."""
        return list(self._places.values())

    @property
    def text(self) -> str:
        return "".join(self.blocks)
