"""Buffers: memory that others read and write, whatever its owner does."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import torch

from meshbook.runtime import ActorError, Channel, SupervisionError, heal, rdma
from meshbook.runtime.channel import Port
from meshbook.runtime.rdma import RDMAAction, RDMABuffer
from tests.runtime.memories import Owner, Reader
from tests.runtime.troupe import Diary

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


def allow_keeper(leaks: Any) -> None:
    """The keeper of this process stays as long as its session."""
    rdma._own_keeper()  # pyright: ignore[reportPrivateUsage]
    leaks.allow_what_stands()


@pytest.fixture
def owner(stage: Stage, leaks: Any) -> Any:
    owner = stage.one(Owner)
    owner.lend.call_one(b"first").get(10)  # from here on its process has a keeper, which may be a thread of this one
    allow_keeper(leaks)
    return owner


@pytest.fixture
def reader(stage: Stage, leaks: Any) -> Any:
    allow_keeper(leaks)
    return stage.spawn(Reader, on=stage.shared(r=2).slice(r=1))


@pytest.fixture
def here(process_stage: Stage, leaks: Any) -> Stage:
    """For buffers of this process."""
    allow_keeper(leaks)
    return process_stage


@pytest.fixture(autouse=True)
def dropped() -> Iterator[None]:
    yield
    rdma._held.clear()  # pyright: ignore[reportPrivateUsage] - what a test has made here lives as long as the process


class TestFromElsewhere:
    def test_a_rank_reads_what_the_memory_holds_now(self, owner: Any, reader: Any) -> None:
        buffer = owner.lend.call_one(b"abcd").get(10)
        assert buffer.size() == 4
        assert reader.read.call_one(buffer, 4).get(10) == b"abcd"
        owner.change.call_one(7).get(10)
        assert reader.read.call_one(buffer, 6).get(10) == b"\7\7\7\7\0\0", "there may be more room than is needed"

    def test_a_rank_writes_from_the_beginning(self, owner: Any, reader: Any) -> None:
        buffer = owner.lend.call_one(b"abcd").get(10)
        reader.write.call_one(buffer, b"XY").get(10)
        assert owner.look.call_one().get(10) == b"XYcd"

    def test_the_owner_may_be_busy(self, owner: Any, reader: Any) -> None:
        buffer = owner.lend.call_one(b"abcd").get(10)
        started: Port[Port[str]]
        started, held = Channel[Port[str]].open()
        work = owner.hold.call_one(started)
        go = held.recv().get(10)
        assert reader.read.call_one(buffer, 4).get(10) == b"abcd"
        go.send("done")
        assert work.get(10) == "done"

    def test_the_client_reads_and_writes_too(self, owner: Any) -> None:
        buffer = owner.lend.call_one(b"abcd").get(10)
        memory = bytearray(4)
        buffer.write_from(memoryview(b"1234")).get(10)
        buffer.read_into(memoryview(memory)).get(10)
        assert memory == b"1234"

    def test_ranks_read_what_the_client_has(self, reader: Any) -> None:
        weights = torch.arange(6, dtype=torch.bfloat16)
        buffer = RDMABuffer(weights)
        assert torch.equal(reader.tensor.call_one(buffer, "bfloat16", 6).get(10), weights)
        reader.write.call_one(buffer, b"\0" * 12).get(10)
        assert not weights.any()

    def test_large_memory_travels_in_pieces(self, owner: Any, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rdma, "PIECE", 70_000)
        data = os.urandom(250_000)
        buffer = owner.lend.call_one(data).get(10)
        memory = bytearray(len(data))
        buffer.read_into(memoryview(memory)).get(10)
        assert memory == data
        buffer.write_from(memoryview(data[::-1])).get(10)
        assert owner.look.call_one().get(10) == data[::-1]

    def test_it_is_awaited_too(self, owner: Any) -> None:
        buffer = owner.lend.call_one(b"abcd").get(10)
        memory = bytearray(4)

        async def read() -> None:
            await buffer.read_into(memoryview(memory))

        asyncio.run(read())
        assert memory == b"abcd"

    def test_what_was_dropped_is_gone(self, owner: Any, reader: Any) -> None:
        buffer = owner.lend.call_one(b"abcd").get(10)
        owner.drop.call_one().get(10)
        with pytest.raises(ActorError, match="there is no such RDMABuffer any more: it was dropped"):
            reader.read.call_one(buffer, 4).get(10)
        with pytest.raises(ValueError, match="it was dropped"):
            buffer.write_from(memoryview(b"12")).get(10)
        buffer.drop().get(10)

    def test_it_outlives_the_actor_that_made_it(self, stage: Stage, reader: Any) -> None:
        owner = stage.shared(r=2).slice(r=0).spawn("owner", Owner)
        buffer = owner.lend.call_one(b"abcd").get(10)
        owner.stop().get(10)
        assert reader.read.call_one(buffer, 4).get(10) == b"abcd"


@pytest.mark.real
def test_memory_of_a_dead_process_is_told(process_stage: Stage) -> None:
    procs = process_stage.procs({"r": 2})
    buffer = procs.slice(r=0).spawn("owner", Owner).lend.call_one(b"abcd").get(10)
    readers = procs.slice(r=1).spawn("reader", Reader)
    os.kill(procs.slice(r=0).spawn("diary", Diary).pid.call_one().get(10), signal.SIGKILL)
    with pytest.raises(SupervisionError, match=r"buffers\.read\(\) failed, rank 0 .*killed by SIGKILL"):
        readers.read.call_one(buffer, 4).get(10)
    assert "killed by SIGKILL" in process_stage.faults.get(timeout=10).report()
    heal(procs)
    procs.slice(r=0).spawn("owner", Owner).lend.call_one(b"efgh").get(10)
    with pytest.raises(ActorError, match="it was dropped, or has gone with its process"):
        readers.read.call_one(buffer, 4).get(10)


@pytest.mark.usefixtures("here")
class TestHere:
    def test_of_one_s_own_process_nothing_travels(self) -> None:
        memory, copy = bytearray(b"abcd"), bytearray(4)
        buffer = RDMABuffer(memoryview(memory))
        buffer.read_into(memoryview(copy)).get(10)
        assert copy == b"abcd"
        buffer.write_from(torch.tensor([1, 2], dtype=torch.uint8)).get(10)
        assert memory == b"\1\2cd"
        assert repr(buffer) == "<RDMABuffer of 4 bytes at root.buffers>"
        assert (buffer.owner, buffer.backend) == ("root.buffers", rdma.get_rdma_backend())
        assert pickle.loads(pickle.dumps(buffer)).size() == 4
        buffer.drop().get(10)
        with pytest.raises(ValueError, match="it was dropped"):
            buffer.read_into(memoryview(copy)).get(10)

    def test_any_dtype_is_bytes(self) -> None:
        source, target = torch.rand(5, dtype=torch.float64), torch.zeros(40, dtype=torch.uint8)
        buffer = RDMABuffer(source)
        assert buffer.size() == 40
        buffer.read_into(target).get(10)
        assert torch.equal(target.view(torch.float64), source)

    def test_an_action_does_all_in_order(self) -> None:
        one, two, copy = bytearray(b"one"), bytearray(b"two"), bytearray(6)
        source, target = RDMABuffer(memoryview(one)), RDMABuffer(memoryview(two))
        action = RDMAAction().read_remote(memoryview(copy)[:3], source).write_remote(target, memoryview(copy)[:3])
        action.read_remote(memoryview(copy)[3:], target)
        action.submit().get(10)
        assert (copy, two) == (b"oneone", b"one")
        one[:] = b"new"
        action.submit(timeout=5).get(10)
        assert (copy, two) == (b"newnew", b"new")

    def test_time_is_limited(self, here: Stage) -> None:
        buffer = here.one(Owner).lend.call_one(b"abcd").get(10)
        with pytest.raises(TimeoutError, match="no answer after 0 s"):
            buffer.read_into(memoryview(bytearray(4)), timeout=0).get(10)
        with pytest.raises(ValueError, match="timeout"):
            buffer.read_into(memoryview(bytearray(4)), timeout=-1)

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (torch.zeros(0), "Cannot create RDMABuffer with size 0"),
            (memoryview(b""), "Cannot create RDMABuffer with size 0"),
            (torch.zeros(2, 3), r"not a tensor of shape \(2, 3\): say tensor\.view\(torch\.uint8\)\.flatten\(\)"),
            (torch.zeros(4, 2)[:, 0], r"not a tensor of shape \(4,\), which is not contiguous"),
            (torch.ones(4, dtype=torch.cfloat).conj(), r"lend tensor\.resolve_conj\(\)\.resolve_neg\(\)"),
            (torch.ones(4, dtype=torch.cfloat).conj().imag.contiguous()._neg_view(), "conjugated or negated"),
            (memoryview(bytearray(8))[::2], r"not a memoryview of shape \(4,\)"),
            (bytearray(8), r"not a bytearray"),
        ],
    )
    def test_memory_that_cannot_be_lent(self, data: Any, says: str) -> None:
        with pytest.raises(ValueError, match=says) as caught:
            RDMABuffer(data)
        assert "\n" not in str(caught.value)

    def test_sizes_must_fit(self) -> None:
        memory = bytearray(8)
        buffer = RDMABuffer(memoryview(memory))
        with pytest.raises(ValueError, match=r"destination local memory size \(4\) must be >= .* \(8\)"):
            buffer.read_into(memoryview(bytearray(4)))
        with pytest.raises(ValueError, match=r"source local memory size \(9\) must be <= .* \(8\)"):
            buffer.write_from(memoryview(bytes(9)))
        with pytest.raises(ValueError, match="the destination cannot be written: it is a read-only memoryview"):
            buffer.read_into(memoryview(bytes(8)))
        room = torch.zeros(20, dtype=torch.uint8)
        with pytest.raises(ValueError, match="overlaps with that of another read"):
            RDMAAction().read_remote(room, buffer).read_remote(room[7:], buffer)
        RDMAAction().read_remote(room, buffer).read_remote(room[8:], buffer).submit().get(10)

    def test_what_needs_hardware_is_told(self) -> None:
        buffer, word = RDMABuffer(memoryview(bytearray(8))), torch.zeros(1, dtype=torch.int64)
        with pytest.raises(NotImplementedError, match="fetch_add needs hardware"):
            RDMAAction().fetch_add(buffer, word, 1)
        with pytest.raises(NotImplementedError, match="compare_and_swap needs hardware"):
            RDMAAction().compare_and_swap(buffer, word, 1, 2)
        assert not rdma.is_ibverbs_available()
        with pytest.warns(DeprecationWarning, match="use get_rdma_backend"):
            assert not rdma.is_rdma_available()

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_memory_of_a_gpu(self) -> None:
        there, copy = torch.arange(4.0, device="cuda"), torch.zeros(4)
        buffer = RDMABuffer(there)
        buffer.read_into(copy).get(10)
        assert copy.tolist() == [0, 1, 2, 3]
        buffer.write_from(torch.ones(2)).get(10)
        assert there.tolist() == [1, 1, 2, 3]
