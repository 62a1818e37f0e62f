"""`meshbook.log` and `meshbook.progress`: user code tells how it gets on, the dashboard draws it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

from .errors import checks_for_caller
from .ranks import raising
from .ranks.meter import Meter
from .ranks.place import nearest

T = TypeVar("T")


@checks_for_caller
def log(step: float | None = None, **values: Any) -> None:
    """Report numbers of this rank, such as a loss, to be drawn by `%mesh dash` and kept by `mesh.metrics()`.

    Costs some microseconds and waits for nothing: what is reported is sent about ten times a second, and of metrics
    that come faster than 600 times a second some points are left out. Without `step` the reports of a name are counted.
    A value is whatever `float` takes; one on a GPU is waited for, as by `.item()`. Outside of a mesh nothing happens.

    Raises:
        TypeError, ValueError: a value is no number.

    Example:
        >>> log(step=1, loss=0.25)
    """
    numbers = {name: float(value) for name, value in values.items()}
    meter = _meter()
    if meter is not None:
        meter.log(None if step is None else float(step), numbers)
    if raising.unmet:
        raising.meet()


class progress(Generic[T]):
    """Go through `iterable`, and let `%mesh dash` show how far this rank is and how fast.

    `total` is needed where the iterable has no length. Costs a fraction of a microsecond an item. Outside of a mesh it
    goes through the iterable and nothing else happens.

    Example:
        >>> sum(progress([1, 2, 3], desc="adding"))
        6
    """

    def __init__(self, iterable: Iterable[T], total: int | None = None, desc: str = "") -> None:
        self._iterable = iterable
        self._total = len(iterable) if total is None and isinstance(iterable, Sized) else total
        self._desc = desc

    def __len__(self) -> int:
        if self._total is None:
            raise TypeError("the length of this iterable is not known: pass total=")
        return self._total

    def __iter__(self) -> Iterator[T]:
        meter = _meter()
        if meter is None:
            yield from self._iterable
            return
        bar = meter.open_bar(self._desc, self._total)
        try:
            for item in self._iterable:
                yield item
                bar.done += 1  # when its turn is over
                meter.wake()
                if raising.unmet:
                    raising.meet()
        finally:
            bar.is_over = True
            meter.wake()


def _meter() -> Meter | None:
    """That of the rank this runs on; None elsewhere."""
    place = nearest()
    if place is None or place.report is None:
        return None
    if place.meter is None:
        place.meter = Meter(place.report, place.world_size)
    return place.meter
