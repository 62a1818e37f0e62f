"""User objects to bytes and back: pickle protocol 5, the large buffers beside the stream instead of in it.

What pickle alone gets wrong between a notebook and its ranks is settled here. Functions and classes of a
notebook (`__main__`) or of a module that cannot be imported elsewhere, lambdas and closures travel by value,
with cloudpickle: plain pickle would name them, succeed, and fail on the rank. Tensors travel without a copy
and arrive on the CPU, writable and private, as in Monarch.

Two tensors of one message that cover exactly the same bytes (tied weights, `x` and `x.view(-1)`) still do on
arrival. Tensors that overlap otherwise arrive apart: to send all of a large storage for a small slice of it
would cost more than it is worth.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import reprlib
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from types import FunctionType, MethodType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from . import functools_forms, torch_forms
from .class_bodies import note_names
from .classes import with_marks
from .functools_forms import functools_reducers
from .torch_forms import Sent, learn, torch_reducers

if TYPE_CHECKING:
    from pickle import Pickler as CloudPickler

    from .link import Buffer
else:
    from cloudpickle import Pickler as CloudPickler

INLINE = 4096
"""Buffers of fewer bytes stay in the stream: a frame of their own would cost more than the copy."""

Reducer = Callable[[Any], Any]
"""What `object.__reduce__` is, from outside: the object to a name, or to `(rebuild, arguments, ...)`."""

_PROTOCOL = 5
_OURS = (__name__, functools_forms.__name__, torch_forms.__name__)
"""The modules whose functions stand in streams by their names."""
_ONE_PART = struct.Struct("<QQ")
_ALIGN = 64  # a cache line, and what the widest vector loads want


class EncodeError(TypeError, pickle.PicklingError):
    """Something in the value cannot be pickled; the text says where in it, and what it is.

    Pickle itself raises the one for a lock, say, and the other for what is nested too deep.
    """


class DecodeError(ValueError):
    """The bytes cannot be made into an object here; the text names the type that could not."""


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A value as bytes: the pickle stream, and the buffers that stand beside it, not copied.

    In a message it is the value, encoded by whoever knows how.
    """

    head: bytes
    buffers: list[memoryview]
    files: tuple[str, ...] = ()
    """Where the functions of the program's own file or notebook stand that go by value in it."""

    @property
    def nbytes(self) -> int:
        return len(self.head) + sum(buffer.nbytes for buffer in self.buffers)

    def __reduce__(self) -> Any:
        return decode, (self.head, [pickle.PickleBuffer(buffer) for buffer in self.buffers])


def encode(value: object, reducers: Mapping[type, Reducer] | None = None, whole_classes: bool = False) -> Encoded:
    """Pickle a value. Its buffers are views of the value's own memory: do not change it before they are sent.

    `reducers` says for this one message how objects of exactly these types travel, as `copyreg` does for all.
    `whole_classes`: those that go by value replace what is known of them where they come to (see `classes`).

    Raises `EncodeError`.

    Example:
        >>> data = encode(("step", 3, {"lr": 0.1}))
        >>> decode(data.head, data.buffers)
        ('step', 3, {'lr': 0.1})
        >>> import threading
        >>> encode({"lock": threading.Lock()})
        Traceback (most recent call last):
        meshbook.runtime.wire.codec.EncodeError: cannot pickle: dict['lock'] is a _thread.lock
    """
    if _is_plain(value):
        return Encoded(pickle.dumps(value, _PROTOCOL), [])
    try:
        return _pickled(value, reducers or {}, whole_classes)
    except Exception as error:  # a user's __reduce__ or __getstate__ may raise anything
        raise EncodeError(_blame(value, error, reducers or {})) from error


_NUMBERS = frozenset({int, float, bool, type(None)})


def quick(values: tuple[object, ...], value: object) -> Encoded | None:
    """The same for a value of which `values` are all the parts, where they are numbers: nearly every call is so.

    Those need no look at what they refer to, nor at their size. None where there is anything else.

    Example:
        >>> quick((1, 2.5), ((1, 2.5), {})) == encode(((1, 2.5), {}))
        True
        >>> quick(("text",), "text") is None
        True
    """
    return Encoded(pickle.dumps(value, _PROTOCOL), []) if _NUMBERS.issuperset(map(type, values)) else None


def decode(head: Buffer, buffers: Sequence[Buffer] = ()) -> Any:
    """The value that `encode` was given. It lies in the memory of `buffers`; in copies if that is read-only.

    Raises `DecodeError`.
    """
    if buffers:
        buffers = [bytearray(b) if memoryview(b).readonly else b for b in buffers]
    try:
        return pickle.loads(head, buffers=buffers)
    except (Exception, SystemExit) as error:  # so may a user's constructor, __setstate__ or module raise
        name = _culprit(head, buffers, error)
        raise DecodeError(f"cannot be unpickled: {name} ({_one_line(error)})") from error


