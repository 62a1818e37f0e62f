"""One value a rank, on the axes of the mesh that gave them: what a call on a mesh comes back with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from operator import index
from pprint import pformat
from textwrap import indent
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from .errors import checks_for_caller, marked
from .ndslice import NDSlice
from .numerals import condensed, extremes, only_number
from .ranges import ranks_text
from .shape import Extent, MeshTrait, Point, Shape

R = TypeVar("R")
V = TypeVar("V")

MOST_LINES = 40
"""How many different values a notebook shows; `items()` has all."""

_MOST_APART = 16
"""So many have each a line of its own."""

MOST_CHARACTERS = 2000
"""How much of one value's text a notebook shows."""


class ValueMesh(MeshTrait, Generic[R]):
    """One value a rank: by place, by axis name, or as a mapping from `Point` to value.

    It is sliced, split, flattened and renamed like a mesh. Ranks count inside this view, from 0.
    As in Monarch a loop over it gives `(point, value)` pairs and there is no `[0]`; `[point]` there is.

    Raises `ValueError` when there are more or fewer values than ranks, `TypeError` when its first is no `Shape`.

    Example:
        >>> losses = ValueMesh(Shape.row_major({"dp": 2, "tp": 2}), [6.0, 6.0, 6.5, 6.5])
        >>> losses.item(dp=1, tp=0), losses.get(3), losses.slice(tp=0).values()
        (6.5, 6.5, [6.0, 6.5])
        >>> {point["dp"]: loss for point, loss in losses.slice(tp=0).items()}
        {0: 6.0, 1: 6.5}
    """

    __slots__ = ("_shape", "_values")

    def __init__(self, shape: Shape, values: Iterable[R]) -> None:
        self._shape = _shape_of(shape)
        self._values = tuple(values)
        if len(self._values) != len(shape):
            given = len(self._values)
            raise ValueError(
                f"invalid value mesh: expected {len(shape)} ranks, but contains {given} ranks; it is {shape}"
            )

    @staticmethod
    def from_indexed(shape: Shape, pairs: Iterable[tuple[int, V]]) -> ValueMesh[V]:
        """From `(rank in the view, value)` pairs in any order; the last value of a rank counts.

        Raises `ValueError` for a rank without a value or a value without a rank.

        Example:
            >>> ValueMesh.from_indexed(Shape.row_major({"dp": 2}), [(1, "b"), (0, "a")]).values()
            ['a', 'b']
        """
        found, shape = dict(pairs), _shape_of(shape)
        if beyond := [rank for rank in found if not 0 <= rank < len(shape)]:
            raise ValueError(f"rank {ranks_text(beyond)} out of range: the shape {shape} has {len(shape)} ranks")
        if missing := [rank for rank in range(len(shape)) if rank not in found]:
            contains = f"but contains {len(found)} ranks: no value for rank {ranks_text(missing)}"
            raise ValueError(f"invalid value mesh: expected {len(shape)} ranks, {contains}")
        return ValueMesh(shape, [found[rank] for rank in range(len(shape))])

    @property
    def shape(self) -> Shape:
        """The axes, and the base rank at each place."""
        return self._shape

    def keys(self) -> list[Point]:
        """The place of each value."""
        return list(self.extent.points())

    def values(self) -> list[R]:
        """The values in the order of their ranks."""
        return list(self._values)

    def items(self) -> Iterator[tuple[Point, R]]:
        """Each place with its value."""
        return zip(self.extent.points(), self._values, strict=True)

    def get(self, rank: int) -> R:
        """The value of a rank in this view; `ValueError` for a rank that is not there."""
        if not 0 <= index(rank) < len(self):
            raise ValueError(f"index {rank} out of range (len={len(self)})")
        return self._values[rank]

    def item(self, **position: int) -> R:
        """The value at one position of every axis (of none where there is no axis).

        Raises `KeyError` for an axis too few or too many, `IndexError` for a position that is not there.
        """
        if missing := [label for label in self._labels if label not in position]:
            raise KeyError(f"Missing coordinate for dimension '{missing[0]}': item() needs {_axes(self)}")
        if extra := [label for label in position if label not in self._labels]:
            raise KeyError(f"item has extra dimensions: {extra}; it has {_axes(self)}")
        for label, size in self.sizes.items():
            if not 0 <= index(position[label]) < size:
                problem = f"{label}={position[label]}, but axis {label} has size {size} (0..{size - 1})"
                raise IndexError(f"index out of range: {problem}")
        places = [position[label] for label in self._labels]
        return self._values[NDSlice.new_row_major(self.sizes.values()).nditem(places)]

    def __getitem__(self, point: Point) -> R:
        if not isinstance(point, Point):  # pyright: ignore[reportUnnecessaryIsInstance] (a user's mistake)
            ways = "get(rank), item(**coordinates), slice(**coordinates) or a Point in brackets"
            raise TypeError(f"'ValueMesh' object is not subscriptable by {type(point).__name__}: use {ways}")
        if point not in self:
            raise KeyError(f"{point} is not a point of {self.extent}")
        return self._values[point.rank]

    def __contains__(self, thing: object) -> bool:
        """A point of this mesh is in it, as in a mapping; so is a pair that a loop would give."""
        if isinstance(thing, Point):
            return thing.extent == self.extent
        return any(thing == pair for pair in self)

    def __iter__(self) -> Iterator[tuple[Point, R]]:
        return self.items()

    def __repr__(self) -> str:
        return f"ValueMesh({self.extent}):\n{indent(pformat(tuple(self.items())), '  ')}"

    def __reduce__(self) -> tuple[type[ValueMesh[R]], tuple[Shape, tuple[R, ...]]]:
        return type(self), (self._shape, self._values)

    @checks_for_caller
    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:
        printer.text("ValueMesh(...)" if cycle else _as_text(self))

    @checks_for_caller
    def _repr_html_(self) -> str:
        return _as_html(self)

    def _new_with_shape(self, shape: Shape) -> ValueMesh[R]:
        value_of = dict(zip(self._shape.ranks(), self._values, strict=True))
        return ValueMesh(shape, map(value_of.__getitem__, shape.ranks()))


