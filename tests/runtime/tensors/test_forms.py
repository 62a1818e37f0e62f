"""What is known of an operation before it is computed."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from meshbook.runtime.tensors import forms
from meshbook.runtime.tensors.forms import Form, NotHere, Other, Result, fake_mode, faked, result_of, traits_of

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("func", "writes", "facts"),
    [
        (aten.add.Tensor, (), ""),
        (aten.arange.start_step, (), "floats_count"),
        (aten.addcdiv_.default, ((0, "self"),), ""),
        (aten.add_.Tensor, ((0, "self"),), ""),
        (aten.add.out, ((3, "out"),), ""),
        (aten._foreach_add_.Scalar, ((0, "self"),), ""),
        (aten.rand.default, (), "is_random floats_count"),
        (aten.view.default, (), "gives_views floats_count"),
        (aten.split.Tensor, (), "gives_views floats_count"),
        (aten.squeeze_.dim, ((0, "self"),), "reshapes_in_place floats_count"),
    ],
)
def test_what_an_operator_does(func: Any, writes: Any, facts: str) -> None:
    traits = traits_of(func)
    assert (traits.name, traits.writes) == (func.name(), writes)
    found = [
        name for name in ("is_random", "gives_views", "reshapes_in_place", "floats_count") if getattr(traits, name)
    ]
    assert found == facts.split()


@given(st.lists(st.integers(0, 4), max_size=3), st.integers(0, 3), st.booleans(), st.booleans())
def test_a_fake_has_the_form_of_what_it_stands_for(sizes: list[int], first: int, turned: bool, spread: bool) -> None:
    tensor = torch.zeros(5, *sizes)[first:]
    tensor = tensor.T if turned and tensor.dim() == 2 else tensor
    tensor = tensor.unsqueeze(0).expand(3, *tensor.shape) if spread else tensor
    with fake_mode():
        fake = Form.of(tensor).fake()
    assert Form.of(fake) == Form.of(tensor)
    assert Form.of(tensor).contiguous() == Form.of(torch.empty(tensor.shape))


def fakes_of(*tensors: torch.Tensor, written: tuple[int, ...] = (), **kwargs: Any) -> Any:
    made = [fake_mode().from_tensor(tensor) for tensor in tensors]
    return lambda: (made, kwargs, [made[place] for place in written])


def test_ctrl_c_waits_until_a_fake_is_computed() -> None:
    done: list[int] = []

    def pressed(x: torch.Tensor) -> torch.Tensor:
        signal.raise_signal(signal.SIGINT)
        done.append(1)
        return x

    with pytest.raises(KeyboardInterrupt):
        faked(pressed, [torch.ones(2)], {})
    assert done == [1]


def test_an_operator_is_asked_once_for_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_known", {})
    asked: list[int] = []
    fakes = fakes_of(torch.ones(2, 3))

    def counted() -> Any:
        asked.append(1)
        return fakes()

    results = [result_of(aten.relu.default, key, counted) for key in ("a", "a", "b", None, None)]
    assert len(asked) == 4
    assert all(result.parts == (Form.of(torch.ones(2, 3)),) for result in results)
    monkeypatch.setattr(forms, "MOST", 2)
    result_of(aten.relu.default, "c", counted)
    assert len(forms._known) == 1, "what is remembered is bounded"


def test_results_of_all_kinds() -> None:
    x = torch.ones(2, 3)
    assert result_of(aten.mul_.Scalar, None, lambda: ((f := fakes_of(x, written=(0,))())[0] + [2], *f[1:])).parts == (
        0,
    )
    both = result_of(aten.max.dim, None, lambda: ([*fakes_of(x)()[0], 1], {}, []))
    assert [part.dtype for part in both.parts if isinstance(part, Form)] == [torch.float32, torch.int64]
    assert both.built(["values", "indices"]) == ("values", "indices")
    assert result_of(aten.is_same_size.default, None, fakes_of(x, x)).parts == (Other(True),)
    assert Result((0,), None).built(["one"]) == "one"


def test_what_depends_on_values_says_so() -> None:
    for func in (aten._local_scalar_dense.default, aten.nonzero.default):
        with pytest.raises(
            NotHere, match=r"needs values of a distributed tensor, which are on its ranks: inspect"
        ) as caught:
            result_of(func, None, fakes_of(torch.ones(1)))
        assert isinstance(caught.value, DataDependentOutputException)
        assert isinstance(caught.value, DynamicOutputShapeException), "Monarch raises the one or the other"