def dumps(value: object, reducers: Mapping[type, Reducer] | None = None) -> bytes:
    """`encode` in one piece, to be kept in a file or in a field of a message.

    Example:
        >>> loads(dumps([1, "two"]))
        [1, 'two']
    """
    encoded = encode(value, reducers)
    head, buffers = encoded.head, encoded.buffers
    if not buffers:
        return _ONE_PART.pack(1, len(head)) + head
    sizes = [len(head), *(buffer.nbytes for buffer in buffers)]
    index = struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes)
    parts: list[Buffer] = []
    for part in (index, head, *buffers):
        parts += (part, bytes(-memoryview(part).nbytes % _ALIGN))
    return b"".join(parts)


def loads(data: Buffer) -> Any:
    """The value that `dumps` was given. Raises `DecodeError`."""
    whole = memoryview(data).cast("B")
    try:
        (count,) = struct.unpack_from("<Q", whole)
        sizes = struct.unpack_from(f"<{count}Q", whole, 8)
    except struct.error as error:
        raise DecodeError(f"cannot be unpickled: {whole.nbytes} bytes are no message of `dumps`") from error
    at = 8 * (1 + count)
    if count == 1:
        return decode(whole[at : at + sizes[0]])
    parts: list[memoryview] = []
    for size in sizes:
        at += -at % _ALIGN
        parts.append(whole[at : at + size])
        at += size
    return decode(parts[0], parts[1:])


_ATOMS = frozenset({int, str, float, bool, type(None), bytes})


def _is_plain(value: object, depth: int = 3) -> bool:
    """Whether plain pickle, which is faster, does right by it. Only small values: looking takes time too.

    Only exact types: a subclass may live in a notebook, and must then travel by value.
    """
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is tuple or kind is list:
        items = cast("Sequence[object]", value)
    elif kind is dict:
        mapping = cast("dict[object, object]", value)
        items = mapping.values()
        if not _ATOMS.issuperset(map(type, mapping)):
            return False
    else:
        return False
    if len(items) > 32 or not depth:
        return False
    return _ATOMS.issuperset(map(type, items)) or all(map(_is_plain, items, repeat(depth - 1)))


