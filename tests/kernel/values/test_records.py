"""Which values are records, and what a table has of their entries."""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from meshbook.kernel.values.records import MAX_ENTRIES, names_of, record_of

Pair = namedtuple("Pair", "left right")


@dataclass
class Config:
    lr: float = 0.1
    steps: int = 3
    secret: str = field(default="", repr=False)


class Tagged(torch.Tensor):
    """Has methods of its own, which are not to be called: those of a distributed tensor wait for other ranks."""

    def item(self) -> float:
        raise AssertionError("it was asked")


@pytest.mark.parametrize(
    ("value", "record"),
    [
        ({"a": 1, "b": 0.5, "c": None, "d": True, "e": "x"}, {"a": 1, "b": 0.5, "c": None, "d": True, "e": "x"}),
        (Config(), {"lr": 0.1, "steps": 3}),
        (Pair(1, "x"), {"left": 1, "right": "x"}),
        ({"t": torch.tensor(2.0), "n": np.float64(0.5)}, {"t": 2.0, "n": 0.5}),
        ({"t": torch.tensor([1.0, 2.5]), "n": np.arange(3)}, {"t": "[1, 2.5]", "n": "[0, 1, 2]"}),
        ({"t": torch.ones(3, 4), "n": np.zeros(9)}, {"t": "float32 [3, 4]", "n": "float64 [9]"}),
        ({"t": torch.ones(3, device="meta"), "e": torch.ones(0)}, {"t": "float32 [3]", "e": "float32 [0]"}),
        ({"t": torch.ones(()).as_subclass(Tagged), "b": 1}, {"t": "float32 []", "b": 1}),
        ({"large": 1 << 70, "b": 1}, {"large": str(1 << 70), "b": 1}),
    ],
)
def test_records(value: object, record: dict[str, object]) -> None:
    assert record_of(value) == record


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"one": 1},
        {1: 2, 3: 4},
        {"a": 1, "b": [1]},
        {"a": 1, "b": "x" * 100},
        {"a": 1, "b": "two\nlines"},
        {"a": 1, "b": 1j},
        {str(n): n for n in range(MAX_ENTRIES + 1)},
        (1, 2),
        Config,
        torch.ones(2),
        type("Own", (dict,), {})(a=1, b=2),
    ],
)
def test_what_is_no_record(value: object) -> None:
    assert record_of(value) == {}


def test_a_table_has_the_columns_of_all_its_rows_if_they_are_few() -> None:
    assert names_of([{"a": 1, "b": 2}, {"b": 2, "c": math.nan}]) == ["a", "b", "c"]
    assert names_of([{f"{row}{n}": n for n in range(8)} for row in range(2)]) == []
