"""The ranks' side of distributed tensors: an actor that computes what the controller says, in order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from ..actor import Actor, endpoint
from ..here import node
from ..ranks.failure import RemoteFailure, describe, has_users
from ..ranks.place import axes_text
from ..scope import current_rank, current_size
from .brake import own_progress
from .kept import TakeOver
from .places import beneath, call, standing_at
from .program import Op, Poison, Ref, Spoilt
from .transfer import Send, Take

_values: dict[tuple[int, int], dict[int, Any]] = {}
"""By mesh and rank its values by number: ranks may be threads of one process. Other actors there find theirs here."""

_arrived = threading.Condition()
"""Notified when values have come: an actor may be given one that is still to be computed."""

_drawing = threading.Lock()  # torch has one state of random numbers, also where ranks are threads

_LEFT_OUT = "KeyboardInterrupt: it was not computed, as the program was interrupted before its turn came"

_PATIENCE = 60.0
"""Seconds that an actor waits for such a value."""


class TensorWorker(Actor):
    """Computes on one rank."""

    _is_careful = True  # ranks would have done different things: `Brake` lets them stop in step

    def __init__(self, seed: int) -> None:
        import torch
        from torch.utils import _pytree

        from .on_ranks import RemoteProcessGroup, real_view

        self._torch: Any = torch
        self._pytree: Any = _pytree
        self._functions: dict[str, Callable[..., Any]] = {"aten::view_as_real": real_view}
        self._group_type = RemoteProcessGroup
        self._values = _values.setdefault(node().address, {})
        self._progress = own_progress()
        self._seed(seed)

    def __cleanup__(self, exc: Exception | None) -> None:
        self._values.clear()  # a resize has given the rank another address: it lives on, and nobody asks for them

    @endpoint
    def run(self, ops: Sequence[Op], dropped: Sequence[int], dtype: Any) -> None:
        """Compute, then forget what nobody refers to any more. What fails is told when its results are asked for.

        `dtype` is the program's default type.
        """
        with self._defaulting_to(dtype):
            for op in ops:
                if self._progress.begin(op.number):
                    self._do(op)
                else:
                    self._leave_out(op)
        for number in dropped:
            self._values.pop(number, None)
        _tell_arrived()

    @endpoint
    def fetch(self, numbers: Sequence[int], rank: int) -> tuple[list[Any] | None, Poison | None]:
        """The values, on this rank of the mesh only; and on each what has failed, if something of them has."""
        values = [self._look(number) for number in numbers]
        failed = next((value for value in values if isinstance(value, Poison)), None)
        return (values if failed is None and current_rank().rank == rank else None), failed

    @endpoint
    def compute(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What a function gives on this rank. Raises what it raises, or that an argument has failed."""
        try:
            args, kwargs = self._values_of((args, kwargs))
        except Spoilt as spoilt:
            raise RuntimeError(f"a distributed tensor was not computed: {spoilt.poison.error}") from None
        with self._torch.no_grad():
            return function(*args, **kwargs)

    @endpoint
    def seed(self, seed: int) -> None:
        """Draw random numbers as `torch.manual_seed(seed)` says; all ranks draw the same."""
        self._seed(seed)

    def _do(self, op: Op) -> None:
        if isinstance(op.function, TakeOver):  # the actor may wait for what has been computed before
            _tell_arrived()
        try:
            leaves = (self._computed if op.where is None else standing_at(op.where, self._computed))(op)
        except Spoilt as spoilt:
            poison = spoilt.poison
            if isinstance(op.function, TakeOver) and not poison.number:  # the actor has failed, called at this place
                poison = poison._replace(number=op.number)
            self._spoil(op, poison)
        except Exception as error:  # noqa: BLE001 - the rim: it is told to who asks for what was to come of it
            error.__traceback__ = beneath(error.__traceback__)
            story = describe(error)
            what = f"{story.type_name}: {story.message.strip()}".partition("\n")[0]
            self._spoil(op, Poison(op.number, current_rank().rank, what, _traceback_of(error, story, op)))
        else:
            for number, value in zip(op.outputs, leaves, strict=True):
                if number is not None:
                    self._values[number] = value

    def _computed(self, op: Op) -> Sequence[Any]:
        args, kwargs = self._arguments(op)
        with self._torch.no_grad():
            result = (self._draw if op.is_random else call)(self._find(op.function), args, kwargs)
        leaves = [result] if isinstance(result, self._torch.Tensor) else self._pytree.tree_leaves(result)
        if not isinstance(op.function, str):
            self._check(op.outputs, leaves)
        return leaves

    def _check(self, outputs: Sequence[int | None], leaves: Sequence[object]) -> None:
        """Raises `TypeError` where a function has given something else than its `propagate`."""
        given = ["a tensor" if isinstance(leaf, self._torch.Tensor) else type(leaf).__name__ for leaf in leaves]
        said = [kind if number is None else "a tensor" for number, kind in zip_longest(outputs, given)][: len(outputs)]
        if given != said:
            raise TypeError(f"it gives {_listed(given)}, where its propagate gives {_listed(said)}")

    def _leave_out(self, op: Op) -> None:
        """What it was to write to is as it was before."""
        poison = Poison(op.number, current_rank().rank, _LEFT_OUT, "")
        self._values.update((number, poison) for number in op.outputs if number is not None)
        if isinstance(op.function, Send):
            op.function.fail(current_rank(), poison)
        elif isinstance(op.function, Take):
            op.function.leave()

    def _arguments(self, op: Op) -> tuple[Any, Any]:
        if not isinstance(op.function, str):
            return self._values_of((op.args, op.kwargs))
        # Those of operators of torch are numbers, tensors and lists of these: nothing else needs to be looked for.
        return [self._plain(arg) for arg in op.args], {name: self._plain(arg) for name, arg in op.kwargs.items()}

    def _values_of(self, arguments: Any) -> Any:
        """The arguments of a function. Raises `Spoilt` on all ranks of a process group among them, or on none."""
        leaves, form = self._pytree.tree_flatten(arguments)
        values = [self._look(leaf.number) if isinstance(leaf, Ref) else leaf for leaf in leaves]
        failed = next((value for value in values if isinstance(value, Poison)), None)
        for group in [leaf for leaf in leaves if isinstance(leaf, self._group_type)]:
            failed = group.agree(failed)
        if failed is not None:
            raise Spoilt(failed)
        return self._pytree.tree_unflatten(values, form)

    def _plain(self, arg: Any) -> Any:
        if isinstance(arg, list | tuple):
            return [self._value_of(item) for item in cast("list[Any]", arg)]
        return self._value_of(arg)

    def _value_of(self, leaf: Any) -> Any:
        if not isinstance(leaf, Ref):
            return leaf
        value = self._look(leaf.number)
        if isinstance(value, Poison):
            raise Spoilt(value)
        return value

    def _look(self, number: int) -> Any:
        found = self._values.get(number, self)
        if found is not self:
            return found
        why = "LookupError: its shard has gone with the process that this rank was before: make the tensor again"
        return Poison(0, current_rank().rank, why, "")

    @contextlib.contextmanager
    def _defaulting_to(self, dtype: Any) -> Generator[None]:
        """Mostly it is the rank's own."""
        former = self._torch.get_default_dtype()
        if dtype == former:
            yield
            return
        self._torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            self._torch.set_default_dtype(former)

    def _spoil(self, op: Op, poison: Poison) -> None:
        for number in (*op.outputs, *self._that_share_memory(op.spoils)):
            if number is not None:
                self._values[number] = poison
        if isinstance(op.function, Send):
            op.function.fail(current_rank(), poison)

    def _that_share_memory(self, numbers: Sequence[int]) -> set[int]:
        """These values, and those that are views of the same memory."""
        if not numbers:
            return set()
        spoilt = {_memory_of(self._values.get(number)) for number in numbers} - {0}
        return {number for number, value in self._values.items() if _memory_of(value) in spoilt} | set(numbers)

    def _find(self, function: str | Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(function, str):
            return function
        if function not in self._functions:
            space, _, name = function.partition("::")
            base, _, overload = name.partition(".")
            self._functions[function] = getattr(getattr(getattr(self._torch.ops, space), base), overload or "default")
        return self._functions[function]

    def _seed(self, seed: int) -> None:
        with _drawing, self._torch.random.fork_rng(self._devices()):
            self._torch.manual_seed(seed)
            self._keep_state()

    def _draw(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call with the random numbers of the mesh in place of those of the rank."""
        with _drawing, self._torch.random.fork_rng(devices := self._devices()):
            self._torch.set_rng_state(self._state)
            if devices:
                self._torch.cuda.set_rng_state(self._cuda_state)
            try:
                return function(*args, **kwargs)
            finally:
                self._keep_state()

    def _devices(self) -> list[int]:
        return [self._torch.cuda.current_device()] if self._torch.cuda.is_available() else []

    def _keep_state(self) -> None:
        self._state = self._torch.get_rng_state()
        self._cuda_state = self._torch.cuda.get_rng_state() if self._devices() else None


def _tell_arrived() -> None:
    with _arrived:
        _arrived.notify_all()


def _memory_of(value: Any) -> int:
    """The address of a tensor's memory; 0 where there is none."""
    try:
        return value.untyped_storage().data_ptr()
    except (AttributeError, RuntimeError, NotImplementedError):  # no tensor, or one of another layout
        return 0


def _listed(kinds: Sequence[str]) -> str:
    """Example: `2 tensors`, `a tensor, NoneType`."""
    return f"{len(kinds)} tensors" if len(kinds) > 1 and set(kinds) == {"a tensor"} else ", ".join(kinds) or "nothing"


def _traceback_of(error: BaseException, story: RemoteFailure, op: Op) -> str:
    """Empty where the error's words say all: below an operator there is only torch."""
    from .on_ranks import OfUsers

    is_called_wrong = isinstance(op.function, OfUsers) and not has_users(error)
    return "" if isinstance(op.function, str) or is_called_wrong else story.traceback


def shard(number: int, sizes: Mapping[str, int]) -> Any:
    """The shard of this rank that was put aside for the call that is being read.

    Raises `TypeError` where the call went to other ranks than those of the tensor, whose mesh has these sizes, and
    `RuntimeError` where it has failed, or does not come.
    """
    if current_size() != sizes:
        there = axes_text(current_size()) or "one rank"
        raise TypeError(
            f"a distributed tensor of {axes_text(sizes)} was sent to actors of {there}: send them slice_mesh(...) of it"
        )
    with _arrived:
        values = _values.setdefault(node().address, {})
        if not _arrived.wait_for(lambda: number in values, _PATIENCE):
            raise RuntimeError(f"a distributed tensor has not come to this rank within {_PATIENCE:g} s")
        value = values.pop(number)
    if isinstance(value, Poison):
        raise RuntimeError(f"a distributed tensor was not computed: {value.error}")
    return value
