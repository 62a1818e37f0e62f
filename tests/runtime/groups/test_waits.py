"""What a process waits in, while several of its threads wait; the collectives themselves are in `test_groups`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.runtime.groups import waits

ALL_REDUCE, RECV, BARRIER = 1, 13, 15
NAMES = {ALL_REDUCE: "all_reduce", RECV: "recv", BARRIER: "barrier"}


def make_work() -> type[Any]:
    """torch's `Work`, as far as `waits` knows it: one that is done when it is told so."""

    class Work:
        def __init__(self, kind: int) -> None:
            self.kind, self.done = kind, threading.Event()

        def wait(self, timeout: timedelta) -> bool:
            if not self.done.wait(timeout.total_seconds() or None):
                raise RuntimeError("Operation timed out!")
            return True

        def _get_op_type(self) -> int:
            return self.kind

        def _get_duration(self) -> float:
            raise RuntimeError("this backend doesn't support it")

    return Work


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    work, group = make_work(), SimpleNamespace(send=lambda *given: None, recv=None, monitored_barrier=None)
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", SimpleNamespace(Work=work, ProcessGroup=group))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=bool)))
    assert waits.install()
    return work


@contextmanager
def waiting(work: Any, until: Callable[..., Any]) -> Generator[int]:
    """A thread that waits for this; its identity."""
    thread = threading.Thread(target=work.wait)
    thread.start()
    assert thread.ident is not None
    try:
        until(lambda: operation(thread.ident) == NAMES[work.kind])
        yield thread.ident
    finally:
        work.done.set()
        thread.join()


def operation(thread: int | None) -> str | None:
    found = waits.current(thread or 0)
    return found and found.call


@pytest.mark.parametrize("kind", [BARRIER, RECV])
def test_whose_wait_ends_hides_nobody_who_still_waits(work: type[Any], kind: int, until: Callable[..., Any]) -> None:
    with waiting(work(ALL_REDUCE), until) as stuck:
        with waiting(work(kind), until) as other:
            assert operation(stuck) == "all_reduce"
        assert [operation(each) for each in (stuck, other, threading.get_ident())] == ["all_reduce"] * 3
    assert operation(stuck) is None


def test_an_exchange_that_gives_no_work_back_is_none_of_our_business(work: type[Any]) -> None:
    """So nccl does with each of several that go together (`batch_isend_irecv`)."""
    send = sys.modules["torch._C._distributed_c10d"].ProcessGroup.send
    assert send(work(RECV), ["a tensor"], 1, 0) is None
    assert waits.current(threading.get_ident()) is None
