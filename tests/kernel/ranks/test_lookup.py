"""Numbers read behind a name, without running anything of the user's."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
import torch

from meshbook.kernel.ranks.lookup import Unreadable, number_at, steps_of


class Loud:
    """Has things that must not be asked."""

    kept = 4

    def __init__(self) -> None:
        self.own = 2.5

    @property
    def asked(self) -> float:
        raise AssertionError("it was asked")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    def __getitem__(self, key: object) -> Any:
        raise AssertionError(key)

    def __float__(self) -> float:
        raise AssertionError("float")


class LoudTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("asked")


NAMES: dict[str, Any] = {
    "loss": 0.5,
    "steps": 3,
    "history": [1, 2, 8],
    "stats": {"a": {"b": [7.0]}},
    "x": torch.tensor([1.5], requires_grad=True),
    "row": torch.ones(3),
    "loud": Loud(),
    "loud_tensor": torch.tensor(6.0).as_subclass(LoudTensor),
    "one": numpy.float32(2.0),
    "model": torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False)),
    "math": math,
}
NAMES["model"][0].weight.data.fill_(9.0)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("loss", 0.5),
        ("steps", 3),
        ("history[-1]", 8),
        ("stats['a'].nothing", "no attribute nothing"),
        ('stats["a"]["b"][0]', 7.0),
        ("stats[a][b][0]", 7.0),
        ("x", 1.5),
        ("row", "a tensor of 3 elements"),
        ("loud.own", 2.5),
        ("loud.kept", 4),
        ("loud.asked", "asked is computed"),
        ("loud.more", "no attribute more"),
        ("loud[0]", "Loud has no item 0 that can be read"),
        ("loud", "a Loud, not a number"),
        ("loud_tensor", 6.0),
        ("one", 2.0),
        ("model._modules[0].weight", "no item 0"),
        ("model._modules['0'].weight", 9.0),
        ("math.e", math.e),
        ("nothing", "not defined"),
        ("history[9]", "no item 9"),
    ],
)
def test_a_number_is_read_or_said_why_not(path: str, number: float | str) -> None:
    try:
        assert number_at(path, NAMES) == number
    except Unreadable as reason:
        assert str(reason) == number


@pytest.mark.parametrize("path", ["f(x)", "a + b", "", "x.", "x[i", "x[0:2]", "1"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is not a name, an attribute or an item"):
        steps_of(path)
