"""Looking at what an error has left: the frames of the last cell, or of an actor, on ranks that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..waiting.waited import Tell
from .asking import Asker
from .converse import gutter
from .sitting import serve

if TYPE_CHECKING:
    from ..mesh import Mesh


LET_GO = "memory had run out, so the frames were let go; this is what they held:"


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
    answers: dict[int, tuple[str, str]] = gather.answers
    summaries = {rank: answers[rank][1] for rank in ranks if rank in answers and answers[rank][1]}
    if summaries and user is not None:
        user.show(f"{LET_GO}\n{gutter(summaries)}")
    return [rank for rank in ranks if rank in answers and answers[rank] == ("", "")]
