"""Names of a namespace are listed without running a line of the user's code, and told once for all ranks."""

from __future__ import annotations

import types
from typing import Any

import numpy
import pytest
import torch

from meshbook.kernel.values.inventory import Inventory
from meshbook.kernel.values.names import MOST, Held, held_in


def held(value: object) -> Held:
    return held_in({"x": value}, {})[0]


def explode(*_: object, **__: object) -> Any:
    raise AssertionError("user code ran")


class Meta(type):
    __eq__ = __hash__ = __instancecheck__ = __subclasscheck__ = __repr__ = explode  # pyright: ignore
    __name__ = __module__ = property(explode)  # type: ignore[assignment]


class Trap(metaclass=Meta):
    __len__ = __repr__ = __str__ = __getattr__ = __getattribute__ = __eq__ = __hash__ = explode  # pyright: ignore
    __class__ = __dict__ = shape = dtype = property(explode)  # type: ignore[assignment]


class TrapList(list[int]):
    __len__ = __iter__ = __getattribute__ = explode  # pyright: ignore


class TrapTensor(torch.Tensor):
    shape = dtype = device = property(explode)  # type: ignore[assignment]
    numel = element_size = explode  # pyright: ignore
    __torch_function__ = classmethod(explode)  # pyright: ignore


class TrapArray(numpy.ndarray):  # type: ignore[type-arg]
    shape = dtype = nbytes = property(explode)  # type: ignore[assignment]


class TrapModule(torch.nn.Module):
    def __getattribute__(self, name: str) -> Any:
        return (
            explode()
            if name in ("parameters", "_parameters", "__dict__", "training")
            else super().__getattribute__(name)
        )


def test_no_code_of_the_users_runs() -> None:
    assert held(Trap()).type_name == "Trap"
    assert held(Trap).kind == "class"
    assert held(TrapList([1, 2])).length == 2
    tensor = held(torch.ones(2, 3).as_subclass(TrapTensor))
    assert (tensor.shape, tensor.dtype, tensor.device, tensor.nbytes) == ((2, 3), "torch.float32", "cpu", 24)
    array = held(numpy.ones((2, 3)).view(TrapArray))
    assert (array.shape, array.dtype, array.nbytes) == ((2, 3), "float64", 48)
    module = TrapModule()
    object.__getattribute__(module, "__dict__")["_modules"]["below"] = torch.nn.Linear(3, 2)
    assert held(module).num_params == 8


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_is_told_of_values() -> None:
    assert held(3).value == "3"
    assert held(1 << 9999).value == "10000 bits"
    assert held("hi") == Held("x", "value", "str", length=2, value="'hi'")
    assert held("y" * 99).value is None
    assert held({"a": 1}).length == 1
    assert held(len).kind == held(test_what_is_told_of_values).kind == "function"
    assert held(torch) == Held("x", "module", "module")
    assert held(types.SimpleNamespace()) == Held("x", "value", "SimpleNamespace")
    assert held(torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])).type_name == "Tensor"
    jagged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    assert held(jagged) == Held("x", "value", "NestedTensor", dtype="torch.float32", device="cpu", nbytes=12)


def test_shared_parameters_count_once() -> None:
    one = torch.nn.Linear(4, 4, bias=False)
    two = torch.nn.Linear(4, 4, bias=False)
    two.weight = one.weight
    assert held(torch.nn.Sequential(one, two, one)).num_params == 16


def test_what_was_there_before_is_left_out_unless_it_was_replaced() -> None:
    given = {"rank": [0], "mesh": object()}
    assert held_in(given, given) == []
    assert [each.name for each in held_in({**given, "rank": [1], "_x": 1, "__y__": 2}, given)] == ["rank"]
    assert len(held_in({f"x{i}": i for i in range(MOST + 5)}, {})) == MOST


def test_numbers_lie_between_the_least_and_the_most_and_other_texts_differ() -> None:
    values = [(2.000333535, "node1", "a"), (2.0987654321, "node7", "b")]
    held = {rank: held_in(dict(zip(("x", "y", "z"), each, strict=True)), {}) for rank, each in enumerate(values)}
    assert [line.value for line in Inventory(held).holdings] == ["2.000…2.099", "'node1…7'", "differs"]


def test_disagreement_comes_first() -> None:
    same = [held_in({"a": 1, "f": len, "t": torch.ones(2)}, {})[i] for i in range(3)]
    other = held_in({"a": 2, "f": len, "t": torch.ones(3), "z": [1]}, {})
    inventory = Inventory({0: same, 1: same, 2: other}, silent=[3])
    told = [(line.name, line.ranks, line.is_agreed) for line in inventory.holdings]
    assert told == [
        ("t", (0, 1), False),
        ("t", (2,), False),
        ("z", (0, 1), False),
        ("z", (2,), False),
        ("a", (0, 1, 2), True),
        ("f", (0, 1, 2), True),
    ]
    assert repr(inventory).splitlines() == [
        "≠ t  Tensor   float32 [2]    ranks 0-1",
        "≠ t  Tensor   float32 [3]    rank 2",
        "≠ z  missing                 ranks 0-1",
        "≠ z  list     length 1       rank 2",
        "  a  int      1…2            ranks 0-2",
        "functions: f",
        "no answer from rank 3",
    ]
    assert inventory.data()["names"][2] == {"name": "z", "ranks": [0, 1], "is_agreed": False, "is_missing": True}
    assert inventory.data()["silent"] == [3]


def test_a_device_of_its_own_is_no_disagreement() -> None:
    cuda = [Held("x", "value", "Tensor", (2,), "torch.float32", f"cuda:{i}", 8) for i in range(2)]
    assert [line.ranks for line in Inventory({0: [cuda[0]], 1: [cuda[1]]}).holdings] == [(0, 1)]
    cpu = Held("x", "value", "Tensor", (2,), "torch.float32", "cpu", 8)
    assert [line.is_agreed for line in Inventory({0: [cuda[0]], 1: [cpu]}).holdings] == [False, False]


def test_without_names() -> None:
    assert repr(Inventory({0: [], 1: []})) == "no names yet: what cells assign is listed here"
