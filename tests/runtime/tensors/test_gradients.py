"""Functions with a backward pass of their own, and gradients one by one, on a mesh."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from meshbook.runtime import ProcMesh
from meshbook.runtime.tensors import grad_function, grad_generator
from meshbook.runtime.tensors import inspect as inspect_typed

pytestmark = pytest.mark.real

inspect: Any = inspect_typed  # to a type checker, what torch makes on a mesh is a plain tensor


@grad_function
def linear(inputs: dict[str, Any], weight: Any, scale: float = 2.0) -> Any:
    assert not torch.is_grad_enabled()
    x = inputs["x"]

    def backward(gradient: Any, _: Any) -> Any:
        return None, 10 * gradient.t() @ x

    return {"y": scale * x @ weight.t(), "scale": scale, "sizes": [x.sum(0)]}, backward


def test_a_backward_pass_by_hand_is_what_counts(grid: ProcMesh) -> None:
    with grid.activate():
        x: Any = torch.ones(3, 2) + grid.rank_tensor("dp")
        weight = torch.ones(4, 2, requires_grad=True)
        done = linear({"x": x}, weight)
        (3 * done["y"]).sum().backward()
    assert done["scale"] == 2.0
    assert [inspect(done["sizes"][0], dp=d, tp=0).tolist() for d in (0, 1)] == [[3.0, 3.0], [6.0, 6.0]]
    assert [inspect(weight.grad, dp=d, tp=0)[0].tolist() for d in (0, 1)] == [[90.0, 90.0], [180.0, 180.0]]


def test_a_gradient_too_many_is_refused() -> None:
    x = torch.ones(2, requires_grad=True)
    both = grad_function(lambda x: (x * 1, lambda gradient: (gradient, gradient)))
    with pytest.raises(TypeError, match="2 gradients for 1 tensors: give one for each, or None"):
        both(x).sum().backward()


def test_gradients_come_one_by_one_in_the_order_asked_for(grid: ProcMesh) -> None:
    with grid.activate():
        x: Any = torch.ones(2) + grid.rank_tensor("tp")
        first, second, unused = (torch.full((2,), n, requires_grad=True) for n in (2.0, 3.0, 4.0))
        gradients = grad_generator([(x * first).sum() * 1, (first * second).sum()], [second, unused, first])
        assert inspect(next(gradients), dp=0, tp=0).tolist() == [2.0, 2.0]
        assert next(gradients) is None
        assert inspect(next(gradients), dp=0, tp=1).tolist() == [5.0, 5.0]
    assert not list(gradients)
    assert (first.grad, second.grad) == (None, None)


def test_roots_may_have_gradients_of_their_own() -> None:
    x = torch.ones(2, requires_grad=True)
    [gradient] = grad_generator([x * 3], [x], [torch.tensor([1.0, 10.0])])
    assert gradient is not None and gradient.tolist() == [3.0, 30.0]
    with pytest.raises(ValueError, match="2 gradients for 1 roots"):
        grad_generator(x, [x], [x, x])
