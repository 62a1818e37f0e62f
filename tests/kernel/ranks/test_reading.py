"""Expressions read on a rank at work: what they give, and that nothing of the user's runs for them."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy
import pytest
import torch

from meshbook.kernel.ranks.lookup import Unreadable
from meshbook.kernel.ranks.reading import MOST_ELEMENTS, check, read_number


class Loud:
    """Has what must not be asked."""

    own = 2

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    def _asked(self, *_: Any) -> Any:
        raise AssertionError("asked")

    __eq__ = __add__ = __radd__ = __call__ = __lt__ = __len__ = __float__ = __getitem__ = __iter__ = __bool__ = _asked  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class LoudTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("asked")


def _loud(*_: Any) -> Any:
    raise AssertionError("called")


WEIGHT = torch.nn.Parameter(torch.full((2, 2), 3.0))
WEIGHT.norm = _loud  # type: ignore[method-assign]
WEIGHT.grad = torch.ones(2, 2)
NAMES: dict[str, Any] = {
    "loss": 0.5,
    "losses": [1, 2, 8.0],
    "late": deque([torch.tensor(1.0), 3.0]),
    "stats": {"a": [4], "b": 2},
    "w": WEIGHT,
    "x": torch.arange(6.0).reshape(2, 3),
    "huge": torch.empty(1).expand(MOST_ELEMENTS + 1),
    "on_gpu": torch.empty(3, device="meta"),
    "sub": torch.ones(3).as_subclass(LoudTensor),
    "one": numpy.float32(2.0),
    "loud": Loud(),
    "mine": _loud,
    "math": math,
    "i": 1,
    "word": "ab",
}


@pytest.mark.parametrize(
    ("expr", "number"),
    [
        ("losses[-1]", 8),
        ("losses[i] / 2", 1),
        ("sum(losses[-2:]) / len(losses)", 10 / 3),
        ("max(late) - min(late)", 2),
        ("-stats['a'][0] ** 2", -16),
        ("float(w.norm())", 6),
        ("w.norm(p=1)", 12),
        ("w.grad.abs().sum()", 4),
        ("w.data.mean()", 3),
        ("x[1, 2]", 5),
        ("losses[i]", 2),
        ("stats[b]", 2),
        ("late[0]", 1),
        ("x[:, 1].max() + one", 6),
        ("(x - x.mean()).square().mean().sqrt()", math.sqrt(35 / 12)),
        ("math.log(loss)", math.log(0.5)),
        ("loud.own * 2", 4),
        ("losses[0] < loss", 0),
        ("(x > 2).sum().item()", 3),
        ("not loss", 0),
        ("w", "a tensor of 4 elements"),
        ("mine(loss)", "mine() is not called while a cell runs"),
        ("loud + 1", "a Loud, not a number"),
        ("1 + loud", "a Loud, not a number"),
        ("loud(1)", "loud() is not called"),
        ("loud.thing + 1", "no attribute thing"),
        ("len(loud)", "len is read of plain containers"),
        ("float(loud)", "a Loud, not a number"),
        ("max(loud, 1)", "a Loud, not a number"),
        ("max([loud])", "cannot be read"),
        ("loud[1:]", "a Loud has no slices"),
        ("losses[loud]", "list has no item"),
        ("x[loud] + 1", "a tensor is read at whole numbers"),
        ("w.norm(loud)", "norm() is read with numbers only"),
        ("w.backward()", "backward of a tensor is not read"),
        ("sub.sum()", "sum is computed"),
        ("huge.sum()", "a tensor of 1,000,001 elements"),
        ("on_gpu.sum()", "on meta"),
        ("x + w", "tensors of different shapes"),
        ("word * 1000000000", "a str, not a number"),
        ("9 ** 999999", "a power of such a size"),
        ("loss / 0", "ZeroDivisionError"),
        ("nothing + 1", "nothing is not defined"),
        ("losses[9] + 1", "no item 9"),
        ("stats['c'] + 1", "no item 'c'"),
    ],
)
def test_it_gives_a_number_or_says_why_not(expr: str, number: float | str) -> None:
    try:
        check(expr)
        found: float | str = read_number(expr, NAMES)
    except (Unreadable, ValueError) as reason:
        found = str(reason)
    if isinstance(number, str):
        assert isinstance(found, str) and number in found
    else:
        assert found == pytest.approx(number)


@pytest.mark.parametrize(
    "expr", ["lambda: 1", "[x for x in y]", "(y := 1)", "await x", "f'{x}'", "{1}", "x if y else z", "*x", "x and y"]
)
def test_what_cannot_be_read_is_refused_before_it_is_sent(expr: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be read while a cell runs|is no expression"):
        check(expr)
