"""`%mesh logs`: what ranks have printed, and with `-f` what they print from now on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from IPython.core.error import UsageError

from ..kernel.drive import TICK
from ..kernel.mesh import Mesh
from ..kernel.output.logs import Choice, LogReader, runs_of, sections, with_rest
from ..kernel.stopping.stop_button import StopButton
from ..runtime.ranges import named
from ..runtime.wire.reactor import Reactor
from ..widgets.logs import LogPrinter, print_sections
from ..widgets.stage import Stage
from . import grammar
from .book import Book


def show_logs(book: Book, args: grammar.Logs, stage: Stage) -> None:
    """Print the lines that are asked for; follow what comes, if so asked."""
    mesh = book.get(args.mesh)
    ranks = book.select(args.selector or "all", mesh, also_dead=True)
    if mesh.is_down:
        raise UsageError(f"mesh {mesh.name!r} is down, and the logs of its ranks went with it")
    choice = Choice(_runs(mesh, args.cell), "stderr" if args.err else None, args.grep)
    readers = {rank: LogReader(mesh.roster.logs[rank], choice) for rank in ranks}
    if args.follow:
        _follow(mesh, readers, args, stage)
        return
    count = args.last or 0  # [-0:] is all
    found = {rank: with_rest(reader.last(args.last), reader.rest())[-count:] for rank, reader in readers.items()}
    if not any(found.values()):
        print(f"{named(ranks)} {'have' if ranks[1:] else 'has'} printed nothing{' of that' * (choice != Choice())}")
    print_sections(stage, sections(found, mesh.cells), time.monotonic())


def _runs(mesh: Mesh, cell: str | None) -> frozenset[int] | None:
    if cell is None:
        return None
    if found := runs_of(cell, mesh.cells):
        return found
    known = ", ".join(list(dict.fromkeys(name.removeprefix("cell ") for name in mesh.cells.values()))[-8:])
    raise UsageError(
        f"--cell: no cell {cell} has run on mesh {mesh.name!r}: {f'there is {known}' if known else 'none has'}"
    )


def _follow(mesh: Mesh, readers: Mapping[int, LogReader], args: grammar.Logs, stage: Stage) -> None:
    is_over = _end_of(mesh, list(readers), args.cell)
    printer = LogPrinter(stage, list(readers))
    for rank, reader in readers.items():
        printer.add(rank, reader.last(args.last), time.monotonic())
    with StopButton() as button:
        try:
            is_last = False
            while not is_last and not printer.is_full:
                # Asked before the logs are read: what was said until then is shown.
                is_last = is_over() or bool(button.take())
                for rank, reader in readers.items():
                    printer.add(rank, reader.news(), time.monotonic())
                printer.poll(time.monotonic())
                if not is_last:
                    _pause(mesh.roster.reactor)
        except (KeyboardInterrupt, ValueError):  # pressed elsewhere than on the main thread; the mesh was taken down
            pass
    for rank, reader in readers.items():
        printer.add(rank, reader.rest(), time.monotonic())
    printer.finish(time.monotonic())


def _pause(reactor: Reactor) -> None:
    reactor.wait(threading.Event(), TICK)


def _end_of(mesh: Mesh, ranks: Sequence[int], cell: str | None) -> Callable[[], bool]:
    """When following ends by itself: with the cells that run now; or when the ranks are dead."""
    runs = [run for run in mesh.running() if cell is None or cell in (run.name, run.name.removeprefix("cell "))]
    if runs or cell is not None:
        return lambda: all(run.finished.done() for run in runs)
    if threading.current_thread() is not threading.main_thread():  # Ctrl-C reaches the main thread only
        raise UsageError("-f in a subshell follows cells while they run, and none runs now: nothing could stop it")
    states = mesh.roster.states
    return lambda: all(states[rank].exit is not None for rank in ranks)
