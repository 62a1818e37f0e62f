"""`%mesh debug`: stop ranks where they are, or look at what their error has left, and talk with them."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernel.debug.asking import Asker, asker
from ..kernel.debug.ladder import Rung, enter
from ..kernel.debug.post_mortem import post_mortem
from ..kernel.debug.sitting import serve
from ..kernel.fold import named, ranks_text
from ..kernel.mesh import Mesh
from .book import Book
from .inquiries import Debug
from .options import GrammarError


def debug(book: Book, args: Debug) -> None:
    """Talk with ranks, and say what cannot be done."""
    mesh = book.get(args.mesh)
    user = asker()
    if args.pm:
        _post_mortem(mesh, book.select(args.selector or "@failed", mesh).ranks, _someone(user))
        return
    if args.selector:
        _attach(mesh, book.select(args.selector, mesh).ranks)
    elif not mesh.desk.is_wanted:
        print("no rank is stopped: `%mesh debug 3` stops rank 3 where it is, `%mesh debug --pm` looks at an error")
    if mesh.desk.is_served:
        print("the prompt is in the cell that runs")
    elif mesh.desk.is_wanted:
        serve(mesh, _someone(user), lambda: all(state.name != "busy" for state in mesh.roster.states.values()), _tell)


def _someone(user: Asker | None) -> Asker:
    if user is None:
        raise GrammarError("this front-end has no prompt: `%mesh stacks` shows where ranks are without one")
    return user


def _attach(mesh: Mesh, ranks: Sequence[int]) -> None:
    for rung, found in enter(mesh, ranks).items():
        if rung is Rung.STACK:
            print(f"{named(found)}: {rung.value}")
            print(mesh.stacks(found))
        elif rung is not Rung.LIVE:
            print(f"{named(found)}: {rung.value}")


def _post_mortem(mesh: Mesh, ranks: Sequence[int], user: Asker) -> None:
    if not ranks:
        raise GrammarError("no rank failed in the last cell: name one")
    if without := post_mortem(mesh, ranks, user, _tell):
        print(f"{named(without)}: the last cell has left no error there")


def _tell(ranks: Sequence[int], mark: str, line: str) -> None:
    print(f"{ranks_text(ranks)} {mark} {line}")
