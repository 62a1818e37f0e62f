"""Values that come to the notebook, and how those of several ranks are put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from IPython.core.error import UsageError

from meshbook.magics.pull import gathered
from tests.magics.front_end import Kernel
from tests.magics.hurry import hurried

VALUES = {2: np.ones(3), 0: np.zeros(3)}


def test_a_list_is_in_the_order_of_ranks() -> None:
    first, second = gathered("x", VALUES, "list")  # type: ignore[misc]
    assert (first.sum(), second.sum()) == (0, 3)


def test_a_dict_keeps_the_ranks() -> None:
    assert gathered("x", VALUES, "dict") == VALUES


@pytest.mark.parametrize("values", [VALUES, {0: 0, 2: 1}, {0: [0, 0], 2: [1, 1]}])
def test_a_stack_has_the_ranks_first(values: dict[int, Any]) -> None:
    stacked: Any = gathered("x", values, "stack")
    assert stacked.shape[0] == 2 and stacked[0].sum() == 0 and stacked[1].min() == 1


def test_tensors_stack_as_tensors() -> None:
    assert gathered("x", {0: torch.zeros(2), 1: torch.ones(2)}, "stack").tolist() == [[0, 0], [1, 1]]  # type: ignore[attr-defined]


class Unlike:
    """What numpy must not make an array of, as a `TensorDict` says."""

    def __array__(self) -> None:
        raise TypeError("not to be converted")


def test_what_cannot_be_stacked_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        gathered("x", {0: np.ones((2, 3)), 1: np.ones((2, 3)), 3: np.ones(4)}, "stack")
    assert (
        str(caught.value)
        == "x cannot be stacked: shapes differ: [2, 3] on ranks 0-1, [4] on rank 3; --as list takes all"
    )


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({0: [1, 2], 1: [3]}, "shapes differ: [2] on rank 0, [1] on rank 1"),
        ({0: torch.ones(()), 1: 1.5}, "there are tensors on rank 0, and none on rank 1"),
        ({0: Unlike(), 1: Unlike()}, "what is on rank 0 is no array: TypeError: not to be converted"),
        ({0: [1], 1: [[1], [2, 3]]}, "what is on rank 1 is no array: its items differ in length"),
    ],
)
def test_what_does_not_go_together_is_named(values: dict[int, Any], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        gathered("x", values, "stack")
    assert str(caught.value) == f"x cannot be stacked: {why}; --as list takes all"


def test_a_busy_rank_is_waited_for_aloud(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\nheld = rank")
    busy = kernel.ok("%%on_mesh 1 -b\nimport threading\ngo = threading.Event()\nwhile not go.wait(0.01): pass")
    place = f"rank 1 (at cell {busy.reply['execution_count']} line 4)"
    with hurried(kernel, "meshbook.kernel.stopping.busy", TOLD_AFTER=0.3):
        pulling = kernel.start("%mesh pull held")
        pulling.until(f"pull waits for {place}")
        kernel.interrupt()
        stopped = pulling.end()
        assert stopped.error == f"KeyboardInterrupt: pull was stopped, as it waited for {place}"
        assert ".py" not in stopped.traceback
        pushing = kernel.start("held = 'new'\n%mesh push held")
        pushing.until(f"push waits for {place}")
        kernel.interrupt()
        assert pushing.end().error.endswith(f"waited for {place}; they get it when they are done")
    kernel.ok("%mesh interrupt 1")
    kernel.ok("r = %on_mesh -- held")
    assert set(kernel.value("r.values()")) == {"new"}


def test_a_pull_that_was_stopped_keeps_no_cell_waiting(kernel: Kernel) -> None:
    kernel.ok(
        "%%on_mesh\nimport threading\nasked = 0\nclass Slow:\n    def __reduce__(self):\n"
        "        global asked\n        asked += 1\n        threading.Event().wait()\nslow = Slow()"
    )
    with hurried(kernel, "meshbook.kernel.stopping.busy", TOLD_AFTER=0.3):
        at_work = kernel.start("%mesh pull slow")
        at_work.until("pull waits for ranks 0-3 (at cell ")
        kernel.interrupt()
        assert at_work.end().error.startswith(
            "KeyboardInterrupt: pull was stopped, as it waited for ranks 0-3 (at cell "
        )
        kernel.ok("%%on_mesh -b\ngo = threading.Event()\nwhile not go.wait(0.01): pass")
        behind = kernel.start("%mesh pull slow")
        behind.until("pull waits for ranks 0-3 (at cell ")
        kernel.interrupt()
        assert "pull was stopped" in behind.end().error
    kernel.ok("%mesh interrupt")
    assert "1   ranks 0-3" in kernel.ok("%on_mesh -- asked").text


def test_what_was_pushed_behind_a_cell_holds_after_a_restart(kernel: Kernel) -> None:
    kernel.ok("m7 = %mesh up m7 dp=2 --pg none")
    try:
        kernel.ok("early = 1\n%mesh push early")
        kernel.ok("%%on_mesh\nlr = 0.1\nread = early")
        kernel.ok("lr = early = 0.5\n%mesh push lr early")
        kernel.ok("%mesh restart 1")
        kernel.ok("r = %on_mesh -- (lr, early)")
        assert kernel.value("r.values()") == [(0.5, 0.5)] * 2
        kernel.ok("%mesh resize dp=3")
        kernel.ok("r = %on_mesh -- (lr, early, read > 0)")
        assert kernel.value("r.values()") == [(0.5, 0.5, True)] * 3
    finally:
        kernel.ok("%mesh down m7")