def _shape_of(given: object) -> Shape:
    """What was given, if it is a shape: an `Extent` has a length too, but that of its axes."""
    if isinstance(given, Shape):
        return given
    how = ": `.region.as_shape()` makes it one" if isinstance(given, Extent) else ", such as Shape.row_major({'dp': 2})"
    raise marked(TypeError(f"a ValueMesh stands on a Shape, and {type(given).__name__} {given!r} is none{how}"))


class _Printer(Protocol):
    """What IPython hands to `_repr_pretty_`."""

    def text(self, text: str, /) -> None: ...


class _Fold(NamedTuple):
    """Ranks whose values read the same."""

    ranks: str
    where: str
    text: str


def _by_text(mesh: ValueMesh[Any]) -> dict[str, list[Point]]:
    """Who has what, in the order of the first: equal is what reads equal, because `==` of two arrays is an array."""
    text_of: dict[int, str] = {}
    points: dict[str, list[Point]] = {}
    for point, value in mesh.items():
        if id(value) not in text_of:
            text_of[id(value)] = repr(value)
        points.setdefault(text_of[id(value)], []).append(point)
    return points


def _few(points: Mapping[str, list[Point]]) -> list[tuple[str, list[Point]]]:
    """Very many texts that differ in their numbers alone as one, each number from the least to the most."""
    texts = list(points)
    if len(texts) <= _MOST_APART or any(len(text) > MOST_CHARACTERS for text in texts):
        return list(points.items())
    few: list[tuple[str, list[Point]]] = []
    for alike, [told] in condensed([[text] for text in texts]):
        who = extremes(only_number({point.rank: texts[index] for index in alike for point in points[texts[index]]}))
        same = sorted((point for index in alike for point in points[texts[index]]), key=lambda point: point.rank)
        few.append((f"{told}   {who}" if who else told, same))
    return few


def _shared(points: Sequence[Point]) -> str:
    """The coordinates that all of some points have in common, where a rank alone does not tell them."""
    first = dict(points[0])
    wide = [label for label in first if points[0].size(label) > 1] if len(first) > 1 else []
    places = [dict(point) for point in points]
    same = [label for label in wide if all(place[label] == first[label] for place in places)]
    return ", ".join(f"{label}={first[label]}" for label in same)


def _shortened(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}... ({len(text) - MOST_CHARACTERS} characters more)"


def _shown(mesh: ValueMesh[Any]) -> tuple[list[_Fold], str]:
    """The folds to show, and a word about what they do not tell."""
    by_text = _by_text(mesh)
    few = _few(by_text)
    folds = [_Fold(ranks_text(point.rank for point in same), _shared(same), _shortened(text)) for text, same in few]
    if (more := len(folds) - MOST_LINES) > 0:
        return folds[:MOST_LINES], f"... {more} more different values; items() has all"
    return folds, "... a…b: from the least to the most; items() has all" if len(few) < len(by_text) else ""


def _as_text(mesh: ValueMesh[Any]) -> str:
    folds, more = _shown(mesh)
    names = [f"{fold.ranks} ({fold.where})" if fold.where else fold.ranks for fold in folds]
    width = max(map(len, names), default=0)
    lines = [f"ValueMesh({mesh.extent}):"]
    for name, fold in zip(names, folds, strict=True):
        text = fold.text.replace("\n", "\n" + " " * (width + 4))
        lines.append(f"  {name + ':':<{width + 1}} {text}")
    return "\n".join(lines + ([f"  {more}"] if more else []))


def _as_html(mesh: ValueMesh[Any]) -> str:
    folds, more = _shown(mesh)
    has_where = any(fold.where for fold in folds)
    names = ["ranks", "where", "value"] if has_where else ["ranks", "value"]
    rows = [_row("th", names)]
    for fold in folds:
        text = f'<pre style="margin:0;text-align:left">{escape(fold.text)}</pre>'
        rows.append(_row("td", [fold.ranks, *([escape(fold.where)] if has_where else []), text]))
    tail = f"<p>{escape(more)}</p>" if more else ""
    return f"<table><caption>ValueMesh {escape(repr(mesh.extent))}</caption>{''.join(rows)}</table>{tail}"


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"


def _axes(mesh: ValueMesh[Any]) -> str:
    return ", ".join(mesh.sizes) or "no dimensions"
