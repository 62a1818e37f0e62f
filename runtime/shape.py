"""Meshes by name: axes with labels, the points on them, and how a mesh is sliced, split and flattened.

    Extent   how long each axis is            {dp: 2, tp: 4}
    Point    one place in an extent           {'dp': 1/2, 'tp': 3/4}
    Shape    an extent, and the ranks on it   {dp=2,tp=4} over ranks 0-7
    Region   the same as `Shape`, for programs that were written for Monarch

A rank has two numbers. Its *base rank* is its place in the spawned mesh: `Shape.ranks()` lists those.
Its rank *in the view* is its place in the slice at hand, 0 to n-1: `Point.rank` and results count so.

Names, meanings and error texts are those of Monarch 0.7.
"""

from __future__ import annotations

import builtins
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from operator import index
from typing import Self, SupportsIndex, TypeAlias, cast

from .axes import cut_sizes, read_changes
from .errors import checks_for_caller, marked
from .ndslice import NDSlice, Slice, numbers, places, unsigned
from .ranges import ranks_text

__all__ = ["Extent", "MeshTrait", "NDSlice", "Point", "Region", "Selector", "Shape", "Slice"]

Selector: TypeAlias = "SupportsIndex | slice"
"""What picks from one axis: an integer takes one place and drops the axis, a slice keeps the axis."""


class _ByLabel(Mapping[str, int]):
    """A mapping from axis label to number whose missing labels are a `ValueError`, as Monarch has it."""

    __slots__ = ()

    def __contains__(self, label: object) -> bool:
        return label in tuple(self)

    def keys(self) -> list[str]:  # type: ignore[override]
        """The labels, in order."""
        return list(self)

    def get(self, label: str, default: int | None = None) -> int | None:  # type: ignore[override]
        return dict(self).get(label, default)


