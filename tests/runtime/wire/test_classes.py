"""Classes that travel by value, between processes that know them already."""

from __future__ import annotations

import abc
import contextlib
import enum
import gc
import pickle
import subprocess
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import cloudpickle
import pytest

from meshbook.runtime.wire.classes import Marks
from meshbook.runtime.wire.codec import decode, dumps, encode, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).parents[3]

_SERVE = """
import sys
from meshbook.runtime.wire.codec import dumps, loads
kept = {}
while head := sys.stdin.buffer.read(8):
    function, args = loads(sys.stdin.buffer.read(int.from_bytes(head)))
    answer = dumps(function(kept, *args))
    sys.stdout.buffer.write(len(answer).to_bytes(8) + answer)
    sys.stdout.buffer.flush()
"""


class Elsewhere:
    """Another process, which calls functions with a dict of its own and what it is sent."""

    def __init__(self) -> None:
        code = f"import sys; sys.path[:0] = {[str(ROOT.parent), str(ROOT)]}{_SERVE}"
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        asked = dumps((function, args))
        self.process.stdin.write(len(asked).to_bytes(8) + asked)
        self.process.stdin.flush()
        return loads(self.process.stdout.read(int.from_bytes(self.process.stdout.read(8))))

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture
def elsewhere() -> Generator[Callable[[], Elsewhere]]:
    with contextlib.ExitStack() as stack:

        def start() -> Elsewhere:
            made = Elsewhere()
            stack.callback(made.close)
            return made

        yield start


@pytest.fixture
def notebook() -> Generator[dict[str, Any]]:
    """The names of a module that no other process can import."""
    module = ModuleType("a_notebook")
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)
    source = """
LIMIT = 1

class Result:
    made = 0
    kept = {}

    def __init__(self, value=0):
        self.value = value
        type(self).made += 1

    def is_over(self):
        return self.value > LIMIT

    def twice(self):
        return 2 * self.value
"""
    exec(source, vars(module))
    yield vars(module)
    cloudpickle.unregister_pickle_by_value(module)
    del sys.modules[module.__name__]


pytestmark = pytest.mark.real


def test_an_answer_changes_no_class_of_ours(elsewhere: Any, notebook: dict[str, Any]) -> None:
    result, other = notebook["Result"], elsewhere()
    own = [result(5) for _ in range(3)]
    method = result.is_over
    came = other.run(lambda kept, cls: cls(7), result)
    assert type(came) is result and came.value == 7
    assert result.made == 3 and result.is_over is method
    notebook["LIMIT"] = 100
    assert not own[0].is_over()


def test_what_was_counted_there_stays(elsewhere: Any, notebook: dict[str, Any]) -> None:
    result, other = notebook["Result"], elsewhere()
    assert other.run(lambda kept, cls: kept.update(cls=cls) or cls().made, result) == 1
    other.run(lambda kept, one: kept["cls"].kept.update(a=1), result())
    for sent in (result, result(), [result(3)]):
        found = other.run(lambda kept, _: (kept["cls"].made, kept["cls"].kept), sent)
        assert found == (1, {"a": 1})


def test_what_is_changed_here_is_changed_there_and_nothing_else(elsewhere: Any, notebook: dict[str, Any]) -> None:
    result, other = notebook["Result"], elsewhere()
    other.run(lambda kept, cls: kept.update(one=cls(5)), result)
    result.rate = 0.1
    result.twice = lambda self: 200
    assert other.run(lambda kept, cls: (cls.rate, kept["one"].twice(), cls.made), result) == (0.1, 200, 1)
    result.rate = 0.2
    del result.twice
    assert other.run(lambda kept, cls: (cls.rate, hasattr(cls, "twice"), cls.made), result) == (0.2, False, 1)
    assert other.run(lambda kept, cls: kept["one"].is_over(), result) is True
    notebook["LIMIT"] = 10  # a name that a method uses
    assert other.run(lambda kept, cls: (kept["one"].is_over(), cls.made), result) == (False, 1)


def test_a_whole_class_is_there_what_it_is_here(elsewhere: Any, notebook: dict[str, Any]) -> None:
    result, other = notebook["Result"], elsewhere()
    other.run(lambda kept, cls: kept.update(one=cls(5)), result)
    other.run(lambda kept, _: kept["one"].kept.update(a=1), result)
    result.kept["b"] = 2  # in place, which no mark knows of
    assert other.run(lambda kept, _: (kept["one"].made, kept["one"].kept), result) == (1, {"a": 1})
    assert other.run(_received_whole, encode(result, whole_classes=True).head) == (0, {"b": 2})
    result.made = 9
    assert other.run(lambda kept, _: kept["one"].made, result) == 9


