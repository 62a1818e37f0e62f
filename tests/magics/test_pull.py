"""Values that come to the notebook, and how those of several ranks are put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from IPython.core.error import UsageError

from meshbook.magics.pull import gathered

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
    torch = pytest.importorskip("torch")
    assert gathered("x", {0: torch.zeros(2), 1: torch.ones(2)}, "stack").tolist() == [[0, 0], [1, 1]]  # type: ignore[attr-defined]


def test_what_cannot_be_stacked_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        gathered("x", {0: np.ones((2, 3)), 1: np.ones((2, 3)), 3: np.ones(4)}, "stack")
    assert str(caught.value) == (
        "x cannot be stacked: its shape is (2, 3) on rank 0, and (4,) on rank 3; --as list takes both"
    )