class Extent(_ByLabel):
    """How long each axis of a mesh is, in order.

    Example:
        >>> extent = Extent(["dp", "tp"], [2, 4])
        >>> extent["tp"], extent.nelements, dict(extent), extent
        (4, 8, {'dp': 2, 'tp': 4}, {dp: 2, tp: 4})
    """

    __slots__ = ("_labels", "_nelements", "_sizes")

    def __init__(self, labels: Iterable[str], sizes: Iterable[int]) -> None:
        self._labels = tuple(labels)
        self._sizes = tuple(map(unsigned, sizes))
        self._nelements = prod(self._sizes)
        if len(self._labels) != len(self._sizes):
            raise marked(ValueError(f"label/sizes dimension mismatch: {len(self._labels)} != {len(self._sizes)}"))
        _check_labels(self._labels)

    @property
    def labels(self) -> list[str]:
        """The names of the axes."""
        return list(self._labels)

    @property
    def sizes(self) -> list[int]:
        """The length of each axis, in the order of `labels`."""
        return list(self._sizes)

    @property
    def nelements(self) -> int:
        """The number of points; 1 without any axis."""
        return self._nelements

    @property
    def region(self) -> Region:
        """All points of this extent as base ranks 0 to n-1."""
        return Region(self._labels, NDSlice.new_row_major(self._sizes))

    def points(self) -> Iterator[Point]:
        """Every point, in the order of its rank."""
        return (Point(rank, self) for rank in range(self._nelements))

    def __getitem__(self, label: str) -> int:
        return self._sizes[_axis_of(label, self._labels)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and (self._labels, self._sizes) == (other._labels, other._sizes)

    def __hash__(self) -> int:
        return hash((self._labels, self._sizes))

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{_plain(label)}: {size}' for label, size in self.items())}}}"


class Point(_ByLabel):
    """One place in an extent: a mapping from axis to index, so that `mesh.slice(**point)` is the rank there.

    `rank` counts row by row inside the extent (the rank in the view). Raises `ValueError` when it is outside,
    `OverflowError` below 0.

    Example:
        >>> point = Point(5, Extent(["dp", "tp"], [2, 4]))
        >>> point["dp"], dict(point), point
        (1, {'dp': 1, 'tp': 1}, {'dp': 1/2, 'tp': 1/4})
    """

    __slots__ = ("_extent", "_rank")

    def __init__(self, rank: int, extent: Extent) -> None:
        if unsigned(rank) >= extent.nelements:
            raise ValueError(f"out of range: total ranks {extent.nelements}; does not contain rank {rank} of {extent}")
        self._rank = rank
        self._extent = extent

    @property
    def rank(self) -> int:
        """The row-major number of this point in its extent."""
        return self._rank

    @property
    def extent(self) -> Extent:
        """The extent this point is in."""
        return self._extent

    def size(self, label: str) -> int:
        """How long the axis `label` is."""
        return self._extent[label]

    def __getitem__(self, label: str) -> int:
        axis = _axis_of(label, self._extent.labels)
        return places(self._rank, self._extent.sizes)[axis]

    def __iter__(self) -> Iterator[str]:
        return iter(self._extent)

    def __len__(self) -> int:
        return len(self._extent)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and (self._rank, self._extent) == (other._rank, other._extent)

    def __hash__(self) -> int:
        return hash((self._rank, self._extent))

    def __repr__(self) -> str:
        found = zip(self._extent.items(), places(self._rank, self._extent.sizes), strict=True)
        return f"{{{', '.join(f'{label!r}: {place}/{size}' for (label, size), place in found)}}}"


class MeshTrait(ABC):
    """What every mesh can do by axis name: each method gives a new mesh over the same ranks or some of them.

    Example:
        >>> mesh = Shape.row_major({"hosts": 2, "gpus": 4})
        >>> mesh.slice(gpus=slice(0, 2)).ranks()
        [0, 1, 4, 5]
        >>> mesh.split(gpus=("pp", "tp"), tp=2).sizes
        {'hosts': 2, 'pp': 2, 'tp': 2}
        >>> mesh.slice(hosts=1).rename(gpus="rank"), mesh.flatten("rank").sizes
        (Shape { labels: ["rank"], slice: Slice { offset: 4, sizes: [4], strides: [1] } }, {'rank': 8})
    """

    __slots__ = ()

    _shape: Shape

    @property
    def _ndslice(self) -> NDSlice:
        return self._shape.ndslice

    @property
    def _labels(self) -> tuple[str, ...]:
        return tuple(self._shape.labels)

    @abstractmethod
    def _new_with_shape(self, shape: Shape) -> Self:
        """This mesh over the ranks of `shape`, which are ranks of this mesh."""

    def slice(self, **selectors: Selector) -> Self:
        """Some of the ranks: an integer picks one place of an axis and drops it, a slice keeps the axis.

        Raises `TypeError` for an axis that is not there or a list, `IndexError` for a place that is not there
        (there are no negative ones), `ValueError` for an empty slice.
        """
        shape = Shape(self._labels, self._ndslice)
        for label, selector in selectors.items():
            shape = _narrowed(shape, label, selector)
        return self._new_with_shape(shape)

    def split(self, **changes: int | Sequence[str]) -> Self:
        """Axes cut into several: `split(gpus=("pp", "tp"), tp=2)`; one size of each cut axis may be left out.

        The ranks keep their order, the last of the new axes runs fastest. Raises `ValueError` when the sizes
        do not fit, when two are unknown, when a name is used twice or a size belongs to no new axis.
        """
        return self._new_with_shape(_split(Shape(self._labels, self._ndslice), changes))

    def flatten(self, name: str) -> Self:
        """All axes made one. Raises `ValueError` when the ranks have gaps."""
        ndslice = self._ndslice
        if not ndslice.is_dense:
            dense = NDSlice.new_row_major(ndslice.sizes).strides
            differ = f"ndslice.strides={ndslice.strides} != dense_strides={dense}"
            raise marked(ValueError(f"cannot flatten sparse mesh: {differ}; its ranks {ranks_text(ndslice)} have gaps"))
        flat = NDSlice(offset=ndslice.offset, sizes=[len(ndslice)], strides=[1])
        return self._new_with_shape(Shape([name], flat))

    def rename(self, **names: str) -> Self:
        """Axes by other names: `rename(hosts="dp")`; `ValueError` for an unknown axis or a doubled name."""
        return self.split(**{label: (name,) for label, name in names.items()})

    def size(self, dim: str | Sequence[str] | None = None) -> int:
        """The number of ranks, or the length of one axis or of several multiplied; `KeyError` if unknown."""
        if dim is None:
            return len(self)
        if not isinstance(dim, str):
            return prod(map(self.size, dim))
        if dim not in self._labels:
            raise marked(KeyError(f"{self} does not have dimension {dim!r}"))
        return self._ndslice.sizes[self._labels.index(dim)]

    @property
    def sizes(self) -> dict[str, int]:
        """The length of each axis by its name."""
        return dict(zip(self._labels, self._ndslice.sizes, strict=True))

    @property
    def extent(self) -> Extent:
        """The axes and their lengths."""
        return Extent(self._labels, self._ndslice.sizes)

    def __len__(self) -> int:
        return len(self._ndslice)


class Shape(MeshTrait):
    """Named axes over ranks: which base rank is where. It is itself a mesh, the one of its ranks.

    Raises `ValueError` when labels and axes differ in number or a label is used twice.

    Example:
        >>> shape = Shape.row_major({"dp": 2, "tp": 2})
        >>> column = shape.slice(tp=1)
        >>> column.ranks(), column.point_of(3), str(column)
        ([1, 3], {'dp': 1/2}, '{dp=2}')
    """

    __slots__ = ("_names", "_places")

    def __init__(self, labels: Iterable[str], slice: NDSlice) -> None:
        self._names = tuple(labels)
        self._places = slice
        if len(self._names) != slice.ndim:
            raise ValueError(f"label slice dimension mismatch: {len(self._names)} != {slice.ndim}")
        _check_labels(self._names)

    @staticmethod
    def row_major(sizes: Mapping[str, int]) -> Shape:
        """The shape of a mesh as it is spawned: ranks from 0, the last axis fastest.

        Raises `ValueError` for a size below 1.
        """
        for label, size in sizes.items():
            if index(size) < 1:
                raise ValueError(f"axis {label!r} has size {size}; an axis has at least 1 rank")
        return Shape(sizes, NDSlice.new_row_major(sizes.values()))

    @staticmethod
    def unity() -> Shape:
        """The shape of one rank, without axes."""
        return Shape((), NDSlice.new_row_major(()))

    @property
    def labels(self) -> list[str]:
        """The names of the axes."""
        return list(self._names)

    @property
    def ndslice(self) -> NDSlice:
        """The base ranks without their names."""
        return self._places

    @property
    def region(self) -> Region:
        """This shape as a `Region`."""
        return Region(self._names, self._places)

    def ranks(self) -> list[int]:
        """The base ranks, in the order of the ranks in this view."""
        return list(numbers(self._places))

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a base rank is; `ValueError` if it is not in this shape."""
        return dict(self.point_of(rank))

    def point_of(self, base_rank: int) -> Point:
        """The point of this view that a base rank is at; `ValueError` if it is not in this shape."""
        try:
            return Point(self._places.index(base_rank), self.extent)
        except ValueError as error:
            raise ValueError(f"{error}: the ranks of {self} are {ranks_text(self._places)}") from None

    def at(self, label: str, position: int) -> Shape:
        """The shape at one position of an axis, without that axis.

        Raises `ValueError` for an unknown axis or a position past its end, `OverflowError` below 0.
        """
        axis = self._axis(label)
        size = self._places.sizes[axis]
        if index(position) < 0:
            raise OverflowError(f"can't convert negative int to unsigned: {label}={position}")
        if position >= size:
            raise ValueError(f"out of range {position}:{position + 1}:1 for dimension {label} of size {size}")
        labels = self._names[:axis] + self._names[axis + 1 :]
        return Shape(labels, self._places.at(axis, index(position)))

    def select(self, label: str, slice: slice) -> Shape:
        """The shape restricted along one axis, bounds as in Python; `ValueError` when nothing is left."""
        axis = self._axis(label)
        if not isinstance(cast("object", slice), builtins.slice):
            raise marked(TypeError(f"select takes a slice of axis {label}, got {slice!r}: `at` takes one position"))
        size = self._places.sizes[axis]
        positions = range(*slice.indices(size))
        if positions.step < 0:
            raise ValueError(f"a slice of {label} must run upwards, got step {positions.step}")
        if not positions:
            asked = f"{positions.start}:{positions.stop}:{positions.step}"
            problem = f"out of range {asked} for dimension" if positions.start >= size else f"empty range {asked}: axis"
            raise ValueError(f"{problem} {label} of size {size} (0..{size - 1})")
        return Shape(self._names, self._places.select(axis, positions))

    def index(self, **positions: int) -> Shape:
        """The shape at one position of each of some axes, without those axes; errors as for `at`."""
        shape, _ = self, [*map(self._axis, positions)]  # which is told of all axes, and not of those that are left
        for label, position in positions.items():
            shape = shape.at(label, position)
        return shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and (self._names, self._places) == (other._names, other._places)

    def __hash__(self) -> int:
        return hash((self._names, self._places))

    def __str__(self) -> str:
        return f"{{{','.join(f'{label}={size}' for label, size in self.sizes.items())}}}"

    def __repr__(self) -> str:
        return f"Shape {{ labels: {_quoted(self._names)}, slice: {self._places!r} }}"

    @property
    def _ndslice(self) -> NDSlice:
        return self._places

    @property
    def _labels(self) -> tuple[str, ...]:
        return self._names

    def _new_with_shape(self, shape: Shape) -> Shape:
        return shape

    def _axis(self, label: str) -> int:
        if label not in self._names:
            raise ValueError(f"invalid labels `{_quoted([label])}`: the axes are {_quoted(self._names)}")
        return self._names.index(label)


class Region:
    """A `Shape` by Monarch's second name: labels over a slice of base ranks."""

    __slots__ = ("_shape",)

    def __init__(self, labels: Iterable[str], slice: NDSlice) -> None:
        self._shape = Shape(labels, slice)

    @property
    def labels(self) -> list[str]:
        """The names of the axes."""
        return self._shape.labels

    def slice(self) -> NDSlice:
        """The base ranks without their names."""
        return self._shape.ndslice

    def as_shape(self) -> Shape:
        """This region as a `Shape`."""
        return self._shape

    def point_of_base_rank(self, rank: int) -> Point:
        """The point of this view that a base rank is at; `ValueError` if it is not in this region."""
        return self._shape.point_of(rank)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Region) and self._shape == other._shape

    def __hash__(self) -> int:
        return hash((Region, self._shape))

    def __repr__(self) -> str:
        return f"Region {{ labels: {_quoted(self.labels)}, slice: {self.slice()!r} }}"