def test_a_whole_class_too_changes_none_of_ours(elsewhere: Any, notebook: dict[str, Any]) -> None:
    result, other = notebook["Result"], elsewhere()
    other.run(lambda kept, cls: kept.update(one=cls(5)), result)
    assert decode(other.run(_sent_whole)) is result and result.made == 0


def _received_whole(kept: dict[str, Any], sent: bytes) -> tuple[int, dict[str, Any]]:
    from meshbook.runtime.wire import codec

    assert codec.decode(sent) is type(kept["one"])
    return kept["one"].made, dict(kept["one"].kept)


def _sent_whole(kept: dict[str, Any]) -> bytes:
    from meshbook.runtime.wire import codec

    return codec.encode(type(kept["one"]), whole_classes=True).head


def test_by_way_of_a_third(elsewhere: Any, notebook: dict[str, Any]) -> None:
    result, first, second = notebook["Result"], elsewhere(), elsewhere()
    for each in (first, second):
        each.run(lambda kept, cls: kept.update(cls=cls), result)
    passed = first.run(_sent_by, result)
    assert type(loads(passed)) is result and result.made == 0
    assert second.run(_received, passed) == (1, {})  # it has made one
    assert second.run(_received, first.run(_changed, result)) == (8, {})


def _sent_by(kept: dict[str, Any], cls: Any) -> bytes:
    from meshbook.runtime.wire import codec

    return codec.dumps(kept["cls"](3))


def _changed(kept: dict[str, Any], cls: Any) -> bytes:
    kept["cls"].made = 7
    return _sent_by(kept, cls)


def _received(kept: dict[str, Any], sent: bytes) -> tuple[int, dict[str, Any]]:
    from meshbook.runtime.wire import codec

    assert type(codec.loads(sent)) is kept["cls"]
    return kept["cls"].made, kept["cls"].kept


def _kinds() -> list[Any]:
    @runtime_checkable
    class Closes(Protocol):
        def close(self) -> None: ...

    class Colour(enum.Enum):
        RED = 1

    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self) -> float: ...

    @dataclass(frozen=True, slots=True)
    class Point:
        x: int = 0

    class Pair(NamedTuple):
        a: int = 1

    class Slots:
        """Nothing but these two."""

        __slots__ = ("__hidden", "seen")

        def __init__(self, seen: int, hidden: int) -> None:
            self.seen, self.__hidden = seen, hidden

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Slots) and (self.seen, self.__hidden) == (other.seen, other.__hidden)

        __hash__ = None  # pyright: ignore

    @dataclass(slots=True)
    class Open:
        x: list[int]

    return [Closes, Colour, Shape, Point, Pair, Slots, Open]


def test_all_kinds_of_classes_come_back_as_they_were(elsewhere: Any) -> None:
    closes, colour, shape, point, pair, slots, opened = kinds = _kinds()
    other = elsewhere()
    for _ in range(2):
        assert other.run(lambda kept, kinds: kinds, kinds) == kinds
        sent = colour.RED, point(3), pair(4), slots(5, 6), opened([7])
        assert other.run(lambda kept, *values: values, *sent) == sent
        assert other.run(lambda kept, one: hasattr(one, "__dict__"), slots(5, 6)) is False
        assert other.run(lambda kept, closes: isinstance(__import__("io").StringIO(), closes), closes)
        assert other.run(lambda kept, shape: shape.__abstractmethods__, shape) == {"area"}
    assert isinstance(sys.stdin, closes) and not isinstance(3, closes)


def test_a_class_of_the_same_name_is_another(elsewhere: Any, notebook: dict[str, Any]) -> None:
    result, other = notebook["Result"], elsewhere()
    other.run(lambda kept, cls: kept.update(one=cls(5)), result)
    exec("class Result:\n    made = 50", notebook)
    assert other.run(lambda kept, cls: (cls.made, kept["one"].made), notebook["Result"]) == (50, 1)


def test_others_may_pickle_such_a_class(notebook: dict[str, Any]) -> None:
    result = notebook["Result"]
    assert loads(dumps(result)) is result
    assert pickle.loads(cloudpickle.dumps(result(4))).value == 4


class Weights:
    """Something large."""


def test_what_methods_name_is_not_kept() -> None:
    names: dict[str, Any] = {"DATA": Weights()}
    exec("def total(self): return DATA", names)
    marks = Marks(is_copy=False)
    first = marks.of({"total": names["total"]})
    assert marks.of({"total": names["total"]}) == first
    data = weakref.ref(names["DATA"])
    names["DATA"] = None
    gc.collect()
    assert data() is None
    assert marks.of({"total": names["total"]}) != first
