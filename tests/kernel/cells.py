"""Cells on a mesh of real ranks, for the tests of what becomes of meshes: run them, read their values, lose ranks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.outcome import Outcome
from meshbook.kernel.run import Run
from meshbook.runtime.controller.regroup import wait_until

SUM = "x = torch.ones(1) * (rank + 1)\ndist.all_reduce(x)\nx.item()"
"""A collective of all ranks; its value on each is the sum of 1 to the world size."""


def until_at(mesh: Mesh, place: str, ranks: Sequence[int]) -> None:
    """Wait until all of these ranks are there."""
    deadline = time.monotonic() + 20
    while not all(place in mesh.where(ranks, 5).get(rank, "") for rank in ranks):
        assert time.monotonic() < deadline, mesh.where(ranks, 5)


def ran(mesh: Mesh, source: str, ranks: Sequence[int] | None = None, **options: Any) -> Run:
    """Run a cell to its end."""
    run = mesh.run(source, ranks, **options)
    try:
        run.finished.get(30)
    except TimeoutError:
        raise AssertionError(f"it hangs:\n{mesh.stacks()}\n{mesh.ledger()}") from None
    assert not run.progress.lost, run.progress.lost
    return run


def values(mesh: Mesh, source: str, ranks: Sequence[int] | None = None) -> list[str]:
    """What a cell gives on each rank, as text."""
    outcomes = ran(mesh, source, ranks).progress.outcomes
    found = [msgspec.msgpack.decode(outcomes[rank], type=Outcome) for rank in sorted(outcomes)]
    return [each.value.text if each.value is not None else repr(each.failure) for each in found]


def lose(mesh: Mesh, ranks: Sequence[int]) -> None:
    """Kill ranks, and wait until that is known."""
    mesh.roster.kill(ranks)
    assert wait_until(mesh.roster, lambda: set(ranks) <= set(mesh.roster.dead()), 10)
