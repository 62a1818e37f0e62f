"""Distributed tensors: torch code of the controller computes on all ranks of a mesh. Here are only shapes and types.

As in Monarch, whose names they have: under `procs.activate()` every call of torch makes or takes tensors that live on
the ranks, each with its own shard. What an operation gives is found by torch's fake tensors; what it computes is known
to the ranks, until somebody asks (`inspect`). Autograd works above it, and needs to know nothing.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing  # pyright: ignore[reportUnknownVariableType]

from ..errors import checks_for_caller, marked
from ..mesh import ProcMesh
from ..wire.deferred import untorn
from ..wire.torch_forms import Sent, torch_reducers
from .activation import Mode, active_mesh, faking
from .dispatch import Dispatcher, dispatcher_of, is_in_optimizer, place
from .forms import Form, NotHere, Other, Traits, fake_mode, result_of, traits_of
from .operators import equip
from .program import Ref
from .streams import Memory, Stream, check_stream, get_active_stream
from .worker import shard

_aten = torch.ops.aten
_refs = itertools.count(1)

_CONSTANTS = frozenset({_aten.lift_fresh.default, _aten.lift_fresh_copy.default, _aten.lift.default})
"""How torch brings in data of the program's own: `torch.tensor([1, 2])`."""

SENDABLE = frozenset(
    {int, float, complex, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)


_data: Any = torch.Tensor.data


class Shared:
    """A value on the ranks, which goes when no tensor of the controller means it any more."""

    def __init__(self, dispatcher: Dispatcher, procs: ProcMesh) -> None:
        self.number = next(_refs)
        self.dispatcher = dispatcher
        dispatcher.keep(self, self.number, procs._shape)


class Tensor(torch.Tensor):
    """A tensor with a shard on each rank of a mesh. Its values are there; `inspect` brings one shard here.

    Made by torch under `procs.activate()`, never directly.
    """

    _form: Form
    _kept_fake: torch.Tensor | None
    _value: Shared
    _procs: ProcMesh
    _stream: Stream
    _memory: Memory
    _dropped_at: str

    @property
    def _fake(self) -> torch.Tensor:
        if self._kept_fake is None:
            self._kept_fake = _fake_of(self._form)
        return self._kept_fake

    @property
    def mesh(self) -> ProcMesh:
        """The ranks that have a shard."""
        return self._procs

    @property
    def stream(self) -> Stream:
        """The stream whose operations may use it."""
        return self._stream

    @property
    def dropped(self) -> bool:
        """Whether it was dropped."""
        return bool(self._dropped_at or self._memory.dropped_at)

    def drop(self) -> None:
        """Let go of the values on the ranks, as the end of the last reference would; to use it is an error then."""
        self._dropped_at = self._dropped_at or str(place())
        with contextlib.suppress(AttributeError):
            del self._value

    @property
    def data(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The same values, without a gradient. Assigned, as `module.half()` does, it takes the place of the values."""
        return _data.__get__(self)

    @data.setter
    def data(self, other: Any) -> None:
        if not isinstance(other, Tensor):
            raise marked(TypeError("the data of a distributed tensor is a distributed tensor: copy_() brings others"))
        value = other._alive()
        _data.__set__(self, other)  # torch's own part: shape, type and strides
        self._form, self._kept_fake, self._value, self._procs = other._form, other._kept_fake, value, other._procs
        self._stream, self._memory = other._stream, other._memory

    def slice_mesh(self, **dims: Any) -> Tensor:
        """The shards on a part of the mesh, by the words of `ProcMesh.slice`: the same memory."""
        return wrapped(self._form, self._alive(), self._procs.slice(**dims), self._stream, self._memory)

    def reduce(
        self, dims: Any = (), reduction: str = "sum", scatter: bool = False, *, out: Tensor | None = None
    ) -> Tensor:
        """Combine the shards along axes of the mesh (`movement.reduce`); written to `out`, where one is given."""
        from .movement import reduce, reduce_into

        return (
            reduce(self, dims, reduction, scatter) if out is None else reduce_into(out, self, dims, reduction, scatter)
        )

    def reduce_(self, dims: Any = (), reduction: str = "sum") -> Tensor:
        """The same, in place."""
        from .movement import reduce_

        return reduce_(self, dims, reduction)

    def to_mesh(self, mesh: ProcMesh, stream: Stream | None = None) -> Tensor:
        """Each shard to the rank at the same place of another mesh (`moving.to_mesh`)."""
        from .moving import to_mesh

        return to_mesh(self, mesh, stream)

    def _alive(self) -> Shared:
        if self._dropped_at:
            why = f"this distributed tensor is dropped at {self._dropped_at}: it cannot be used any more"
            raise marked(TypeError(why))
        return self._value

    def _usable(self) -> Shared:
        """The same, for an operation that is made now."""
        value = self._alive()
        if self._stream is not get_active_stream():
            check_stream(self._stream)
        if self._memory.is_shared:
            self._memory.check()
        return value

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        __tracebackhide__ = True
        return _dispatch(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied: Any = self.detach().clone().requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):  # how torch knows an `nn.Parameter` that is a tensor of another kind
            copied._is_param = True
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        why = "the values of a distributed tensor are on its ranks: inspect(tensor) brings a shard to keep"
        raise marked(TypeError(why))

    def __format__(self, format_spec: str) -> str:
        if format_spec:
            raise marked(NotHere(f"format {format_spec!r}"))
        return repr(self)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        grad = ", requires_grad=True" if self.requires_grad else ""
        shape, device = tuple(self.shape), "" if self.device.type == "cpu" else f", device={self.device}"
        on = "" if self._stream.name == "main" else f", {self._stream}"
        return f"<Tensor {shape} {str(self.dtype)[6:]}{device}{grad} on {words(self._procs)}{on}>"


equip(Tensor)


def _as_shard(tensor: Tensor, sent: Sent) -> Any:
    """Among the arguments of a call it is, for each actor, the shard of its rank.

    A copy as it is now: the actor may take it later, when the shard has been written to, or is gone.
    """
    value, copied = tensor._usable(), next(_refs)
    shape = tensor._procs._shape
    sent.undo += (lambda: value.dispatcher.drop(copied, shape),)
    value.dispatcher.issue(shape, "aten::clone", (Ref(value.number),), {}, [copied])
    value.dispatcher.flush()
    return shard, (copied, tensor._procs.sizes)


torch_reducers[Tensor] = _as_shard


def _compute(func: Any, args: Any, kwargs: Any) -> Any:
    """What is computed while a mesh is active: on it, but for what was brought here."""
    __tracebackhide__ = True
    leaves = pytree.arg_tree_leaves(*args, **kwargs)
    local = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not isinstance(leaf, Tensor)]
    if local and not any(isinstance(leaf, Tensor) for leaf in leaves):
        if func not in _CONSTANTS:
            return func(*args, **kwargs)  # what has been brought here is computed with here
        if is_in_optimizer():
            return func(*args, **kwargs)  # its count of steps, of which Adam wants the value at each
    return _dispatch(func, args, kwargs)


Mode.compute = staticmethod(_compute)


def issue(
    procs: ProcMesh, function: str | Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], results: Any
) -> Any:
    """Compute with a function on the ranks; `results` are fake tensors in the form of what it gives."""
    dispatcher, stream = dispatcher_of(procs), get_active_stream()
    leaves, spec = pytree.tree_flatten((args, kwargs))
    positional, named = pytree.tree_unflatten(list(map(as_argument, leaves)), spec)
    made = pytree.tree_map_only(
        torch.Tensor, lambda fake: wrapped(Form.of(fake), Shared(dispatcher, procs), procs, stream), results
    )
    outputs = [leaf._value.number if isinstance(leaf, Tensor) else None for leaf in pytree.tree_leaves(made)]
    dispatcher.issue(procs._shape, function, positional, named, outputs)
    if not all(map(_is_plain, leaves)):
        dispatcher.send_waiting()  # while it is what it is now
    return made


def mesh_of(tensors: Iterable[Tensor]) -> ProcMesh | None:
    """The mesh that they are on; that which is active, where there are none.

    Raises `TypeError` where they are on several.
    """
    found: ProcMesh | None = None
    for tensor in tensors:
        if found is not None and tensor._procs != found:
            raise TypeError(
                f"tensors of different meshes cannot be mixed (WRONG_MESH): one is on {words(found)}, and one on "
                f"{words(tensor._procs)}: slice_mesh gives the shards of a part"
            )
        found = tensor._procs
    return found if found is not None else active_mesh()


@checks_for_caller
def _dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    tensors: list[Tensor] = []
    rest: list[Any] = []
    traits = traits_of(func)
    positional = _survey(args, tensors, rest, traits.floats_count)
    named = _survey(kwargs.values(), tensors, rest, traits.floats_count)
    key = (positional, tuple(kwargs), named, torch.get_default_dtype())
    for tensor in tensors:
        tensor._usable()
    procs = mesh_of(tensors)
    assert procs is not None
    if local := [each for each in rest if isinstance(each, torch.Tensor)]:
        _check_local(local, func, traits, args, kwargs, procs)
    _check_kind(func, traits)
    written = [leaf for leaf in _written(traits, args, kwargs) if isinstance(leaf, Tensor)] if traits.writes else []
    for tensor in written:
        tensor._memory.check_write()

    def fakes() -> tuple[Any, Any, list[Any]]:
        positional, named = pytree.tree_map_only(torch.Tensor, _as_fake, (args, kwargs))
        return positional, named, [tensor._fake for tensor in written]

    result = result_of(func, None if rest else key, fakes)
    dispatcher = dispatcher_of(procs)
    stream = tensors[0]._stream if tensors else get_active_stream()
    memory = tensors[0]._memory if tensors and traits.gives_views else None
    made, outputs = _made(
        result.parts, written, lambda form: wrapped(form, Shared(dispatcher, procs), procs, stream, memory)
    )
    if written or any(outputs):
        spoils = [tensor._value.number for tensor in written]
        positional, named = _sent(args), {name: _sent(value) for name, value in kwargs.items()}
        dispatcher.issue(procs._shape, traits.name, positional, named, outputs, spoils, is_random=traits.is_random)
    whole = result.built(made)
    return cast("Any", return_and_correct_aliasing)(func, args, kwargs, whole) if traits.gives_views else whole


def _check_kind(func: Any, traits: Traits) -> None:
    """Raises `TypeError` for what no distributed tensor can do."""
    if traits.name.startswith("aten::set_"):
        raise TypeError(
            "memory of this process becomes no distributed tensor: say torch.load(...) outside of activate(), or under "
            "no_mesh.activate(), and bring what it gives to the ranks by load_state_dict(...) or copy_()"
        )
    if traits.reshapes_in_place:
        raise TypeError(f"{func} changes the shape of a distributed tensor in place: say it without the `_`")


def _check_local(local: list[torch.Tensor], func: Any, traits: Traits, args: Any, kwargs: Any, procs: ProcMesh) -> None:
    """Raises `TypeError` where local tensors meet distributed ones: but single numbers do, as those of a CPU meet GPUs.

    And `copy_` brings what is here to all ranks: a checkpoint is loaded so.
    """
    wide = [each for each in local if each.dim() and func is not _aten.copy_.default]
    written = [each for each in local if any(each is leaf for leaf in _written(traits, args, kwargs))]
    if func not in _CONSTANTS and (found := [*wide, *written]):
        raise TypeError(
            f"{func}: a local tensor {tuple(found[0].shape)} cannot be mixed with distributed ones of {words(procs)} "
            "(LOCAL_TENSOR): make it under activate(), copy_() it there, or bring theirs here with inspect()"
        )


def _survey(values: Iterable[Any], tensors: list[Tensor], rest: list[Any], floats_count: bool) -> tuple[Any, ...]:
    """All of the arguments but the values of tensors, which are collected, and the rest, which cannot be compared."""
    key: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
            key.append(value._form)
        elif isinstance(value, list | tuple):
            key.append(_survey(cast("list[Any]", value), tensors, rest, floats_count))
        elif type(value) is float and not floats_count:
            key.append(float)
        elif type(value) in SENDABLE:
            key.append((type(value), value))  # 1, 1.0 and True are equal, and give results of other types
        else:
            rest.append(value)
    return tuple(key)


@untorn  # as in `forms`
def _fake_of(form: Form) -> torch.Tensor:
    with faking():
        return form.fake()


@untorn
def _as_fake(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._fake if isinstance(tensor, Tensor) else fake_mode().from_tensor(tensor)


def _sent(value: Any) -> Any:
    """An argument of an operator as it travels."""
    if isinstance(value, list | tuple):
        items = [_sent(item) for item in cast("list[Any]", value)]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, Tensor):
        return Ref(value._value.number)
    if not _is_plain(value):
        raise TypeError(f"a {type(value).__name__} cannot be an argument of what is computed on the ranks")
    return as_argument(value)


def _is_plain(leaf: object) -> bool:
    """Can it be an argument of an operator?"""
    return isinstance(leaf, torch.Tensor) or type(leaf) in SENDABLE


def as_argument(leaf: Any) -> Any:
    """A single argument as it travels: of a function of the user's whatever can be sent."""
    if isinstance(leaf, Tensor):
        return Ref(leaf._usable().number)
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf  # as it is now: it is sent later


def _written(traits: Traits, args: Any, kwargs: Any) -> Iterator[object]:
    """The arguments that an operator writes to."""
    for index, name in traits.writes:
        value = args[index] if index < len(args) else kwargs.get(name)
        yield from pytree.tree_leaves(value)


def _made(
    parts: Iterable[Form | int | Other], written: list[Tensor], new: Callable[[Form], Tensor]
) -> tuple[list[Any], list[int | None]]:
    """What stands here for the parts of a result, and the numbers under which ranks keep those that are new."""
    made: list[Any] = []
    outputs: list[int | None] = []
    for part in parts:
        if isinstance(part, Form):
            made.append(new(part))
            outputs.append(made[-1]._value.number)
        else:
            made.append(written[part] if isinstance(part, int) else part.value)
            outputs.append(None)
    return made, outputs


def wrapped(form: Form, value: Shared, procs: ProcMesh, stream: Stream, memory: Memory | None = None) -> Tensor:
    """The tensor of this form that stands for a value on the ranks; in the memory of others, or its own."""
    made: Any = torch.Tensor._make_wrapper_subclass(  # pyright: ignore[reportUnknownMemberType]
        Tensor,
        form.size,
        strides=form.stride,
        storage_offset=form.offset,
        dtype=form.dtype,
        layout=form.layout,
        device=form.device,
    )
    made._form, made._kept_fake, made._value, made._procs, made._dropped_at = form, None, value, procs, ""
    made._stream, made._memory = stream, memory or Memory()
    return made


def words(procs: ProcMesh) -> str:
    """Example: `hosts=2,gpus=4`."""
    return ",".join(f"{axis}={size}" for axis, size in procs.sizes.items()) or "one rank"
