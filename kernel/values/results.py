"""Results: what a cell came back with, rank by rank; the odd one out is found without looking for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from operator import index
from typing import Any, Self

import msgspec

from ...runtime.errors import SupervisionError, actor_error, checks_for_caller
from ...runtime.ranges import blocks_text, coord_blocks, coords_text, ranks_text
from ...runtime.shape import Extent, Point
from ..outcome import Failure, Outcome, Value
from .chance import essence, unaddressed
from .overview import overview, strays
from .prose import markdown_of
from .rows import (
    Row,
    distances,
    facts_text,
    gist_text,
    number_of,
    record_columns,
    strayed,
    table_text,
    with_odd_entries,
)
from .stacking import stacked

Pick = int | slice | Sequence[int]
"""What picks from one axis: an index (a negative one counts from the end), a slice, or several indices."""

Shown = tuple[object, ...]
_outcome_of = msgspec.msgpack.Decoder(Outcome).decode


@dataclass(frozen=True, slots=True)
class StayedValue:
    """Stands for a value that did not travel: it is still on its rank."""

    rank: int
    type_name: str
    text: str
    shape: tuple[int, ...] | None
    dtype: str | None
    device: str | None
    nbytes: int | None
    reason: str

    def __repr__(self) -> str:
        what = " ".join(filter(None, [self.type_name, facts_text(self.dtype, self.shape, self.device)]))
        can_travel = not self.reason.startswith("cannot pickle")
        advice = f"; get it by %mesh pull NAME --max-bytes {self.nbytes or 'N'}" if can_travel else ""
        return f"<{what}, stayed on rank {self.rank}: {self.reason}{advice}>"


class MeshResult:
    """What a cell came back with: a value or an error for each of its ranks.

    `r[3]` is the value of global rank 3, `r.sel(dp=0)` the result of some of the ranks; iterating gives pairs
    of a point and a value. Asking for the value of a rank that failed raises its error. Ranks that came to
    the same value share one object.

    Example:
        >>> import pickle, msgspec
        >>> from meshbook.kernel.outcome import Outcome, Value
        >>> six = msgspec.msgpack.encode(Outcome(Value("int", "6", pickled=pickle.dumps(6))))
        >>> r = MeshResult({"dp": 2}, (0, 1), {0: six, 1: six}, {0: 0.01, 1: 0.02}, {}, pickle.loads)
        >>> r
        6   ranks 0-1   0.01-0.02 s
        >>> r[1], r.values(), r.sel(dp=0).item()
        (6, [6, 6], 6)
    """

    def __init__(
        self,
        axes: Mapping[str, int],
        ranks: Sequence[int],
        outcomes: Mapping[int, bytes],
        seconds: Mapping[int, float],
        lost: Mapping[int, str],
        decode: Callable[[bytes], object],
        render_html: Callable[[MeshResult], str] | None = None,
        name: str = "",
        explore: Callable[[MeshResult], object] | None = None,
    ) -> None:
        self.axes = dict(axes)
        self.ranks = tuple(ranks)
        # Equal bytes become one object: from here on they are compared by identity, however long they are.
        once: dict[bytes, bytes] = {}
        self._outcomes = {rank: once.setdefault(data, data) for rank, data in outcomes.items()}
        self._seconds = seconds
        self._lost = lost
        self._decode = decode
        self._render_html = render_html
        self._explore = explore
        self.name = name
        """Under which the notebook has it, if it has."""
        self._extent = Extent(axes, axes.values())
        self.is_folded = True
        """Is it shown with one row for all ranks that came to the same? Not after `by_rank`."""
        self._decoded: dict[bytes, Outcome] = {}
        self._unpickled: dict[bytes, object] = {}
        self._keys: dict[bytes, Shown] = {}

    @checks_for_caller
    def __getitem__(self, place: int | Mapping[str, int]) -> Any:
        """The value of a global rank, or of the rank at a point: `r[3]`, `r[{"dp": 0, "tp": 1}]`."""
        if not isinstance(place, Mapping):
            return self._value(self._known(index(place)))
        one = self.sel(**place)
        if len(one) > 1:
            raise KeyError(
                f"{dict(place)} is {len(one)} ranks ({ranks_text(one.ranks)}): name every axis, or use sel()"
            )
        return one.item()

    @checks_for_caller
    def sel(self, **picks: Pick) -> MeshResult:
        """The result of some ranks, by their places: `sel(dp=0)`, `sel(tp=slice(0, 2))`, `sel(rank=3)`.

        Raises `KeyError` for an axis that is not there, `IndexError` for a place that is not there or took no
        part.
        """
        wanted = {axis: self._places(axis, pick) for axis, pick in picks.items()}
        ranks = [
            rank
            for rank in self.ranks
            if all((rank if axis == "rank" else self._point(rank)[axis]) in w for axis, w in wanted.items())
        ]
        if not ranks:
            asked = ", ".join(f"{axis}={pick}" for axis, pick in picks.items())
            raise IndexError(f"{asked} took no part: this result is of ranks {ranks_text(self.ranks)}")
        return self._of(ranks)

    @checks_for_caller
    def item(self) -> Any:
        """The value of the only rank; `ValueError` where there are more."""
        if len(self.ranks) != 1:
            known = ranks_text(self.ranks)
            raise ValueError(f"item() is for one rank, and this result has {len(self)} ({known}): r[{self.ranks[0]}]")
        return self._value(self.ranks[0])

    @checks_for_caller
    def values(self) -> list[Any]:
        """The value of every rank, in the order of `ranks`."""
        return [self._value(rank) for rank in self.ranks]

    def __iter__(self) -> Iterator[tuple[Point, Any]]:
        return ((self._point(rank), self._value(rank)) for rank in self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def table(self) -> object:
        """The interactive table of this result where a notebook shows it; elsewhere a row for every rank."""
        return self.by_rank() if self._explore is None else self._explore(self)

    def by_rank(self) -> Self:
        """The same result, shown with a row for every rank."""
        result = self._of(self.ranks)
        result.is_folded, result.name = False, self.name
        return result

    @property
    def ok(self) -> bool:
        """Did every rank end well?"""
        return not self.failed

    @cached_property
    def failed(self) -> tuple[int, ...]:
        """The ranks that raised, died or did not answer."""
        return tuple(rank for row in self.rows() if row.is_failed for rank in row.ranks)

    @property
    def failures(self) -> dict[int, Failure]:
        """What each rank that raised tells of it."""
        return {rank: f for rank in self.ranks if (f := self._failure(rank)) is not None}

    @property
    def errors(self) -> dict[int, BaseException]:
        """The exception of each failed rank."""
        return {rank: self._error(rank) for rank in self.failed}

    @property
    def lost(self) -> dict[int, str]:
        """Why a rank has no outcome, for each that has none."""
        return {rank: self._lost_text(rank) for rank in self.ranks if rank not in self._outcomes}

    @property
    def seconds(self) -> dict[int, float]:
        """How long the cell took on each rank that says so."""
        return {rank: self._seconds[rank] for rank in self.ranks if rank in self._seconds}

    @property
    def has_values(self) -> bool:
        """Did the cell end in an expression, on any rank?"""
        return any(row.value is not None for row in self.rows())

    @checks_for_caller
    def stack(self) -> Any:
        """All values as one tensor or array, in the shape of the mesh if all of it took part; else in a row.

        Raises `ValueError` where they do not go together, or where a value stayed on its rank.
        """
        values = self.values()
        stayed = [value for value in values if isinstance(value, StayedValue)]
        if stayed:
            raise ValueError(f"cannot stack what is not here: {stayed[0]!r}")
        try:
            whole = stacked(dict(zip(self.ranks, values, strict=True)))
        except ValueError as misfit:
            raise ValueError(f"cannot stack: {misfit}") from None
        if len(self) == prod(self.axes.values()):
            return whole.reshape(*self.axes.values(), *whole.shape[1:])
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """What numpy and matplotlib take it for: `stack()`, as an array.

        Raises `ValueError` as that does, and where no copy is allowed: the values of the ranks lie apart.
        """
        import numpy

        if copy is False:
            raise ValueError("an array of a result is always a copy: leave copy=False out")
        return numpy.array(self.stack(), dtype=dtype)

    def to_pandas(self) -> Any:
        """A data frame, a row a rank: where it is, its value (the text of what is no number), its seconds.

        Where all values are records, such as `{"loss": loss, "norm": norm}`, each entry is a column.
        """
        import pandas  # pyright: ignore[reportMissingTypeStubs]

        rows = [self._row((rank,), False) for rank in self.ranks]
        own = {"rank", *self.axes, "seconds", "error"}
        columns = {name: f"value.{name}" if name in own else name for name in record_columns(rows)}
        frame = [{"rank": row.ranks[0], **self._point(row.ranks[0]), **self._summary(row, columns)} for row in rows]
        return pandas.DataFrame(frame)

    def _summary(self, row: Row, columns: Mapping[str, str]) -> dict[str, object]:
        """What a data frame has of a rank; `columns` names those of a record."""
        [rank] = row.ranks
        ending = {"seconds": self._seconds.get(rank), "error": row.text if row.is_failed else None}
        if columns:
            return {**{title: row.record.get(name) for name, title in columns.items()}, **ending}
        value: Any = None if row.is_failed else self._value(rank)
        if getattr(value, "shape", None) == () and hasattr(value, "item"):
            value = value.item()
        if not isinstance(value, bool | int | float | complex | str | None):
            value = row.text
        return {"value": value, **ending}

    def rows(self, *, at_a_glance: bool = False) -> list[Row]:
        """The lowest rank first: a row for all ranks that came to the same, or after `by_rank` a row a rank.

        `at_a_glance`, very many that differ in their numbers alone are one, unless a row a rank was asked for.
        """
        return self._overview if at_a_glance and self.is_folded else self._rows

    @cached_property
    def _overview(self) -> list[Row]:
        return overview(self._rows, lambda ranks: self._row(ranks, False))

    @cached_property
    def _rows(self) -> list[Row]:
        groups: dict[Shown, list[int]] = {}
        for rank in self.ranks:
            groups.setdefault(self._shown(rank), []).append(rank)
        most = max(groups.values(), key=len)
        has_majority = 2 * len(most) > len(self.ranks)
        rows = [self._row(tuple(ranks), has_majority and ranks is not most) for ranks in groups.values()]
        if not self.is_folded:
            odd = {rank for row in rows if row.is_odd for rank in row.ranks}
            rows = [self._row((rank,), rank in odd) for rank in self.ranks]
        rows = [replace(row, is_odd=True) if lost else row for row, lost in zip(rows, strayed(rows), strict=True)]
        odd = strays(rows) if not has_majority else set[int]()
        rows = [replace(row, is_odd=True) if index in odd else row for index, row in enumerate(rows)]
        rows = with_odd_entries(rows)
        if len({number for row in rows for number in row.numbers}) < 2:
            return rows  # there is nothing to be apart from
        return [replace(row, away=d) for row, d in zip(rows, distances([row.numbers for row in rows]), strict=True)]

    def text(self) -> str:
        """The rows as plain text, bounded in length."""
        shown = self.rows(at_a_glance=True)
        is_short = len(shown) < len(self.rows())
        more = f"\n… all {len(self.rows()):,} rows: {self.name or 'result'}.by_rank()" if is_short else ""
        return table_text(shown) + more

    def __repr__(self) -> str:
        return self.text()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle = {"text/plain": self.text()}
        if self.is_folded and (prose := markdown_of(self.rows())) is not None:  # else a table was asked for
            return bundle | {"text/markdown": prose}
        return bundle if self._render_html is None else bundle | {"text/html": self._render_html(self)}

    def _of(self, ranks: Sequence[int]) -> Self:
        result = type(self)(
            self.axes, ranks, self._outcomes, self._seconds, self._lost, self._decode, self._render_html
        )
        result._decoded, result._unpickled, result._keys = self._decoded, self._unpickled, self._keys
        result._explore = self._explore
        return result

    def _point(self, rank: int) -> Point:
        return Point(rank, self._extent)

    def _known(self, rank: int) -> int:
        if rank not in self.ranks:
            raise IndexError(f"rank {rank} is not in this result: it is of ranks {ranks_text(self.ranks)}")
        return rank

    def _places(self, axis: str, pick: Pick) -> Sequence[int]:
        sizes = {"rank": prod(self.axes.values()), **self.axes}
        if axis not in sizes:
            known = list(dict.fromkeys([*self.axes, "rank"]))
            raise KeyError(f"no axis {axis!r}: there {'are' if known[1:] else 'is'} {', '.join(known)}")
        places = range(sizes[axis])
        if isinstance(pick, slice):
            return places[pick]
        try:
            return [places[i] for i in (pick if isinstance(pick, Sequence) else [index(pick)])]
        except IndexError:
            size = sizes[axis]
            raise IndexError(f"{axis}={pick} is out of range: {axis} has size {size} (0..{size - 1})") from None

    def _outcome(self, rank: int) -> Outcome | None:
        data = self._outcomes.get(rank)
        return self._decoded_once(data) if data is not None else None

    def _decoded_once(self, data: bytes) -> Outcome:
        if data not in self._decoded:
            self._decoded[data] = _outcome_of(data)
        return self._decoded[data]

    def _shown(self, rank: int) -> Shown:
        data = self._outcomes.get(rank)
        if data is None:
            return ("lost", self._lost_text(rank))
        if data not in self._keys:
            self._keys[data] = _shown_of(self._decoded_once(data))
        return self._keys[data]

    def _failure(self, rank: int) -> Failure | None:
        outcome = self._outcome(rank)
        return outcome.failure if outcome is not None else None

    def _lost_text(self, rank: int) -> str:
        return self._lost.get(rank, "did not answer")

    def _value(self, rank: int) -> Any:
        outcome = self._outcome(rank)
        if outcome is None or outcome.failure is not None:
            raise self._error(rank)
        value = outcome.value
        if value is None:
            return None
        if value.pickled is None:
            reason = value.stayed or "it was not sent"
            facts = (value.shape, value.dtype, value.device, value.nbytes)
            return StayedValue(rank, value.type_name, value.text, *facts, reason)
        if value.pickled not in self._unpickled:
            self._unpickled[value.pickled] = self._decode(value.pickled)
        return self._unpickled[value.pickled]

    def _error(self, rank: int) -> BaseException:
        where = f"rank {rank} ({coords_text([self._point(rank)], self.axes)})"
        failure = self._failure(rank)
        if failure is None:
            return SupervisionError(f"{where}: {self._lost_text(rank)}")
        message = f"{where}: {failure.type_name}: {failure.message}"
        return actor_error(message, self._original(failure), failure.traceback)

    def _original(self, failure: Failure) -> BaseException | None:
        if failure.pickled is None:
            return None
        try:
            original = self._decode(failure.pickled)
        except Exception:  # noqa: BLE001 - only the rank may know the class; its name is told all the same
            return None
        return original if isinstance(original, BaseException) else None

    def _row(self, ranks: tuple[int, ...], is_odd: bool) -> Row:
        outcome = self._outcome(ranks[0])
        times = [self._seconds[rank] for rank in ranks if rank in self._seconds]
        blocks = coord_blocks([self._point(rank) for rank in ranks], self.axes)
        numbers = self._numbers(ranks)
        return Row(
            ranks=ranks,
            coords=blocks_text(blocks, self.axes, len(ranks)),
            value=self._common(ranks, outcome.value) if outcome is not None else None,
            failure=outcome.failure if outcome is not None else None,
            lost=self._lost_text(ranks[0]) if outcome is None else None,
            seconds=(min(times), max(times)) if times else None,
            is_odd=is_odd,
            note=self._note(ranks, outcome) if len(set(numbers)) < 2 else "",
            blocks=tuple(blocks),
            numbers=numbers,
        )

    def _common(self, ranks: Sequence[int], value: Value | None) -> Value | None:
        """What is shown of what these ranks have."""
        if value is None or len({self._outcomes[rank] for rank in ranks}) == 1:
            return value
        return unaddressed(value)

    def _numbers(self, ranks: Sequence[int]) -> tuple[float, ...]:
        outcomes = [self._outcomes.get(rank) for rank in ranks]
        known = {data: number_of(self._decoded_once(data).value) for data in set(outcomes) if data is not None}
        found = (known[data] for data in outcomes if data is not None)
        return tuple(number for number in found if number is not None)

    def _note(self, ranks: Sequence[int], outcome: Outcome | None) -> str:
        value = outcome.value if outcome is not None else None
        if value is None or (value.dtype is None and value.type_name != "float") or _is_of_a_subclass(value):
            return ""  # the bytes of other objects may differ for reasons that are nobody's concern
        return "differ in what is not shown" if len({self._outcomes[rank] for rank in ranks}) > 1 else ""


def _is_of_a_subclass(value: Value) -> bool:
    """A DTensor, say, whose pickle knows its place in the mesh."""
    return (value.dtype or "").startswith("torch.") and value.type_name not in ("Tensor", "Parameter")


def _shown_of(outcome: Outcome) -> Shown:
    """What a table shows of an outcome: ranks for which it is equal are one row."""
    failure, value = outcome.failure, outcome.value
    if failure is not None:
        return ("failed", failure.type_name, essence(failure.message))
    if value is None:
        return ("done",)
    value = unaddressed(value)
    facts = (value.type_name, value.text, value.shape, value.dtype, value.device, value.stayed)
    if value.gist is not None and value.gist.num_seen > 1:
        facts += (gist_text(value.gist, value),)  # the text of a large array leaves out most of it
    return ("value", *facts, *sorted(value.mime.items()))
