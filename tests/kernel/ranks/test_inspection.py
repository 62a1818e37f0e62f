"""What is told of a name without running the user's code."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from meshbook.kernel.ranks.inspection import inspect_name


def plain(a: int, /, b: int, *rest: int, c: float = 1.5, d: object = object(), **more: int) -> None:
    """One line.

    And more.
    """


class Loud:
    """Says that it was asked."""

    def __init__(self, size: int = 2) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    @property
    def asked(self) -> int:
        """How often."""
        raise AssertionError("it was asked")

    def method(self, x: int) -> None: ...

    def __repr__(self) -> str:
        raise AssertionError("repr")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("plain", "Signature: plain(a, /, b, *rest, c=1.5, d=<object>, **more)\nDocstring:\nOne line.\n\nAnd more."),
        ("Loud", "Signature: Loud(size=2)\nDocstring: Says that it was asked.\nType: class"),
        ("loud", "Docstring: Says that it was asked.\nType: Loud"),
        ("loud.asked", "Docstring: How often.\nType: property"),
        ("loud.method", "Signature: method(self, x)\nType: function"),
        ("loud.nothing", ""),
        ("nothing", ""),
        ("math.pi", "Value: 3.14"),
        ("math.hypot", "Type: builtin_function_or_method"),
        ("x", "Shape: (2, 3)\nDtype: torch.float32"),
        ("number", "Value: 7"),
    ],
)
def test_a_name_is_told(path: str, expected: str) -> None:
    names = {"plain": plain, "Loud": Loud, "loud": Loud(), "math": math, "x": torch.ones(2, 3), "number": 7}
    told = inspect_name(path, names)
    assert expected in told
    assert bool(told) == bool(expected)
