"""What an operation gives, without computing it: torch's fake tensors are asked once for each form of arguments."""

from __future__ import annotations

import functools
import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils import _pytree as pytree

from ..wire.deferred import untorn

MOST = 4096
"""Forms of arguments that are remembered."""


_making = threading.Lock()  # two threads may need it first, and fakes of two modes know nothing of each other


def fake_mode() -> FakeTensorMode:
    """Made when it is first needed, which is never on a rank: torch imports its compiler then, which takes a second."""
    with _making:
        return _made()


@functools.cache
def _made() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=False)


class Form(NamedTuple):
    """All of a tensor but its values."""

    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Form:
        return cls(
            tensor.size(), tensor.stride(), int(tensor.storage_offset()), tensor.dtype, tensor.device, tensor.layout
        )

    def contiguous(self) -> Form:
        """That of a copy whose values lie one behind the other."""
        strides = itertools.accumulate(reversed(self.size[1:]), lambda step, size: step * max(size, 1), initial=1)
        return self._replace(stride=tuple(strides)[::-1][: len(self.size)], offset=0, layout=torch.strided)

    def fake(self) -> torch.Tensor:
        """A fake tensor of this form; over memory of its own, which nobody looks at. Under `fake_mode()`."""
        reach = 1 + sum((size - 1) * stride for size, stride in zip(self.size, self.stride, strict=True))
        room = torch.empty(self.offset + max(reach, 0), dtype=self.dtype, device=self.device)
        return room.as_strided(self.size, self.stride, self.offset)


class Traits(NamedTuple):
    """What an operator is known to do, from its schema."""

    name: str
    writes: tuple[tuple[int, str], ...]
    """The arguments it writes to, by place and name."""
    is_random: bool
    gives_views: bool
    reshapes_in_place: bool
    floats_count: bool
    """Whether the form of what it gives may depend on the value of a float, as that of `arange` does."""


@functools.cache
def traits_of(func: Any) -> Traits:
    """Those of an operator of torch."""
    writes = [
        (index, argument.name)
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    gives_views = any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)
    return Traits(
        func.name(),
        tuple(writes),
        torch.Tag.nondeterministic_seeded in func.tags,
        gives_views,
        torch.Tag.inplace_view in func.tags,
        torch.Tag.pointwise not in func.tags and not func.name().startswith("aten::_foreach_"),
    )


class Other(NamedTuple):
    """What an operator gives that is no tensor."""

    value: Any


class Result(NamedTuple):
    """What an operator gives, in the order of `pytree`."""

    parts: tuple[Form | int | Other, ...]
    """Tensors of these forms; or, a number, what it has written to, counted from 0."""
    spec: Any
    """How they are put together; None: there is one."""

    def built(self, parts: list[Any]) -> Any:
        """The whole, of what stands for its parts."""
        return parts[0] if self.spec is None else pytree.tree_unflatten(parts, self.spec)


_item = torch.ops.aten._local_scalar_dense.default


class NotHere(DataDependentOutputException, DynamicOutputShapeException):
    """Python asks for a value, or a shape that depends on values, which only the ranks know."""

    def __init__(self, func: Any) -> None:
        super().__init__(func)
        self.func = func

    def __str__(self) -> str:
        what = "a number, for item() or `if`," if self.func is _item else self.func
        return f"{what} needs values of a distributed tensor, which are on its ranks: inspect(tensor) brings a shard"


@untorn  # torch's fake tensors are of no use any more once Ctrl-C has struck in the middle of them
def _computed(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    with fake_mode():
        return func(*args, **kwargs)


def faked(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call an operator with fake tensors. Raises `NotHere`, and what it raises where its arguments do not fit."""
    __tracebackhide__ = True
    is_quiet = _is_quiet.set(True)
    try:
        return _computed(func, args, kwargs)
    except (DataDependentOutputException, DynamicOutputShapeException):
        raise NotHere(func) from None
    except Exception as misfit:  # noqa: BLE001 - goes on, without dozens of torch's own frames
        raise misfit.with_traceback(None) from None
    finally:
        _is_quiet.reset(is_quiet)


_is_quiet: ContextVar[bool] = ContextVar("meshbook_faking", default=False)
logging.getLogger("torch._subclasses.fake_tensor").addFilter(lambda record: not _is_quiet.get())
# Torch logs thirty lines for each operation whose arguments do not fit, and then raises what says so in one.

_known: dict[Any, Result] = {}


def result_of(func: Any, key: Any, fakes: Callable[[], tuple[Any, Any, list[Any]]]) -> Result:
    """What an operator gives for arguments of this key, by their fakes and those that it writes to.

    With a key of None nothing is remembered.
    """
    __tracebackhide__ = True
    found = _known.get((func, key)) if key is not None else None
    if found is None:
        args, kwargs, written = fakes()
        leaves, spec = pytree.tree_flatten(faked(func, args, kwargs))
        places = {id(fake): place for place, fake in enumerate(written)}
        parts = [
            places[id(leaf)] if id(leaf) in places else Form.of(leaf) if isinstance(leaf, torch.Tensor) else Other(leaf)
            for leaf in leaves
        ]
        found = Result(tuple(parts), None if spec.is_leaf() else spec)
        if key is not None:
            if len(_known) >= MOST:
                _known.clear()
            _known[func, key] = found
    return found
