"""`%mesh watch`: a number of every rank over time, drawn in the cell that asked for it while other cells run."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError

from ..kernel.dashboard.watch import Watch
from ..kernel.ranks.reading import check
from ..widgets.stage import NotebookStage
from ..widgets.watch import WatchView
from .book import Book
from .inquiries import Watch as WatchArgs


class Watches:
    """The watches of one notebook."""

    def __init__(self, shell: Any, book: Book) -> None:
        self._shell = shell
        self._book = book
        self._watches: list[Watch] = []

    def do(self, args: WatchArgs) -> None:
        """Start one, or stop those that there are."""
        self._watches = [watch for watch in self._watches if not watch.is_over]
        if args.stop:
            self.stop(args.expr)
        else:
            self._start(args)

    def stop(self, path: str = "") -> None:
        """End the watches of this number, or all."""
        chosen = [watch for watch in self._watches if path in ("", watch.path)]
        if path and not chosen:
            names = ", ".join(watch.path for watch in self._watches) or "nothing"
            raise UsageError(f"%mesh watch --stop: '{path}' is not watched; {names} is")
        for watch in chosen:
            watch.stop()
            self._watches.remove(watch)

    def _start(self, args: WatchArgs) -> None:
        try:
            check(args.expr)
        except ValueError as error:
            raise UsageError(f"%mesh watch: {error}") from None
        mesh, ranks = self._book.chosen(args.mesh, args.selector)
        watch = Watch(mesh, args.expr, None if len(ranks) == mesh.num_ranks else ranks, args.every)
        stage = NotebookStage(self._shell)
        display_id = f"meshbook-watch-{id(watch):x}"

        def draw(update: bool = True) -> None:
            if update and not stage.can_update and not watch.is_over:
                return  # a terminal is shown the end
            view = WatchView(watch.path, watch.series, watch.reasons, watch.is_over)
            stage.display(view.bundle(), {}, display_id, update=update and stage.can_update)

        draw(update=False)
        stage.leave()
        watch.draw = draw
        self._watches.append(watch)
        watch.start()
