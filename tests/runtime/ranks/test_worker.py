"""How a rank leaves."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.runtime.ranks import worker


class Pool:
    """As torch's of compile workers, in a process of its own, which has left when `shutdown` returns."""

    def __init__(self) -> None:
        self.running = True
        self.was_waited_for = False

    def shutdown(self) -> None:
        self.was_waited_for = self.running


def test_a_rank_that_leaves_does_not_wait_for_compile_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()
    with ThreadPoolExecutor() as other:  # a pool of this kind may be there in its place
        compiler: Any = SimpleNamespace(_pool_set={pool, other})
        monkeypatch.setitem(sys.modules, "torch._inductor.async_compile", compiler)
        worker._forsake_compilers()
    pool.shutdown()
    assert not pool.was_waited_for


def test_a_rank_without_a_compiler_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._inductor.async_compile", raising=False)
    worker._forsake_compilers()
