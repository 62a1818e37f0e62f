"""Distributed tensors and buffers: operations over eager ones here, a shard over a call, a buffer over one copy."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator

import torch
from echo import Echo, Lender
from measure import Row, check, medians, ratio, timed

from meshbook.kernel.mesh import Mesh
from meshbook.runtime.rdma import RDMABuffer
from meshbook.runtime.tensors import inspect

SIZES = (1, 4)
OPS = 500
"""Operations in a row, before their result is looked at."""


def measure(is_quick: bool) -> Iterator[Row]:
    repeats = 3 if is_quick else 15
    for size in SIZES:
        with Mesh.up(f"tensors{size}", {"rank": size}, path=sys.path) as mesh:
            echo = mesh.spawn("echo", Echo).echo
            works = {
                "here": timed(chain),
                "there": timed(lambda mesh=mesh: on(mesh, chain)),
                "step here": timed(train),
                "step there": timed(lambda mesh=mesh: on(mesh, train)),
                "inspect": timed(shard_of(mesh)),
                "call": timed(lambda echo=echo: echo.call(7).get()),
            }
            medians(2, works)
            times = medians(repeats, works)
        ranks = f"{size} rank{'s' * (size > 1)}"
        yield ratio(f"an operation, on {ranks}", times["there"] / OPS, times["here"] / OPS, "here, eager", None)
        yield ratio(f"a training step, on {ranks}", times["step there"], times["step here"], "here, eager", None)
        yield ratio(f"a shard, of {ranks}", times["inspect"], times["call"], "a call", None)
    yield from buffers(8 if is_quick else 64, repeats)


def on(mesh: Mesh, work: Callable[[], torch.Tensor]) -> None:
    with mesh.procs.activate():
        found = work()
    check(bool(inspect(found).isfinite()), "ranks computed something else")


def chain() -> torch.Tensor:
    value = torch.ones(8, 8)
    for _ in range(OPS):
        value = value * 1.001
    return value.sum()


_WIDTH = 64


def train() -> torch.Tensor:
    weight = torch.ones(_WIDTH, _WIDTH, requires_grad=True)
    loss = (torch.ones(8, _WIDTH) @ weight).relu().square().mean()
    loss.backward()
    assert weight.grad is not None
    with torch.no_grad():
        weight -= 0.1 * weight.grad
    return loss.detach()


def shard_of(mesh: Mesh) -> Callable[[], None]:
    with mesh.procs.activate():
        value = torch.ones(4)
    return lambda: check(inspect(value).tolist() == [1.0] * 4, "a shard came as another")


def buffers(megabytes: int, repeats: int) -> Iterator[Row]:
    """Read by this process from a rank, and written to it."""
    target, source = (torch.ones((megabytes << 20) // 4) for _ in range(2))
    with Mesh.up("buffers", {"rank": 1}, path=sys.path) as mesh:
        buffer: RDMABuffer = mesh.spawn("lender", Lender).lend.call_one(target.nbytes).get()

        def read() -> None:
            buffer.read_into(target).get()
            check(float(target[-1]) == float(source[-1]), "a buffer holds something else than was written")

        works = {
            "memcpy": timed(lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)),
            "write": timed(lambda: buffer.write_from(source).get()),
            "read": timed(read),
        }
        medians(3, works)
        times = medians(repeats, works)
    yield ratio(f"a buffer of {megabytes} MB written", times["write"], times["memcpy"], "memcpy", None)
    yield ratio("  read", times["read"], times["memcpy"], "memcpy", None)