@checks_for_caller
def _narrowed(shape: Shape, label: str, selector: Selector) -> Shape:
    """`shape` with one selector applied, with the errors that a mesh promises (a shape's own differ)."""
    sizes = shape.sizes
    if label not in sizes:
        raise TypeError(f"Shape does not have dimension labeled {label!r}; its axes are {shape}")
    if isinstance(selector, slice):
        return shape.select(label, selector)
    try:
        position = index(selector)
    except TypeError:
        raise TypeError(f"axis {label} takes an int or a slice, got {type(selector).__name__}: {selector!r}") from None
    size = sizes[label]
    if not 0 <= position < size:
        known = f"axis {label} has size {size} (0..{size - 1})"
        raise IndexError(f"index out of range: {label}={position}, but {known}")
    return shape.at(label, position)


@checks_for_caller
def _split(shape: Shape, changes: Mapping[str, int | Sequence[str]]) -> Shape:
    """The arithmetic of `MeshTrait.split`: each axis becomes the axes it is cut into, or itself."""
    cuts, given = read_changes(shape.labels, changes)
    labels = [name for label in shape.labels for name in cuts.get(label, (label,))]
    _check_labels(labels)
    sizes = shape.sizes.items()
    inner = [cut_sizes(label, size, cuts.get(label, (label,)), given) for label, size in sizes]
    if unused := tuple(name for name in given if name not in labels):
        raise ValueError(f"unused size constraints: {unused}; no axis is split into them")
    return Shape(labels, shape.ndslice.cut(inner))


def _check_labels(labels: Sequence[str]) -> None:
    for position, label in enumerate(labels):
        if label in labels[:position]:
            raise ValueError(f"Duplicate dimension name '{label}'")


def _axis_of(label: str, labels: Sequence[str]) -> int:
    if label not in labels:
        raise ValueError(f"Dimension '{label}' not found; there are {_quoted(labels)}")
    return labels.index(label)


def _plain(label: str) -> str:
    return label if label.replace("_", "a").isalnum() else json.dumps(label, ensure_ascii=False)


def _quoted(labels: Sequence[str]) -> str:
    return json.dumps(list(labels), ensure_ascii=False)
