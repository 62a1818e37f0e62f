"""The adapter to torch's recorder, on dumps of a given form; dumps of real ranks are in `tests/kernel`."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.runtime.groups import ledger
from meshbook.runtime.groups.ledger import Group, RankLedger

TORCH = "/site-packages/torch/distributed/distributed_c10d.py"
LOGGER = "/site-packages/torch/distributed/c10d_logger.py"
CELL_2 = "<ipython-input-2-00000001>"
CELL_3 = "<ipython-input-3-00000002>"


def record(number: int, **changes: Any) -> dict[str, Any]:
    """As torch 2.13 dumps it, without what is not read."""
    frames = [(TORCH, "all_gather", 1), (LOGGER, "wrapper", 2), (TORCH, "all_gather_object", 3)]
    frames += [
        (LOGGER, "wrapper", 2),
        (CELL_2, "train", 4),
        (CELL_3, "<module>", 1),
    ]
    plain = {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "profiling_name": "gloo:all_gather",
        "time_created_ns": time.time_ns() - 10**9,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "retired": True,
        "is_p2p": False,
        "frames": [{"filename": file, "name": name, "line": line} for file, name, line in frames],
    }
    return plain | changes


class FakeTorch:
    """A torch with one group of two ranks, which dumps these records."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[dict[str, Any]] = []
        group = SimpleNamespace(group_name="0", group_desc="default_pg", _get_sequence_number_for_group=lambda: 41)
        world = SimpleNamespace(pg_map=[group])
        dump = SimpleNamespace(_dump_fr_trace=lambda: pickle.dumps({"version": "2.10", "entries": self.records}))
        self.dump = dump
        self.c10d = SimpleNamespace(_world=world, get_process_group_ranks=lambda group: [0, 1])
        monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", dump)
        monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", self.c10d)
        monkeypatch.delenv("TORCH_FR_BUFFER_SIZE", raising=False)
        monkeypatch.setattr(ledger, "_groups_since", 0)

    def read(self, **options: Any) -> RankLedger:
        return ledger.read(**options)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return FakeTorch(monkeypatch)


def test_an_entry_has_the_users_own_call_and_innermost_line(torch: FakeTorch) -> None:
    torch.records = [record(1), record(2, retired=False)]
    read = torch.read()
    assert read.groups == (Group("0", "gloo", "default_pg", (0, 1), 41),)
    first, second = read.entries
    assert (first.op, first.call, first.file, first.line) == (
        "all_gather",
        "all_gather_object",
        CELL_2,
        4,
    )
    assert (first.number, first.sizes, first.dtypes, first.is_open) == (1, ((4,),), ("Float",), False)
    assert second.is_open and 1 <= second.seconds < 60
    assert read.is_recorded and read.is_whole


def test_what_stands_in_no_users_file_has_no_place(torch: FakeTorch) -> None:
    torch.records = [
        record(1, frames=[{"filename": "/site-packages/torch/autograd/engine.py", "name": "backward", "line": 7}])
    ]
    [entry] = torch.read().entries
    assert (entry.call, entry.file, entry.line) == ("all_gather", "", 0)


def test_sends_and_destroyed_groups_are_left_out(torch: FakeTorch) -> None:
    torch.records = [record(9, pg_id=0), record(1, pg_id=3), record(2, pg_id=3, is_p2p=True)]
    torch.records += [record(1, process_group=("gone", "undefined"))]
    assert [entry.number for entry in torch.read().entries] == [1]


def test_what_was_issued_before_all_groups_were_destroyed_is_forgotten(torch: FakeTorch) -> None:
    torch.records = [record(1)]
    ledger.forget()
    assert torch.read().entries == ()
    torch.records += [record(1, time_created_ns=time.time_ns() + 1)]
    assert len(torch.read().entries) == 1


def test_a_group_may_have_two_backends(torch: FakeTorch) -> None:
    torch.records = [record(1), record(1, pg_id=5, profiling_name="nccl:all_reduce", state="completed", retired=False)]
    read = torch.read()
    assert [group.backend for group in read.groups] == ["gloo", "nccl"]
    assert [(entry.group, entry.op, entry.is_open) for entry in read.entries] == [
        (0, "all_gather", False),
        (1, "all_reduce", False),
    ]


def test_the_last_ones_are_kept_and_it_says_that_others_were_dropped(torch: FakeTorch) -> None:
    torch.records = [record(n) for n in range(1, 6)]
    read = torch.read(limit=2)
    assert ([entry.number for entry in read.entries], read.is_whole) == ([4, 5], False)
    torch.records = [record(n) for n in range(3, 6)]
    assert torch.read().is_whole is False


@pytest.mark.parametrize("why", ["no function", "off", "another form"])
def test_a_count_is_left_where_torch_has_no_record(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    torch.records = [{"seq_id": 1}]
    if why == "no function":
        del torch.dump._dump_fr_trace
    elif why == "off":
        monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    assert torch.read() == RankLedger((Group("0", "", "default_pg", (0, 1), 41),), is_recorded=False)


def test_without_groups_there_is_nothing_to_tell(torch: FakeTorch) -> None:
    torch.c10d._world.pg_map.clear()
    assert torch.read() == RankLedger()


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_the_users_own_setting_wins(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "7")
    ledger.enable()
    assert {key: text for key, text in os.environ.items() if "BUFFER_SIZE" in key} == {name: "7"}
    monkeypatch.delenv(name)
    ledger.enable()
    assert os.environ["TORCH_FR_BUFFER_SIZE"] == str(ledger.BUFFER_SIZE)
    monkeypatch.delenv("TORCH_FR_BUFFER_SIZE")


def _in_backward(wait: Callable[[], object]) -> None:
    real = pytest.importorskip("torch")
    x = real.ones(1, requires_grad=True)
    x.register_hook(lambda _: wait())
    x.sum().backward()


def _in_a_functional_collective(wait: Callable[[], object]) -> None:
    functional = pytest.importorskip("torch.distributed._functional_collectives")
    assert callable(functional.wait_tensor)  # which waits in C++: here a function of that name and file does
    names = {"wait": wait}
    exec(compile("def wait_tensor(): wait()", functional.__file__, "exec"), names)
    names["wait_tensor"]()


@pytest.mark.parametrize(
    ("call", "is_held_up"),
    [(_in_backward, True), (_in_a_functional_collective, True), (lambda wait: wait(), False)],
)
def test_who_is_held_up_by_a_collective(call: Callable[[Callable[[], object]], None], is_held_up: bool) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait(30)

    thread = threading.Thread(target=call, args=(wait,))
    thread.start()
    try:
        assert begun.wait(30)
        assert ledger.is_held_up(thread.ident or 0) is is_held_up
    finally:
        go_on.set()
        thread.join()
    assert not ledger.is_held_up(thread.ident or 0)
