"""Rows that differ in their numbers alone: which of them is the odd one, and very many of them as one. Pure.

64 ranks have 64 losses: what a reader wants first is where they lie, and which rank's lies elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from msgspec.structs import replace as changed

from ...runtime.numerals import LEAST_ALIKE, Read, brief, extremes, odd_ones, read, spread
from ..outcome import Value
from .chance import without_addresses
from .records import Entry, entry_text, is_finite
from .rows import Row, finite_numbers

MOST_ROWS: Final = 16
"""So many rows are taken in as they are."""

_MOST_ENTRIES: Final = 3
"""Entries of records of which it is told."""

_LONGEST: Final = 2_000
"""Characters of a value that is looked at."""

_Kind = tuple[object, ...]
"""What rows are alike in that differ in their numbers alone."""


def strays(rows: Sequence[Row]) -> set[int]:
    """The rows, by index, that have a number far from what the others have in its place. (Of records the entries say.)

    Example:
        >>> def row(rank):
        ...     loss = 2.0 + rank / 100 + 5 * (rank == 3)
        ...     return Row((rank,), f"dp={rank}", Value("float", str(loss)), None, None, None, False)
        >>> strays([row(rank) for rank in range(8)])
        {3}
    """
    odd = set[int]()
    for alike in _groups([row if not row.record else None for row in rows]):
        odd |= _odd(alike)
    return odd


def overview(rows: Sequence[Row], row_of: Callable[[tuple[int, ...]], Row]) -> list[Row]:
    """Very many rows as a few: those that differ in their numbers alone as one, with the least and the most of each.

    The odd ones keep their rows. Where that makes no few of them, all stay as they are.

    Args:
        rows: the lowest rank first.
        row_of: makes the row of these ranks, as if they had come to the same.
    """
    if len(rows) <= MOST_ROWS:
        return list(rows)
    told: dict[int, Row | None] = dict(enumerate(rows))
    middle = median(finite_numbers(rows) or [0.0])
    usual = [row if row.is_failed or not row.is_odd else None for row in rows]
    for group in _groups(usual):
        odd = _odd(group) if rows[min(group)].is_failed else set[int]()  # what failed is odd in any case
        alike = {index: each for index, each in group.items() if index not in odd}
        if len(alike) > 1:
            ranks = tuple(sorted(rank for index in alike for rank in rows[index].ranks))
            joined = _joined([rows[index] for index in alike], [*alike.values()], row_of(ranks), middle)
            told |= dict.fromkeys(alike)
            told[min(alike)] = joined
    few = [row for row in told.values() if row is not None]
    return few if len(few) <= MOST_ROWS else list(rows)


def _odd(alike: Mapping[int, Read]) -> set[int]:
    return odd_ones({index: each.values for index, each in alike.items()}) if len(alike) >= LEAST_ALIKE else set()


def _groups(rows: Sequence[Row | None]) -> list[dict[int, Read]]:
    """Rows of one kind, by index, each with its text."""
    groups: dict[_Kind, dict[int, Read]] = {}
    for index, row in enumerate(rows):
        text = _text_of(row) if row is not None else None
        if row is not None and text is not None and len(text) <= _LONGEST:
            said = read(without_addresses(text))
            groups.setdefault(_kind_of(row, said), {})[index] = said
    return list(groups.values())


def _text_of(row: Row) -> str | None:
    """What a row says; None if it is shown in another way."""
    if row.value is None:
        return row.text if row.is_failed else None
    return None if row.value.mime or row.value.stayed else row.gist or row.text


def _kind_of(row: Row, said: Read) -> _Kind:
    if row.value is None:
        return (row.failure is not None, said.around)
    if row.record:
        return tuple((name, *_entry_kind(entry)) for name, entry in row.record.items())
    return (row.value.type_name, row.facts, said.around)


def _entry_kind(entry: Entry) -> _Kind:
    return ("number",) if is_finite(entry) else (type(entry), read(str(entry)).around)


def _joined(alike: Sequence[Row], said: Sequence[Read], row: Row, middle: float) -> Row:
    """The row of all of these, as one; `said` is the text of each."""
    [first, *_] = alike
    if first.failure is not None:
        messages = [each.failure.message.strip().partition("\n")[0] for each in alike if each.failure is not None]
        return replace(row, failure=changed(first.failure, message=spread([*map(read, messages)])))
    if first.lost is not None:
        return replace(row, lost=spread(said))
    return replace(row, value=_common(alike, said), note=_ends(alike), away=_away(row.numbers, middle))


def _common(alike: Sequence[Row], said: Sequence[Read]) -> Value:
    """What all of these come to."""
    first = alike[0].value
    assert first is not None
    record = _joined_records([row.record for row in alike]) if first.record else {}
    text = _record_text(record) if record else spread([*map(brief, said)])
    return Value(first.type_name, text, shape=first.shape, dtype=first.dtype, device=first.device, record=record)


def _ends(alike: Sequence[Row]) -> str:
    """Who has the least and the most: of the numbers of these rows, or of each entry of their records."""
    if not alike[0].record:
        return extremes({rank: number for row in alike for rank, number in zip(row.ranks, row.numbers, strict=False)})
    told: list[str] = []
    for name in alike[0].record:
        entries = [(rank, row.record[name]) for row in alike for rank in row.ranks]
        numbers = {rank: entry for rank, entry in entries if is_finite(entry)}
        if len(numbers) == len(entries) and (who := extremes(numbers)):
            told.append(f"{name} {who}")
    return "; ".join(told[:_MOST_ENTRIES])


def _away(numbers: Sequence[float], middle: float) -> str:
    return f"{min(numbers) - middle:+.3g}…{max(numbers) - middle:+.3g}" if numbers else ""


def _joined_records(records: Sequence[Mapping[str, Entry]]) -> dict[str, Entry]:
    return {name: _joined_entries([record[name] for record in records]) for name in records[0]}


def _joined_entries(entries: Sequence[Entry]) -> Entry:
    if len(set(entries)) == 1:
        return entries[0]
    return spread([brief(read(str(entry))) for entry in entries])


def _record_text(record: Mapping[str, Entry]) -> str:
    return ", ".join(f"{name}: {entry_text(entry)}" for name, entry in record.items())
