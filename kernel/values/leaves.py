"""A value taken apart into named leaves, each with its form and a digest of its bytes: what ranks compare.

Runs on a rank's main thread: it may call methods of the user's objects (`state_dict`, pickling).
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import sys
from array import array
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple, cast

import msgspec

from .likeness import likeness
from .odd_tensors import as_it_lies, is_computed_with, is_plain, parts_of, shard_of
from .size import is_array, is_tensor
from .summary import shortened

PIECE = 32 << 20
"""Bytes of one leaf that are looked at, or sent, at a time."""

_DEEPEST = 40
_TEXT = 60
_ARRAY_FROM = 8
"""A list of at least so many floats, or ints, is one leaf."""


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    """What is told of one leaf; two ranks have the same where all of it is equal."""

    type_name: str
    digest: bytes
    """Of the bytes, 16 long."""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    """Of arrays and numbers."""
    text: str = ""
    """Of what is no array."""
    num_bytes: int = 0
    is_numeric: bool = False
    """Can it be near to another, or only equal or not?"""
    shard: str = ""
    """Which part of a distributed tensor it is; only ranks that have the same part can be compared."""

    @property
    def num_elements(self) -> int:
        return prod(self.shape or ())

    @property
    def form(self) -> tuple[str, tuple[int, ...] | None, str]:
        """What must be equal before numbers are."""
        return self.type_name, self.shape, self.dtype


class Held(NamedTuple):
    """A leaf of a value, and which part of it this rank has, where it is a distributed tensor."""

    leaf: Any
    shard: str = ""


def leaves_of(value: object) -> dict[str, Held]:
    """The leaves of a value by name, in order: parameters of a module, state of an optimizer, items of containers.

    Of a distributed tensor (DTensor) the part of this rank is the leaf; a tensor of a subclass that says of which
    others it is made (torchao's, say) is taken apart. Nothing is copied.

    Example:
        >>> [(name, held.leaf) for name, held in leaves_of({"a": [1, "x"], "b": {"c": 2.5}}).items()]
        [('a.0', 1), ('a.1', 'x'), ('b.c', 2.5)]
        >>> leaves_of(3)
        {'': Held(leaf=3, shard='')}
    """
    found: dict[str, Held] = {}
    for name, leaf in _walk(value, "", ()):
        free, count = name, 2
        while free in found:  # {"a.b": 1, "a": {"b": 2}}
            free, count = f"{name} ({count})", count + 1
        found[free] = leaf
    return found


def _walk(value: Any, name: str, above: tuple[int, ...], shard: str = "") -> Iterator[tuple[str, Held]]:
    if is_tensor(value):
        value, shard = as_it_lies(value), shard or shard_of(value)
    inside = None if id(value) in above or len(above) > _DEEPEST else _inside(value)
    if not inside:
        yield name, Held(_local(value), shard)
        return
    for key, below in inside:
        yield from _walk(below, ".".join(filter(None, [name, str(key)])), (*above, id(value)), shard)


def _inside(value: Any) -> list[tuple[object, Any]] | None:
    """Names and values one step down; None for a leaf."""
    torch, pandas = sys.modules.get("torch"), sys.modules.get("pandas")
    if is_tensor(value):
        return parts_of(value)
    if is_array(value):
        return None
    if torch is not None and isinstance(value, torch.nn.Module):
        # Not by `state_dict`: those of sharded models talk to other ranks.
        return [*value.named_parameters(), *value.named_buffers()]
    if pandas is not None and isinstance(value, pandas.DataFrame):
        frame: Any = value
        return [("index", frame.index.to_numpy()), *((column, frame[column].to_numpy()) for column in frame.columns)]
    if isinstance(value, Mapping):
        return list(cast("Mapping[object, Any]", value).items())
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return None if _is_row(items) else list(enumerate(items))
    return _inside_object(value)


def _inside_object(value: Any) -> list[tuple[object, Any]] | None:
    kind = cast("Any", type(value))
    if dataclasses.is_dataclass(kind):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(kind)]
    if callable(getattr(kind, "state_dict", None)):  # optimizers, schedulers, gradient scalers
        return [("", value.state_dict())]
    return None


def _is_row(items: list[Any]) -> bool:
    kind = type(cast("object", items[0])) if items else None
    return len(items) >= _ARRAY_FROM and kind in (int, float) and all(type(item) is kind for item in items)


def _local(value: Any) -> Any:
    """A leaf as it lies on this rank."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return numpy.asarray(value)
    return _row(cast("list[Any]", value)) if isinstance(value, list | tuple) else value


def _row(items: list[Any]) -> object:
    """Numbers as bytes, where they are and fit."""
    try:
        return memoryview(array("d" if type(items[0]) is float else "q", items)) if _is_row(items) else items
    except OverflowError:
        return items


def described(leaf: Any) -> Leaf:
    """The form and the digest of a leaf. Memory: one piece of it, or one copy if it is not contiguous."""
    name = type(leaf).__qualname__
    if is_tensor(leaf) and is_plain(leaf):
        shape, dtype, is_numeric = (
            tuple(leaf.shape),
            str(leaf.dtype).removeprefix("torch."),
            is_computed_with(leaf.dtype),
        )
        return Leaf(name, _digest(_blocks(leaf)), shape, dtype, num_bytes=int(leaf.nbytes), is_numeric=is_numeric)
    if is_array(leaf) and not leaf.dtype.hasobject:
        is_numeric = leaf.dtype.kind in "biufc"
        return Leaf(name, _digest(_blocks(leaf)), leaf.shape, str(leaf.dtype), "", leaf.nbytes, is_numeric)
    if isinstance(leaf, memoryview):
        dtype = "float64" if leaf.format == "d" else "int64"
        return Leaf("list", _digest([leaf]), (leaf.nbytes // 8,), dtype, "", leaf.nbytes, True)
    if type(leaf) is float or (type(leaf) is int and leaf.bit_length() < 64):
        text = repr(leaf)
        return Leaf(name, _digest([text.encode()]), (), "float64" if type(leaf) is float else "int64", text, 8, True)
    data, text = _data(leaf)
    return Leaf(name, _digest([data]), None, "", text, len(data))


def piece_of(leaf: Any, begin: int, end: int) -> Any:
    """These elements of a leaf of numbers, in order, as an array that numpy computes with."""
    import numpy

    if is_tensor(leaf):
        flat = _flat(leaf)[begin:end].cpu().resolve_conj().resolve_neg()
        try:
            return flat.numpy()
        except TypeError:  # numpy has no bfloat16, no float8 and no complex32
            torch: Any = sys.modules["torch"]
            return flat.to(torch.complex64 if flat.is_complex() else torch.float32).numpy()
    return numpy.asarray(leaf).reshape(-1)[begin:end]


def _flat(tensor: Any) -> Any:
    """The elements in a row: a copy, in the memory of the host, only if they do not lie so."""
    tensor = tensor.detach()
    return (tensor if tensor.is_contiguous() else tensor.cpu()).reshape(-1)


def _blocks(leaf: Any) -> Iterator[Any]:
    """The bytes of an array or tensor, a piece at a time."""
    if not is_tensor(leaf):
        import numpy

        flat = numpy.ascontiguousarray(leaf).reshape(-1).view("u1")
        yield from (flat[start : start + PIECE] for start in range(0, flat.nbytes, PIECE))
        return
    flat = _flat(leaf)
    step = max(PIECE // flat.element_size(), 1)
    for start in range(0, flat.numel(), step):
        piece = flat[start : start + step].cpu().resolve_conj().resolve_neg().contiguous()
        # Not by numpy, which has no bfloat16 and may be missing.
        yield (ctypes.c_char * piece.nbytes).from_address(piece.data_ptr())


def _digest(blocks: Any) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for block in blocks:
        digest.update(block)
    return digest.digest()


def _data(leaf: Any) -> tuple[bytes, str]:
    """What stands for a leaf that is no array, and a short text of it."""
    if leaf is None or type(leaf) in (bool, str, int, bytes, complex):
        text = repr(leaf)
        return text.encode("utf-8", "backslashreplace"), shortened(text, _TEXT).replace("\n", " ")
    if isinstance(leaf, set | frozenset):  # their order is not the same in every process
        text = f"{{{', '.join(sorted(map(repr, cast('set[object]', leaf))))}}}"
        return text.encode("utf-8", "backslashreplace"), shortened(text, _TEXT).replace("\n", " ")
    try:
        return likeness(leaf), ""
    except Exception:  # noqa: BLE001 - a user's class may raise anything while it is pickled
        return b"", "cannot be pickled: only its type is compared"
