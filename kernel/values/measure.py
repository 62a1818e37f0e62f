"""How far two rows of numbers are apart, piece by piece. Pure, and symmetric in the two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec

_BLOCK = 1 << 18
"""Elements that are compared at a time: what is computed of them stays in the processor's cache."""


class Apart(msgspec.Struct, frozen=True, array_like=True):
    """How two rows of numbers differ, `one` and `other`."""

    num_elements: int = 0
    num_differing: int = 0
    """Elements that are apart by more than the tolerance; NaN is equal to NaN."""
    first: int | None = None
    """The place of the first of them."""
    largest: float = 0.0
    """The largest difference of all elements but those where one is NaN; of an infinite and a finite one, infinite."""
    relative: float = 0.0
    """The largest ratio of a difference to the larger one of its two numbers."""
    nans: tuple[int, int] = (0, 0)
    """How many NaN there are in each."""

    def joined(self, later: Apart) -> Apart:
        """This piece and the one behind it as one."""
        first = self.first
        if first is None and later.first is not None:
            first = self.num_elements + later.first
        return Apart(
            self.num_elements + later.num_elements,
            self.num_differing + later.num_differing,
            first,
            max(self.largest, later.largest),
            max(self.relative, later.relative),
            (self.nans[0] + later.nans[0], self.nans[1] + later.nans[1]),
        )


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Two numbers are equal if they are apart by no more than `atol`, or `rtol` times the larger one.

    So does `math.isclose`; numpy's and torch's `allclose` add the two, and take one of the numbers for the right one.

    Example:
        >>> Tolerance(rtol=0.1).covers(1.0, 10.0), Tolerance(atol=0.5).covers(1.0, 10.0)
        (True, False)
    """

    rtol: float = 0.0
    atol: float = 0.0

    def covers(self, difference: Any, larger: Any) -> Any:
        """Whether numbers so far apart are equal; of arrays, for each element."""
        return (difference <= self.atol) | (difference <= self.rtol * larger)


def measure(one: Any, other: Any, tolerance: Tolerance) -> Apart:
    """Compare two numpy arrays of one dimension and the same length, of any kinds of numbers.

    Example:
        >>> import numpy
        >>> measure(numpy.array([1.0, 2.0]), numpy.array([1.0, 4.0]), Tolerance())
        Apart(num_elements=2, num_differing=1, first=1, largest=2.0, relative=0.5, nans=(0, 0))
    """
    found = Apart()
    for start in range(0, len(one), _BLOCK):
        found = found.joined(_measured(one[start : start + _BLOCK], other[start : start + _BLOCK], tolerance))
    return found


def _measured(one: Any, other: Any, tolerance: Tolerance) -> Apart:
    import numpy

    is_same = one == other
    if is_same.all():
        return Apart(len(one))
    kind = numpy.result_type(_wide(numpy, one), _wide(numpy, other))
    one, other = one.astype(kind), other.astype(kind)
    nan_one, nan_other = numpy.isnan(one), numpy.isnan(other)
    is_same |= nan_one & nan_other
    with numpy.errstate(all="ignore"):
        difference, larger = numpy.abs(one - other), numpy.maximum(numpy.abs(one), numpy.abs(other))
        # Where one is infinite no tolerance makes them equal; where one is no number, they are not apart by a number.
        is_wild = ~(is_same | numpy.isfinite(one) & numpy.isfinite(other))
        difference[is_wild] = math.inf
        difference[is_same | nan_one | nan_other] = 0.0
        ratio = numpy.where(larger > 0, difference / larger, 0.0)
        ratio[difference == math.inf] = math.inf
        # Large integers may differ where their floats do not.
        is_exact = not (tolerance.rtol or tolerance.atol)
        differs = ~is_same if is_exact else is_wild | ~(is_same | tolerance.covers(difference, larger))
    places = numpy.flatnonzero(differs)
    return Apart(
        len(one),
        len(places),
        int(places[0]) if len(places) else None,
        float(difference.max()),
        float(ratio.max()),
        (int(nan_one.sum()), int(nan_other.sum())),
    )


def _wide(numpy: Any, values: Any) -> Any:
    return numpy.complex128 if values.dtype.kind == "c" else numpy.float64


def index_text(place: int, shape: tuple[int, ...]) -> str:
    """An element of a row by its index in an array of this shape.

    Example:
        >>> index_text(5, (2, 3)), index_text(0, ())
        ('[1, 2]', '')
    """
    index: list[int] = []
    for size in reversed(shape):
        place, last = divmod(place, size)
        index.append(last)
    return str(index[::-1]) if shape else ""
