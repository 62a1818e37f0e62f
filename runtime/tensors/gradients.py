"""Gradients by hand, under the names of Monarch: functions with a backward pass of their own, gradients one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree

from ..errors import checks_for_caller

Backward = Callable[..., "torch.Tensor | Sequence[torch.Tensor | None] | None"]


def grad_function(function: Callable[..., tuple[Any, Backward]]) -> Callable[..., Any]:
    """A function that says itself how gradients go back through it, of distributed tensors or plain ones.

    It returns its result, and what is called with the gradient of each tensor in the result to return the gradient of
    each tensor among its arguments (None: it has none), in order. Both may be in lists and dicts; on the way autograd
    records nothing.

    Raises:
        TypeError: in the backward pass, if it returns more gradients than there are tensors among the arguments, or
            fewer.

    Example:
        >>> @grad_function
        ... def clipped(x):
        ...     return x.clamp(0, 1), lambda gradient: gradient  # as if it were not clipped
        >>> x = torch.tensor([0.5, 2.0], requires_grad=True)
        >>> clipped(x).sum().backward()
        >>> x.grad
        tensor([1., 1.])
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        shape: list[Any] = []

        def forward(*tensors: torch.Tensor) -> tuple[list[torch.Tensor], Backward]:
            for at, tensor in zip(places, tensors, strict=True):
                leaves[at] = tensor
            again, named = pytree.tree_unflatten(leaves, spec)
            result, backward = function(*again, **named)
            outputs, form = pytree.tree_flatten(result)
            shape.extend((outputs, form))
            return [each for each in outputs if isinstance(each, torch.Tensor)], backward

        apply = cast("Callable[..., tuple[torch.Tensor, ...]]", _ByHand.apply)  # pyright: ignore[reportUnknownMemberType]
        tensors = iter(apply(forward, *[leaves[at] for at in places]))
        outputs, form = shape
        done = [next(tensors) if isinstance(each, torch.Tensor) else each for each in outputs]
        return pytree.tree_unflatten(done, form)

    return call


class _ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Callable[..., tuple[list[torch.Tensor], Backward]], *tensors: torch.Tensor) -> Any:
        outputs, ctx.backward_by_hand = forward(*tensors)
        ctx.num_tensors = len(tensors)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        found = ctx.backward_by_hand(*gradients)
        found = [found] if found is None or isinstance(found, torch.Tensor) else list(found)
        if len(found) != ctx.num_tensors:
            raise TypeError(f"{len(found)} gradients for {ctx.num_tensors} tensors: give one for each, or None")
        return None, *found


@checks_for_caller
def grad_generator(
    roots: torch.Tensor | Sequence[torch.Tensor],
    with_respect_to: Sequence[torch.Tensor],
    grad_roots: Sequence[torch.Tensor | None] = (),
) -> Iterator[torch.Tensor | None]:
    """The gradients of `roots` by each of these tensors, in their order; None where a root does not depend on it.

    `grad_roots` are those of the roots themselves, each 1 where none is given. Nothing is added to `.grad`, and the
    graph is kept. Here all are computed as the first is asked for; Monarch computes each as it is asked for.

    Raises:
        ValueError: there are gradients for some of the roots, and not for all.
        RuntimeError: as `torch.autograd.grad`, such as for a root that is not a number and has no gradient.

    Example:
        >>> x, w = torch.tensor(2.0), torch.tensor(3.0, requires_grad=True)
        >>> list(grad_generator(x * w, [w]))
        [tensor(2.)]
    """
    tops = [roots] if isinstance(roots, torch.Tensor) else list(roots)
    given = list(grad_roots) or None
    if given is not None and len(given) != len(tops):
        raise ValueError(f"{len(given)} gradients for {len(tops)} roots: give one for each, or None")
    return _lazily(lambda: torch.autograd.grad(tops, with_respect_to, given, retain_graph=True, allow_unused=True))


def _lazily(compute: Callable[[], Sequence[torch.Tensor | None]]) -> Iterator[torch.Tensor | None]:
    yield from compute()
