"""Streams: who may read and write what, while a tensor is lent and after."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from meshbook.runtime import ProcMesh
from meshbook.runtime.tensors import (
    Stream,
    coalescing,
    fetch_shard,
    get_active_mesh,
    get_active_stream,
    inspect,
    no_mesh,
)

pytestmark = pytest.mark.real

other = Stream("other")
ones: Any = torch.ones  # to a type checker, what torch makes on a mesh is a plain tensor


def test_what_is_made_is_of_the_active_stream_and_used_by_it_alone(grid: ProcMesh) -> None:
    assert str(get_active_stream()) == "stream 'main'"
    with grid.activate():
        mine = ones(2)
        with other.activate(), coalescing():
            assert get_active_stream() is other
            theirs = ones(2) + 1
            for use in (lambda: mine + 1, lambda: torch.add(mine, theirs), lambda: inspect(mine)):
                with pytest.raises(TypeError, match=r"on stream 'main', and stream 'other' is active \(WRONG_STREAM\)"):
                    use()
    assert (mine.stream, theirs.stream) == (get_active_stream(), other)
    assert repr(theirs) == "<Tensor (2,) float32 on dp=2,tp=2, stream 'other'>"
    with pytest.raises(TypeError, match="WRONG_STREAM"):
        fetch_shard(theirs)
    with other.activate():
        assert inspect(theirs.view(2, 1)).tolist() == [[2], [2]]


def test_activations_hold_from_the_call_on_to_the_end_of_a_block_if_there_is_one(grid: ProcMesh) -> None:
    mesh, stream = grid.activate(), other.activate()
    x = ones(2)
    assert (x.mesh, x.stream) == (grid, other)
    with mesh, stream:
        assert inspect(x + 1).tolist() == [2, 2]
    assert get_active_stream() is not other
    with pytest.raises(ValueError, match="no device mesh is active"):
        get_active_mesh()
    assert type(ones(2)) is torch.Tensor


def test_cells_that_activate_again_and_again_make_no_call_of_torch_slower(grid: ProcMesh) -> None:
    depth = torch._C._len_torch_dispatch_stack
    before = depth()
    with grid.activate(), grid.activate(), other.activate(), no_mesh.activate(), grid.activate():
        assert (depth(), ones(2).mesh) == (before + 1, grid)
    assert (depth(), type(ones(2))) == (before, torch.Tensor)


def test_tasks_that_take_turns_have_a_mesh_each(grid: ProcMesh) -> None:
    async def make(part: ProcMesh, turns: asyncio.Barrier, before: asyncio.Task[Any] | None) -> list[ProcMesh]:
        with part.activate():
            made = [ones(2).mesh]
            await turns.wait()
            if before:
                await before
                made.append(ones(2).mesh)
            return made

    async def both() -> None:
        turns = asyncio.Barrier(2)
        first = asyncio.create_task(make(grid.slice(dp=1), turns, None))
        await asyncio.sleep(0)  # its block begins, and ends, before the other's
        assert await make(grid.slice(dp=0), turns, first) == [grid.slice(dp=0)] * 2
        assert await first == [grid.slice(dp=1)]

    asyncio.run(both())


def test_an_activation_without_a_block_ends_with_its_mesh(process_stage: Any) -> None:
    procs = process_stage.procs({"r": 1})
    mesh = procs.activate()
    assert ones(2).mesh == procs
    procs.stop().get()
    assert type(ones(2)) is torch.Tensor
    with mesh:
        assert ones(2).mesh == procs, "a block is to make no tensors elsewhere"


def test_what_is_lent_is_read_by_both_and_written_by_none(grid: ProcMesh) -> None:
    with grid.activate():
        x = ones(2)
    view = x.view(2, 1)
    borrowed, borrow = other.borrow(x)
    assert (inspect(x + 1).tolist(), borrowed.stream) == ([2, 2], other)
    for write in (x.add_, view.mul_, x.detach().sub_):
        with pytest.raises(
            TypeError, match=r"would be mutated, and is read only: it is lent at .*test_streams.py, line"
        ):
            write(1)
    with other.activate():
        assert inspect(borrowed + 2).tolist() == [3, 3]
        with pytest.raises(TypeError, match="would be mutated, and is read only: it is borrowed without mutable=True"):
            borrowed.view(2, 1).zero_()
    with pytest.raises(RuntimeError, match="it, or a view of it, is lent already"):
        other.borrow(view, mutable=True)
    borrow.drop()
    borrow.drop()
    x.add_(1)
    assert (inspect(x).tolist(), borrowed.dropped) == ([2, 2], True)


def test_what_is_lent_to_be_written_to_is_read_by_nobody_else(grid: ProcMesh) -> None:
    with grid.activate():
        x = ones(2)
    borrowed, borrow = other.borrow(x, mutable=True)
    with borrow:
        with pytest.raises(RuntimeError, match="cannot be borrowed: it, or a view of it, is lent to be written to"):
            other.borrow(x)
        with pytest.raises(TypeError, match=r"cannot be read: it is BORROWED, to be written to, at .*, line"):
            _ = x + 1
        with other.activate():
            view = borrowed.view(2, 1)
            view.add_(4)
            assert inspect(borrowed).tolist() == [5, 5]
    assert inspect(x).tolist() == [5, 5]
    with other.activate(), pytest.raises(TypeError, match=r"its borrow is dropped at .*test_streams.py, line"):
        _ = view + 1
    with pytest.raises(TypeError, match=r"its borrow is dropped at .*test_streams.py, line"):
        Stream("third").borrow(borrowed)


def test_a_borrow_ends_with_the_last_reference_to_it_and_with_that_of_the_lender(grid: ProcMesh) -> None:
    with grid.activate():
        x = ones(2)
    borrowed, _ = other.borrow(x)
    del _
    with other.activate(), pytest.raises(TypeError, match="dropped at the end of the last reference to it"):
        _ = borrowed + 1
    borrowed, borrow = other.borrow(x)
    third, again = Stream("third").borrow(borrowed)
    with pytest.raises(RuntimeError, match="lent already"):
        other.borrow(borrowed, mutable=True)
    borrow.drop()
    with third.stream.activate(), pytest.raises(TypeError, match="its borrow is dropped at"):
        _ = third + 1
    again.drop()
    x.add_(1)


def test_only_distributed_tensors_can_be_borrowed(grid: ProcMesh) -> None:
    with pytest.raises(TypeError, match="a Tensor has no stream: only distributed tensors"):
        other.borrow(ones(2))
    with grid.activate():
        x = ones(2)
    x.drop()
    with pytest.raises(TypeError, match="is dropped at"):
        other.borrow(x)


def test_a_move_brings_it_to_another_stream_and_its_gradient_back(grid: ProcMesh) -> None:
    with grid.activate():
        weight = ones(2, requires_grad=True)
    moved = (weight * 2).to_mesh(grid, stream=other)
    assert moved.to_mesh(grid) is moved
    with other.activate():
        (moved * 3).sum().backward()
    assert (weight.grad.stream, inspect(weight.grad).tolist()) == (get_active_stream(), [6, 6])
    assert inspect(moved.slice_mesh(dp=0).to_mesh(grid, get_active_stream()), dp=1, tp=1).tolist() == [2, 2]
