"""Meshes of distributed tensors that are resized: what their ranks keep, and what works on them afterwards."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest
import torch

from meshbook.runtime import ProcMesh, this_host
from meshbook.runtime.controller.resize import resize_roster
from meshbook.runtime.shape import Shape
from meshbook.runtime.tensors import inspect, remote, to_mesh
from meshbook.runtime.tensors.dispatch import DROPPED_LINGER

pytestmark = pytest.mark.real


def resized(procs: ProcMesh, **sizes: int) -> ProcMesh:
    """The same mesh with these sizes."""
    resize_roster(procs.roster, sizes)
    return ProcMesh(procs.roster, Shape.row_major(procs.roster.axes), is_owned=False)


def exchanged(procs: ProcMesh) -> list[Any]:
    """What comes where each half of a mesh sends something to the other."""
    halves = [procs.slice(dp=0), procs.slice(dp=1)]
    sent: list[Any] = []
    for half in halves:
        with half.activate():
            sent.append(torch.ones(2))
    return [inspect(to_mesh(each, half) + 1).tolist() for each, half in zip(sent, reversed(halves), strict=True)]


def num_held() -> int:
    """On a rank: the values of tensors that it keeps."""
    from meshbook.runtime.tensors import worker

    return sum(map(len, worker._values.values()))  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def procs(process_stage: Any) -> Generator[ProcMesh]:
    """Ranks `dp=2 tp=1`: with a longer `tp` they get other numbers."""
    made = this_host().spawn_procs({"dp": 2, "tp": 1})
    yield made
    made.roster.stop()


def test_tensors_go_from_mesh_to_mesh_after_ranks_have_got_other_numbers(procs: ProcMesh) -> None:
    assert exchanged(procs) == [[2, 2]] * 2
    assert exchanged(resized(procs, tp=2)) == [[2, 2]] * 2


def test_ranks_that_get_other_numbers_forget_what_was_computed_before(procs: ProcMesh) -> None:
    with procs.activate():
        value = torch.ones(2) + 1
    assert inspect(value).tolist() == [2, 2]
    with resized(procs, tp=2).activate():
        assert remote(num_held).call().get().values() == [0] * 4


def test_what_is_dropped_as_ranks_get_other_numbers_is_no_error(procs: ProcMesh) -> None:
    with procs.activate():
        value = torch.ones(2)
    inspect(value)
    del value
    resized(procs, tp=2)
    reactor, passed = procs.roster.reactor, threading.Event()
    reactor.schedule(lambda: reactor.later(DROPPED_LINGER, passed.set))
    assert passed.wait(10)


def test_ranks_that_come_compute_with_the_others(procs: ProcMesh) -> None:
    with procs.activate():
        before: Any = torch.ones(2) + procs.rank_tensor("dp")
    grown = resized(procs, dp=3)
    with grown.activate():
        after = torch.ones(2) * grown.rank_tensor("dp")
    assert [inspect(after, dp=dp, tp=0).tolist() for dp in range(3)] == [[0, 0], [1, 1], [2, 2]]
    assert exchanged(grown) == [[2, 2]] * 2
    with grown.slice(dp=slice(0, 2)).activate():
        assert inspect(before * 2, dp=1, tp=0).tolist() == [4, 4]


def test_a_seed_holds_for_the_ranks_that_are_left(procs: ProcMesh) -> None:
    with procs.activate():
        inspect(torch.rand(2))
    found: list[Any] = []
    with resized(procs, dp=1).activate():
        for _ in range(2):
            torch.manual_seed(7)
            found.append(torch.rand(2))
    assert inspect(found[0]).equal(inspect(found[1]))