class _Beside(list[memoryview]):
    """The buffers that leave the stream. Not in the pickler: a cycle would keep them alive after sending."""

    def place(self, buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < INLINE:
            return True
        self.append(view)
        return False


class _Pickler(CloudPickler):
    def __init__(
        self, file: io.BytesIO, beside: _Beside, reducers: Mapping[type, Reducer], whole_classes: bool
    ) -> None:
        super().__init__(file, _PROTOCOL, buffer_callback=beside.place)
        self.reducers = reducers
        self.whole_classes = whole_classes
        self.sent = Sent()
        self.files: set[str] = set()

    def reducer_override(self, obj: Any, /) -> Any:
        kind = type(cast("object", obj))
        if reducer := self.reducers.get(kind):
            reduced = reducer(obj)
            if reduced is not NotImplemented or not issubclass(kind, type):  # a class may have to go by value
                return reduced
        if kind is FunctionType or issubclass(kind, type):
            return self._reduce_named(obj)
        if (by_torch := torch_reducers.get(kind)) or (by_torch := learn(kind)):
            return by_torch(obj, self.sent)
        if by_functools := functools_reducers.get(kind):
            _note_package(obj.__module__)
            return by_functools(obj)
        return NotImplemented

    def _reduce_named(self, obj: Any) -> Any:
        """By name where the other end can import it, else by value."""
        name = obj.__module__
        if name in _OURS:
            return NotImplemented
        _note_package(name)
        if isinstance(obj, FunctionType):
            note_names(obj.__code__)
            if obj.__globals__.get("__name__") == "__main__":
                self.files.add(obj.__code__.co_filename)
        reduced = cast("Any", super()).reducer_override(obj)
        return with_marks(obj, reduced, self.whole_classes) if isinstance(obj, type) else reduced


def _note_package(name: object) -> None:
    """Have cloudpickle send by value what is of a module that cannot be imported elsewhere."""
    # A submodule made by an extension has no spec either, but appears where its package is imported.
    package = sys.modules.get(name.partition(".")[0]) if isinstance(name, str) else None
    is_nowhere = name == "__mp_main__" or (name != "__main__" and getattr(package, "__spec__", None) is None)
    if isinstance(package, ModuleType) and is_nowhere:
        cloudpickle.register_pickle_by_value(package)  # pyright: ignore[reportUnknownMemberType]


def _pickled(value: object, reducers: Mapping[type, Reducer], whole_classes: bool = False) -> Encoded:
    stream = io.BytesIO()
    beside = _Beside()
    pickler = _Pickler(stream, beside, reducers, whole_classes)
    try:
        pickler.dump(value)
    except BaseException:
        pickler.sent.take_back()
        raise
    return Encoded(stream.getvalue(), beside, tuple(pickler.files))


class _Searcher(_Pickler):
    """Passes over what is searched already: a method that names its class fails with it, and is not at fault."""

    above: set[int]

    def persistent_id(self, obj: Any) -> Any:
        return True if id(obj) in self.above else None


def _check_part(part: object, reducers: Mapping[type, Reducer], above: set[int]) -> None:
    """Raises what is in the way of pickling a part, where that is in it, and not only what has the part in it."""
    searcher = _Searcher(io.BytesIO(), _Beside(), reducers, False)
    searcher.above = above
    try:
        searcher.dump(part)
    finally:
        searcher.sent.take_back()


def _blame(value: object, error: BaseException, reducers: Mapping[type, Reducer]) -> str:
    """The line that names the innermost part of the value that cannot be pickled."""
    path = _type_name(value)
    steps = ""
    seen, above = {id(value)}, {id(value)}
    while (found := _broken_part(value, reducers, seen, above)) is not None and len(seen) < 1000:
        step, value, error = found
        above.add(id(value))
        steps += step
    what = _type_name(value)
    where = f"{path}{steps} is {_article(what)}" if steps else _article(what)
    reason = "" if str(error).startswith("cannot pickle ") else f" ({_one_line(error)})"
    return f"cannot pickle: {where} {what}{reason}"


def _broken_part(
    value: object, reducers: Mapping[type, Reducer], seen: set[int], above: set[int]
) -> tuple[str, object, BaseException] | None:
    if _refuses(value):
        return None
    for step, part in islice(_parts(value), 10_000):
        if type(part) in _ATOMS or id(part) in seen:
            continue
        seen.add(id(part))
        try:
            _check_part(part, reducers, above)
        except Exception as error:  # noqa: BLE001 - as in `encode`
            return step, part, error
    return None


def _refuses(value: Any) -> bool:
    """Whether the object says itself that it is not to be pickled: its words are better than what it is made of."""
    members: Mapping[str, object] = vars(type(cast("object", value)))
    if not isinstance(members.get("__reduce__"), FunctionType):
        return False
    try:
        value.__reduce__()
    except Exception:  # noqa: BLE001 - a user's __reduce__ may raise anything
        return True
    return False


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """What an object holds, each with the step that leads there as a reader would write it."""
    kind = type(cast("object", value))
    if issubclass(kind, dict):
        for key, item in value.items():
            yield f"[{reprlib.repr(key)}]", item
            yield f" key {reprlib.repr(key)}", key
    elif issubclass(kind, (list, tuple, set, frozenset)):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif kind is MethodType:
        yield ".__self__", value.__self__
    elif kind is FunctionType:
        yield from _names_used(value)
    for name in _WITHIN.get(cast("type", kind), ()):
        yield f".{name}", getattr(value, name)
    for name, item in [*getattr(value, "__dict__", {}).items()]:
        yield f".{name}", item
    for name in _slots(value.__class__):
        if hasattr(value, name):
            yield f".{name}", getattr(value, name)
    if not issubclass(kind, type) and not kind.__flags__ & _IMMUTABLE:
        yield ".__class__", kind  # that of a notebook travels with its instances


_IMMUTABLE = 1 << 8
"""The flag of classes that are written in C."""

_WITHIN: dict[type, tuple[str, ...]] = {
    partial: ("func", "args", "keywords"),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}
"""What objects of C hold."""


def _names_used(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The variables that travel with a function: from the scopes around it, and its globals."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a variable that was deleted, or not yet set
            yield f" -> {name}", cell.cell_contents
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield f" -> {name}", function.__globals__[name]
    for index, default in enumerate(function.__defaults__ or ()):
        yield f" -> default {index}", default


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


class _Witness(pickle.Unpickler):
    """Notes the last type or function that a stream asked for."""

    last = "the stream"

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        self.last = f"{module_name}.{global_name}"
        return super().find_class(module_name, global_name)


def _culprit(head: Buffer, buffers: Sequence[Buffer], error: BaseException) -> str:
    """What failed to load: the user's function that raised, else the last name that the stream asked for.

    That takes a second try with a slower reader, so that the first need not keep a record.
    """
    frame = _user_frame(error.__traceback__)
    if frame is not None:
        return frame
    witness = _Witness(io.BytesIO(head), buffers=buffers)
    try:
        witness.load()
    except (Exception, SystemExit):  # noqa: BLE001 - the same error again, which the caller raises
        return witness.last
    return witness.last


def _user_frame(trace: TracebackType | None) -> str | None:
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module not in _OURS and not module.startswith("importlib"):
            return f"{module}.{trace.tb_frame.f_code.co_qualname}"
        trace = trace.tb_next
    return None


def _type_name(value: object) -> str:
    """How a reader knows an object's type; a function or class by its own name."""
    if isinstance(value, (FunctionType, type)):
        return value.__qualname__
    kind = type(value)
    is_everyday = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_everyday else f"{kind.__module__}.{kind.__qualname__}"


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiouAEIOU" else "a"


def _one_line(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
