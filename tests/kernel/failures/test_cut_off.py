"""Failures that are another rank's: only where torch says that a peer has gone, from a place where it communicates."""

from __future__ import annotations

import pytest

from meshbook.kernel.failures.cut_off import is_cut_off
from meshbook.kernel.outcome import Failure, Frame

PAIR = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:55"
LIB = "/home/u/.venv/lib/python3.11/site-packages/torch"
CELL = Frame("cell 2", 4, "<module>", "dist.barrier()", True)


def failure(message: str, file: str, type_name: str = "RuntimeError") -> Failure:
    return Failure(type_name, message, (CELL, Frame(file, 9, "f", "", False)), "")


@pytest.mark.parametrize(
    "message",
    [
        PAIR,
        PAIR.replace("closed by", "reset by"),
        "[.../gloo/transport/tcp/pair.cc:446] writev [127.0.0.1]:5: Broken pipe",
        f"[Rank 0]: Rank 1 failed to pass monitoredBarrier in 604800000 ms\n Original exception: \n{PAIR}",
    ],
)
@pytest.mark.parametrize("file", ["distributed/distributed_c10d.py", "autograd/graph.py", "_ops.py"])
def test_a_collective_whose_peer_has_gone(message: str, file: str) -> None:
    assert is_cut_off(failure(message, f"{LIB}/{file}"))


def test_a_group_that_could_not_be_made_as_the_rank_of_its_store_had_gone() -> None:
    said = (
        "Process group <no process group of this slice: rank 0, which serves their store, does not answer: Broken pipe>"
    )
    assert is_cut_off(failure(f"{said} is not initialized", f"{LIB}/distributed/distributed_c10d.py", "ValueError"))


def test_what_is_the_ranks_own() -> None:
    assert not is_cut_off(failure(PAIR, "/home/u/client.py"))
    assert not is_cut_off(failure(PAIR, f"{LIB}/nn/modules/module.py"))
    assert not is_cut_off(failure("shapes differ", f"{LIB}/distributed/distributed_c10d.py"))
    assert not is_cut_off(failure(PAIR, f"{LIB}/distributed/distributed_c10d.py", "ConnectionResetError"))
    assert not is_cut_off(Failure("RuntimeError", PAIR, (), ""))
