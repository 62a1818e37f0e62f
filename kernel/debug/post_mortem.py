"""Looking at what an error has left: the frames of the last cell on ranks that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .asking import Asker
from .sitting import Tell, serve

if TYPE_CHECKING:
    from ..mesh import Mesh


def post_mortem(mesh: Mesh, ranks: Sequence[int], user: Asker | None, tell: Tell) -> list[int]:
    """Let the user look at the frames on these ranks, until they leave; the ranks that have no error to look at.

    Raises `KeyboardInterrupt` for the stop button; the ranks are let go first.
    """
    with mesh.desk.serving():
        gather = mesh.begin_post_mortem(ranks)
        try:
            while not gather.is_done:
                mesh.desk.wait(lambda: mesh.desk.is_wanted or gather.is_done)
                if mesh.desk.is_wanted:
                    serve(mesh, user, lambda: gather.is_done, tell)
        finally:
            if not gather.is_done:
                mesh.desk.leave(ranks)
    return [rank for rank in ranks if gather.answers.get(rank) == ""]
