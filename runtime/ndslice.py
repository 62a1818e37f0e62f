"""Numbers on a regular grid, kept as an offset, sizes and strides: the arithmetic beneath every mesh.

It is the arithmetic of a NumPy view on `arange(n)`; names, errors and reprs are those of Monarch's `ndslice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from math import prod
from operator import index, mul
from typing import SupportsIndex, overload


class NDSlice:
    """The numbers `offset + i * strides[0] + j * strides[1] + ...`, in row-major order of `(i, j, ...)`.

    `sizes` and `strides` have one entry an axis; with no axis the slice is the single number `offset`.
    It is a value: compared and hashed by its three parts, never changed.

    Raises `ValueError` when two positions would share a number, `OverflowError` for a negative argument.

    Example:
        >>> tp1 = NDSlice(offset=1, sizes=[2], strides=[2])  # the second column of a 2 x 2 mesh
        >>> list(tp1), len(tp1), tp1.index(3)
        ([1, 3], 2, 1)
    """

    __slots__ = ("_offset", "_sizes", "_strides")

    def __init__(
        self, *, offset: SupportsIndex, sizes: Iterable[SupportsIndex], strides: Iterable[SupportsIndex]
    ) -> None:
        self._offset = unsigned(offset)
        self._sizes = tuple(map(unsigned, sizes))
        self._strides = tuple(map(unsigned, strides))
        if len(self._sizes) != len(self._strides):
            raise ValueError(f"invalid dims: expected {len(self._sizes)}, got {len(self._strides)}")
        _check_no_overlap(self._sizes, self._strides)

    @staticmethod
    def new_row_major(sizes: Iterable[SupportsIndex]) -> NDSlice:
        """All numbers from 0, the last axis fastest.

        Example:
            >>> NDSlice.new_row_major([2, 3])
            Slice { offset: 0, sizes: [2, 3], strides: [3, 1] }
        """
        known = tuple(map(unsigned, sizes))
        return NDSlice(offset=0, sizes=known, strides=row_major_strides(known))

    @staticmethod
    def from_list(ranks: Iterable[SupportsIndex]) -> list[NDSlice]:
        """The sorted `ranks` as few one-dimensional slices, each taken greedily as a run of constant step.

        Example:
            >>> [list(run) for run in NDSlice.from_list([1, 2, 4, 5, 6])]
            [[1, 2], [4, 5, 6]]
        """
        runs: list[list[int]] = []
        for rank in sorted(map(unsigned, ranks)):
            if runs and _continues(runs[-1], rank):
                runs[-1].append(rank)
            else:
                runs.append([rank])
        return list(map(_of_run, runs))

    @property
    def offset(self) -> int:
        """The first number."""
        return self._offset

    @property
    def sizes(self) -> list[int]:
        """How many positions each axis has."""
        return list(self._sizes)

    @property
    def strides(self) -> list[int]:
        """How far apart in number two neighbours on each axis are."""
        return list(self._strides)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._sizes)

    @property
    def is_dense(self) -> bool:
        """True where the numbers follow each other without a gap (the stride of a size-1 axis is idle)."""
        wanted = zip(self._sizes, self._strides, row_major_strides(self._sizes), strict=True)
        return all(size == 1 or stride == dense for size, stride, dense in wanted)

    def at(self, axis: int, position: int) -> NDSlice:
        """The slice at one `position` of `axis`, without that axis. The position must exist."""
        assert 0 <= position < self._sizes[axis]
        offset = self._offset + position * self._strides[axis]
        return NDSlice(offset=offset, sizes=_without(self._sizes, axis), strides=_without(self._strides, axis))

    def select(self, axis: int, positions: range) -> NDSlice:
        """The slice restricted to some `positions` of `axis`: existing ones, upwards, at least one."""
        assert positions.step > 0 and 0 <= positions[0] <= positions[-1] < self._sizes[axis]
        sizes, strides = self.sizes, self.strides
        sizes[axis] = len(positions)
        strides[axis] *= positions.step
        return NDSlice(offset=self._offset + positions[0] * self._strides[axis], sizes=sizes, strides=strides)

    def cut(self, inner: Sequence[Sequence[int]]) -> NDSlice:
        """The same numbers in the same order, each axis cut into axes of `inner` sizes, the last fastest."""
        strides: list[int] = []
        for sizes, stride in zip(inner, self._strides, strict=True):
            strides += [stride * step for step in row_major_strides(sizes)]
        return NDSlice(offset=self._offset, sizes=chain.from_iterable(inner), strides=strides)

    def get(self, position: SupportsIndex) -> int:
        """The number at a row-major `position`; `ValueError` past the end."""
        known = unsigned(position)
        if known >= len(self):
            raise ValueError(f"index {known} out of range {len(self)}")
        return self._number(known)

    def nditem(self, coordinates: Sequence[SupportsIndex]) -> int:
        """The number at one position per axis; `IndexError` where there is none."""
        known = tuple(map(unsigned, coordinates))
        if len(known) != self.ndim:
            raise IndexError(f"invalid dims: expected {self.ndim}, got {len(known)}")
        for position, size in zip(known, self._sizes, strict=True):
            if position >= size:
                raise IndexError(f"index {position} out of range {size}")
        return self._offset + sum(map(mul, known, self._strides))

    def coordinates(self, value: int) -> list[int]:
        """The position on each axis of a number of this slice; `ValueError` for any other number."""
        found, rest = [0] * self.ndim, value - self._offset
        for stride, axis in self._axes_by_stride():
            found[axis], rest = divmod(rest, stride)
        if rest or not all(0 <= position < size for position, size in zip(found, self._sizes, strict=True)):
            raise ValueError(f"value {value} not in slice")
        return found

    def index(self, value: int) -> int:
        """The row-major position of a number of this slice; `ValueError` for any other number."""
        return sum(map(mul, self.coordinates(value), row_major_strides(self._sizes)))

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[int, ...]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> int | tuple[int, ...]:
        if isinstance(key, slice):
            return numbers(self)[key]
        position = index(key)
        if position < 0:
            raise TypeError(f"a slice has no negative positions, got {position}")
        if position >= len(self):
            raise IndexError(f"index {position} out of range {len(self)}")
        return self._number(position)

    def __iter__(self) -> Iterator[int]:
        return iter(numbers(self))

    def __len__(self) -> int:
        return prod(self._sizes)

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int):
            return False
        try:
            self.coordinates(value)
        except ValueError:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NDSlice):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Slice {{ offset: {self._offset}, sizes: {self.sizes}, strides: {self.strides} }}"

    def _key(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        return self._offset, self._sizes, self._strides

    def _number(self, position: int) -> int:
        return self._offset + sum(map(mul, places(position, self._sizes), self._strides))

    def _axes_by_stride(self) -> list[tuple[int, int]]:
        """`(stride, axis)`, the widest first: dividing in this order is exact, as strides do not overlap."""
        axes = zip(self._strides, self._sizes, range(self.ndim), strict=True)
        return sorted([(stride, axis) for stride, size, axis in axes if size > 1 and stride], reverse=True)


Slice = NDSlice


# A mesh asks for its ranks at every call: 1024 of them take 20 us to count out, under 1 us to look up.
@lru_cache(maxsize=512)
def numbers(ndslice: NDSlice) -> tuple[int, ...]:
    """All numbers of a slice in row-major order, remembered between calls."""
    found = [ndslice.offset]
    for size, stride in zip(ndslice.sizes, ndslice.strides, strict=True):
        steps = [position * stride for position in range(size)]
        found = [number + step for number in found for step in steps]
    return tuple(found)


def row_major_strides(sizes: Sequence[int]) -> list[int]:
    """The strides that make an array of `sizes` dense, the last axis fastest.

    Example:
        >>> row_major_strides([2, 3, 4])
        [12, 4, 1]
    """
    return list(accumulate(reversed(sizes), mul, initial=1))[-2::-1]


def places(position: int, sizes: Sequence[int]) -> list[int]:
    """Where a row-major position is on each axis.

    Example:
        >>> places(5, [2, 4])
        [1, 1]
    """
    found: list[int] = []
    for size in reversed(sizes):
        position, place = divmod(position, size)
        found.append(place)
    return found[::-1]


def unsigned(number: SupportsIndex) -> int:
    """A number that counts or places. Raises `OverflowError` where it is negative, `TypeError` where it is none."""
    known = index(number)
    if known < 0:
        raise OverflowError(f"can't convert negative int to unsigned: {known}")
    return known


def _check_no_overlap(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Each stride must step over everything that the smaller ones reach, or two positions share a number."""
    reach, last = 0, -1
    for stride, size in sorted(zip(strides, sizes, strict=True)) if 0 not in sizes else ():
        if size == 1:
            continue
        if stride <= reach:
            problem = "nonunique strides: " if stride == last else ""
            raise ValueError(f"{problem}stride {stride} must be larger than size of previous space {reach + 1}")
        reach, last = reach + (size - 1) * stride, stride


def _without(entries: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return entries[:axis] + entries[axis + 1 :]


def _continues(run: list[int], rank: int) -> bool:
    return rank > run[0] if len(run) == 1 else rank - run[-1] == run[1] - run[0]


def _of_run(run: list[int]) -> NDSlice:
    stride = run[1] - run[0] if len(run) > 1 else 1
    return NDSlice(offset=run[0], sizes=[len(run)], strides=[stride])
