"""What is kept of an error: how much memory that is, and what is left of it when memory had run out."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from meshbook.kernel.debug.remains import is_out_of_memory, let_go, num_bytes, summary_of
from meshbook.kernel.ranks.cell import MUCH_MEMORY, CellShell

MB = 1 << 20


class Batch:
    """Something to see the end of."""

    def __init__(self) -> None:
        self.data = torch.zeros(MB)


def failed(shared: Any, seen: list[Any]) -> BaseException:
    def inner(batch: Batch) -> None:
        view, parts = batch.data[:10], {"mask": torch.ones(MB, dtype=torch.bool), "own": [shared]}
        seen.append(weakref.ref(batch))
        assert view is not parts
        raise MemoryError("no more")

    try:
        inner(Batch())
    except MemoryError as error:
        return error
    raise AssertionError


def test_what_frames_hold_counts_each_storage_once_and_not_what_names_hold() -> None:
    shared = torch.zeros(MB)
    error = failed(shared, [])
    assert num_bytes(error, {"shared": shared}) // MB == 5
    assert num_bytes(error, {}) // MB == 9


def test_what_names_hold_is_looked_up_only_where_frames_hold_enough() -> None:
    class Names(dict[str, object]):
        values = property()  # pyright: ignore[reportAssignmentType] - raises when it is read

    assert num_bytes(failed(None, []), Names(), enough=10 * MB) // MB == 5
    with pytest.raises(AttributeError):
        num_bytes(failed(None, []), Names(), enough=5 * MB)


def test_letting_go_frees_what_frames_held_also_after_a_look_at_them() -> None:
    seen: list[Any] = []
    error = failed(None, seen)
    text = summary_of(error)
    assert "view = Tensor float32 [10]" in text and "parts = dict length 2" in text and "raise MemoryError" in text
    assert num_bytes(error, {}) > 0 and seen[0]() is not None
    let_go(error)
    gc.collect()
    assert seen[0]() is None and num_bytes(error, {}) == 0


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("shapes do not match"), False),
    ],
)
def test_which_errors_are_for_want_of_memory(error: BaseException, is_it: bool) -> None:
    assert is_out_of_memory(error) is is_it


def test_a_cell_that_runs_out_of_memory_leaves_a_text_only() -> None:
    shell = CellShell({}, lambda display: None)
    shell.run("def f():\n    size = 10**15\n    return bytearray(size)\nf()", run=1, name="cell 1")
    assert shell.last_error is None and "size = 1000000000000000" in shell.last_summary
    assert "cell 1 line 3 in f   return bytearray(size)" in shell.last_summary
    shell.run("1 / 0", run=2, name="cell 2")
    assert isinstance(shell.last_error, ZeroDivisionError) and not shell.last_summary
    shell.close()


def test_much_that_the_frames_of_a_failed_cell_held_is_free_when_the_next_one_begins() -> None:
    shell = CellShell({}, lambda display: None)
    fail = f"batch = torch.zeros({MUCH_MEMORY // 4})\n    seen.append(weakref.ref(batch))\n    {{}}raise ValueError"
    for circle in "", "me = sys._getframe(); ":
        gc.disable()  # so that none comes by chance
        try:
            body = fail.format(circle)
            shell.run(f"import sys, torch, weakref\nseen = []\ndef f():\n    {body}\nf()", run=1, name="cell 1")
            assert isinstance(shell.last_error, ValueError) and shell.namespace["seen"][0]() is not None
            gone = shell.run("seen[0]() is None", run=2, name="cell 2").value
            assert gone is not None and gone.text == "True"
        finally:
            gc.enable()
    shell.close()


def test_values_that_raise_when_they_are_looked_at_do_not_spoil_the_next_cell() -> None:
    """As proxies do whose object is not there; nor does an error whose attributes raise."""
    shell = CellShell({}, lambda display: None)
    hostile = "import sys\nclass Proxy(Exception):\n    __class__ = __dict__ = __context__ = property(lambda self: {})"
    for end in ("1 / 0", "sys.exit(3)"):
        shell.run(f"{hostile.format(end)}\nproxy = Proxy()", run=1, name="cell 1")
        shell.run("def f():\n    mine = [Proxy()]\n    raise mine[0]\nf()", run=2, name="cell 2")
        assert shell.last_error is not None and num_bytes(shell.last_error, shell.namespace) == 0
        value = shell.run("7", run=3, name="cell 3").value
        assert value is not None and value.text == "7"
    shell.close()
