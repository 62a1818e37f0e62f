"""Values taken apart into named leaves."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from meshbook.kernel.values import leaves as leaves_module
from meshbook.kernel.values.leaves import described, piece_of
from meshbook.kernel.values.leaves import leaves_of as held_of

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text("ab.", max_size=3)
values = st.recursive(
    scalars,
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.text("ab.", max_size=3) | st.integers(0, 2), inside, max_size=3)
    ),
    max_leaves=12,
)


def atoms(value: Any) -> list[Any]:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if not below else [atom for each in below for atom in atoms(each)]


def leaves_of(value: object) -> dict[str, Any]:
    return {name: held.leaf for name, held in held_of(value).items()}


@given(values)
def test_every_leaf_has_a_name_of_its_own(value: Any) -> None:
    found = leaves_of(value)
    assert repr(list(found.values())) == repr(atoms(value))
    assert repr(leaves_of(value)) == repr(found)


@dataclass
class Point:
    x: float
    y: Any


def test_names() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
    assert list(leaves_of(model)) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    ]
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    names = leaves_of({"opt": optimizer})
    assert {"opt.state.0.momentum_buffer", "opt.param_groups.0.lr"} <= set(names)
    assert list(leaves_of(Point(1.0, {"a": 2}))) == ["x", "y.a"]
    assert list(leaves_of({"a.b": 1, "a": {"b": 2}})) == ["a.b", "a.b (2)"]
    assert [type(leaf) for leaf in leaves_of([[1.0] * 20, [1] * 20, [1] * 3, [1.0, 1] * 9][:2]).values()] == [
        memoryview
    ] * 2


def test_what_holds_itself_ends() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert list(leaves_of(ring)) == ["0", "1"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(24.0).reshape(4, 6),
        lambda: torch.arange(24.0).reshape(4, 6).T,
        lambda: torch.arange(24).to(torch.bfloat16)[::2],
        lambda: (torch.arange(6.0) * 1j).conj(),
        lambda: torch.ones(3, requires_grad=True),
        lambda: torch.zeros(0, 3),
        lambda: numpy.arange(24.0).reshape(4, 6).T,
        lambda: numpy.float32(3),
        lambda: [1.5] * 20,
        lambda: 3,
    ],
)
def test_leaves_of_numbers(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (leaf,) = leaves_of(make()).values()
    whole = described(leaf)
    assert whole.is_numeric
    piece = piece_of(leaf, 0, whole.num_elements)
    assert len(piece) == whole.num_elements
    if isinstance(leaf, torch.Tensor):
        assert piece.tolist() == leaf.reshape(-1).tolist()
    monkeypatch.setattr(leaves_module, "PIECE", 16)
    assert described(next(iter(leaves_of(make()).values()))) == whole
    if len(piece) > 1:
        assert piece_of(leaf, 1, 2).tolist() == piece[1:2].tolist()


class Wrapped(torch.Tensor):
    """A tensor without memory of its own, as quantized weights of libraries are."""

    inner: torch.Tensor

    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        raise NotImplementedError


class Flat(Wrapped):
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None


class Refusing(Wrapped):
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        raise RuntimeError("not now")


def emptied() -> torch.Tensor:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


def test_parts_of_tensors_of_subclasses() -> None:
    awaited = AsyncCollectiveTensor(torch.ones(3))
    found = leaves_of({"awaited": awaited, "flat": Flat(torch.ones(3))})
    assert list(found) == ["awaited", "flat.inner"]
    assert {described(leaf) for leaf in found.values()} == {described(torch.ones(3))}
    with FakeTensorMode():
        fake = torch.ones(3)
    odd = [
        Wrapped(torch.ones(3)),
        Refusing(torch.ones(3)),
        fake,
        emptied(),
        torch.nn.LazyLinear(3).weight,
        torch.ones(3, device="meta"),
    ]
    for tensor in odd:
        (leaf,) = leaves_of(tensor).values()
        told = described(leaf)
        assert told.type_name == type(tensor).__qualname__ and not told.is_numeric
    assert not described(torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)).is_numeric


def test_digests_tell_values_apart() -> None:
    pairs: list[tuple[Any, Any]] = [
        (torch.ones(2), torch.tensor([1.0, 2.0])),
        ("a", "b"),
        (1, 1.0),
        (True, 1),
        ({1, 2}, {1, 3}),
        (Point(1, 2), Point),
        (numpy.array([None, 1]), numpy.array([None, 2])),
    ]
    for one, other in pairs:
        assert [*map(described, leaves_of(one).values())] != [*map(described, leaves_of(other).values())]
    assert described({"x", "y", "z"}) == described({"z", "y", "x"})


def test_what_cannot_be_pickled_is_compared_by_type() -> None:
    assert described(threading.Lock()) == described(threading.Lock())
    assert described(threading.Lock()).text == "cannot be pickled: only its type is compared"
