"""The rows of a result: ranks that came to the same are one row. Plain data, and the plain text of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ...runtime.numerals import LEAST_ALIKE, odd_ones
from ...runtime.ranges import named
from ..outcome import Failure, Gist, Value
from .records import Entry, entry_text, is_finite, is_number, names_of

_MAX_ROWS = 40
_BUDGET = 20_000
_MAX_LINES = 160
_LEAST_LINES = 4
_WIDE = 60
_LONGEST_MESSAGE = 300
_READ_AT_A_GLANCE = 8
"""Of so many numbers the text says it all."""


@dataclass(frozen=True, slots=True)
class Row:
    """Ranks that came to the same, as far as a table shows it."""

    ranks: tuple[int, ...]
    coords: str
    """Where they are: `dp=0-1,tp=3`."""
    value: Value | None
    failure: Failure | None
    lost: str | None
    """Why there is no outcome."""
    seconds: tuple[float, float] | None
    """The shortest and the longest time of these ranks."""
    is_odd: bool
    """More than half of the ranks agree, and these are not among them."""
    note: str = ""
    """What the eye would miss: that numbers differ in digits that are not shown."""
    blocks: tuple[tuple[str, ...], ...] = ()
    """The same as `coords`: the indices along each axis, block by block."""
    numbers: tuple[float, ...] = ()
    """The number of each rank, where values are single numbers."""
    odd_entries: frozenset[str] = frozenset()
    """The entries of its record that differ from what most ranks have there, or are no finite numbers."""
    away: str = ""
    """How far its number is from the median of all: `+0.012`, `nan`."""

    @property
    def is_failed(self) -> bool:
        """No outcome, or one that is an exception."""
        return self.failure is not None or self.lost is not None

    @property
    def marker(self) -> str:
        """`✗` for a failure, `≠` for what differs from the majority, else nothing."""
        return "✗" if self.is_failed else "≠" if self.is_odd else ""

    @property
    def text(self) -> str:
        """The value, the error in one line, or why there is neither; empty after a statement."""
        if self.failure is not None:
            return error_line(self.failure.type_name, self.failure.message)
        return self.value.text if self.value is not None else self.lost or ""

    @property
    def record(self) -> Mapping[str, Entry]:
        """The named entries of the value, if it has such."""
        return self.value.record if self.value is not None else {}

    @property
    def facts(self) -> str:
        """Type and size of an array: `float32 [2, 3] cuda:0`."""
        value = self.value
        if value is None:
            return ""
        facts = facts_text(value.dtype, value.shape, value.device)
        return facts if value.dtype or not facts else f"{value.type_name} {facts}"  # a data frame, say

    @property
    def state(self) -> str:
        """`ok`, `failed` (its cell raised) or `no answer` (it died, or lives and did not tell what came of it)."""
        return "no answer" if self.lost is not None else "failed" if self.failure is not None else "ok"

    @property
    def gist(self) -> str:
        """What its numbers are like, where there are more than one sees at a glance."""
        gist = self.value.gist if self.value is not None else None
        if self.value is None or gist is None or gist.num_seen == 1:
            return ""
        return gist_text(gist, self.value) if gist.num_seen > _READ_AT_A_GLANCE or gist.num_nans else ""

    @property
    def spread(self) -> str:
        """How far numbers that look the same are from the median; empty if they are the same."""
        return f"Δ {self.away}" if self.away.startswith("≤") else ""

    @property
    def who(self) -> str:
        """`rank 3` or `ranks 0-2,7`."""
        return named(self.ranks)

    @property
    def time(self) -> str:
        """`0.21-0.22 s`; empty where no rank says."""
        return seconds_text(*self.seconds) if self.seconds is not None else ""


def record_columns(rows: Sequence[Row]) -> list[str]:
    """The names of the entries that have a column each: where there are several rows, and all values are records."""
    values = [row for row in rows if row.value is not None]
    are_records = len(rows) > 1 and all(row.record for row in values)
    return names_of(row.record for row in values) if are_records else []


def with_odd_entries(rows: Sequence[Row]) -> list[Row]:
    """Rows of records that are odd where one of their entries is."""
    records = [row for row in rows if row.record]
    odd = {name: _odd_in(name, records) for name in record_columns(rows)}
    if not odd:
        return list(rows)
    names = [frozenset(name for name in odd if id(row) in odd[name]) for row in rows]
    return [replace(row, is_odd=bool(found), odd_entries=found) for row, found in zip(rows, names, strict=True)]


def _odd_in(name: str, records: Sequence[Row]) -> set[int]:
    """The rows, by `id`, whose entry of this name is not what most ranks have.

    Where most differ: what is no finite number as most are, or one that is far from the others.
    """
    texts: Counter[str] = Counter()
    for row in records:
        texts[_entry_of(row, name)] += len(row.ranks)
    [(usual, count)] = texts.most_common(1)
    if 2 * count > texts.total():
        return {id(row) for row in records if _entry_of(row, name) != usual}
    numbers = {id(row): [float(entry)] for row in records if is_finite(entry := row.record.get(name))}
    far = odd_ones(numbers) if len(numbers) >= LEAST_ALIKE else set[int]()
    strange = [row for row in records if isinstance(entry := row.record.get(name), float) and not math.isfinite(entry)]
    is_rare = 2 * sum(len(row.ranks) for row in strange) < texts.total()
    return far | {id(row) for row in strange} if is_rare else far


def _entry_of(row: Row, name: str) -> str:
    return entry_text(row.record[name]) if name in row.record else ""


def table_text(rows: Sequence[Row]) -> str:
    """The rows as plain text, a line each where they have one; bounded, with what is odd kept to the last."""
    shown = _most_telling(rows, _MAX_ROWS)
    room = max(_WIDE, _BUDGET // max(len(shown), 1))
    lines_each = max(_LEAST_LINES, _MAX_LINES // max(len(shown), 1))
    texts = [clipped(_top(row.text, lines_each), room) or "done" for row in shown]
    columns = record_columns(rows)
    head, texts = _aligned(columns, shown, texts) if columns else ("", texts)
    wide = max((len(text) for text in texts if "\n" not in text and len(text) <= max(_WIDE, len(head))), default=0)
    indent = "  " if any(row.marker for row in shown) else ""
    has_coords = len(rows) > 1 and any(row.coords.count("=") > 1 for row in rows)
    lines = [indent + head] if head else []
    lines += [_row_text(row, text, wide, indent, has_coords) for row, text in zip(shown, texts, strict=True)]
    if hidden := len(rows) - len(shown):
        lines.append(f"{indent}… {hidden:,} more rows")
    return "\n".join(lines)


def _aligned(columns: Sequence[str], rows: Sequence[Row], texts: Sequence[str]) -> tuple[str, list[str]]:
    """The names of the columns, and the text of each row: its entries under them, or what it has in place of them."""
    cells = [[_entry_of(row, name) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    are_numbers = [all(is_number(row.record.get(name)) for row in rows if row.record) for name in columns]
    sides = [">" if of_numbers else "<" for of_numbers in are_numbers]

    def line(words: Sequence[str]) -> str:
        return "  ".join(f"{word:{side}{width}}" for word, side, width in zip(words, sides, widths, strict=True))

    lines = [line(words) if row.record else text for row, words, text in zip(rows, cells, texts, strict=True)]
    return line(columns).rstrip(), lines


def _top(text: str, num_lines: int) -> str:
    """Its first lines, and how many more there are: so that many ranks can be seen at a glance."""
    lines = text.split("\n")
    if len(lines) <= num_lines:
        return text
    return "\n".join([*lines[: num_lines - 1], f"… {len(lines) - num_lines + 1:,} more lines"])


def _row_text(row: Row, text: str, wide: int, indent: str, has_coords: bool) -> str:
    who = row.who if len(row.who) <= _WIDE else f"{len(row.ranks):,} ranks"
    who = f"{who} ({row.coords})" if has_coords else who
    away = f"Δ {row.away}" if row.is_odd and row.away else row.spread
    about = "   ".join(filter(None, [who, away, row.facts, row.gist, row.time, row.note]))
    marker = row.marker.ljust(len(indent))
    if "\n" not in text:
        return f"{marker}{text:<{wide}}   {about}"
    block = "\n".join(f"{indent}  {line}" for line in text.split("\n"))
    return f"{marker}{about}\n{block}"


def _most_telling(rows: Sequence[Row], count: int) -> list[Row]:
    """At most `count` rows: failures first, then odd ones, then the lowest ranks; in order."""
    if len(rows) <= count:
        return list(rows)
    places = sorted(range(len(rows)), key=lambda i: (not rows[i].is_failed, not rows[i].is_odd, i))
    return [rows[i] for i in sorted(places[:count])]


def error_line(type_name: str, message: str) -> str:
    """An error in one line, though its message fills pages: some name each of a thousand tensors.

    Example:
        >>> error_line("ValueError", "loss is nan\\nin step 3")
        'ValueError: loss is nan'
    """
    first = clipped(message.strip().partition("\n")[0], _LONGEST_MESSAGE)
    return f"{type_name}: {first}" if first else type_name


def root_cause_text(message: str) -> str:
    """What goes behind that line where it was raised from something else, of which a library may have said nothing.

    Example:
        >>> root_cause_text("stage 2 failed\\ncaused by OSError: lost\\ncaused by ValueError: bad (cell 3, line 7)")
        ', caused by ValueError: bad (cell 3, line 7)'
    """
    causes = [line for line in message.split("\n")[1:] if line.startswith("caused by ")]
    return f", {clipped(causes[-1], _LONGEST_MESSAGE)}" if causes else ""


def facts_text(dtype: str | None, shape: tuple[int, ...] | None, device: str | None) -> str:
    """What there is to say of an array.

    Example:
        >>> facts_text("torch.float32", (2, 3), "cuda:0")
        'float32 [2, 3] cuda:0'
    """
    parts = [
        (dtype or "").removeprefix("torch."),
        "" if shape is None else str(list(shape)),
        "" if device == "cpu" else device or "",
    ]
    return " ".join(filter(None, parts))


def number_of(value: Value | None) -> float | None:
    """The value as one number, if it is one.

    Example:
        >>> number_of(Value("float", "0.25")), number_of(Value("str", "'0.25'")), number_of(Value("bool", "True"))
        (0.25, None, None)
    """
    if value is None:
        return None
    if value.gist is not None and value.gist.num_seen == 1:
        return value.gist.mean
    if value.type_name not in ("int", "float"):
        return None
    try:
        return float(value.text)
    except ValueError:  # printed in the user's own way
        return None


def strayed(rows: Sequence[Row]) -> list[bool]:
    """Which rows are odd though no majority is equal: their number is none (nan, infinite), and most are finite."""
    finite = [bool(row.numbers) and all(map(math.isfinite, row.numbers)) for row in rows]
    num_finite = sum(len(row.ranks) for row, good in zip(rows, finite, strict=True) if good)
    is_usual = 2 * num_finite > sum(len(row.ranks) for row in rows)
    return [is_usual and bool(row.numbers) and not good for row, good in zip(rows, finite, strict=True)]


def distances(groups: Sequence[Sequence[float]]) -> list[str]:
    """How far the numbers of each group are from the median of all; a group without numbers gets no text.

    Example:
        >>> distances([[0.5, 0.5], [0.75], [float("nan")], []])
        ['0', '+0.25', 'nan', '']
        >>> distances([[1.0, 1.0, 1.0, 1.0001], [2.0]])
        ['≤ 0.0001', '+1']
    """
    finite = [number for group in groups for number in group if math.isfinite(number)]
    middle = median(finite) if finite else 0.0
    return [_distance(group, middle) for group in groups]


def _distance(numbers: Sequence[float], middle: float) -> str:
    if not numbers:
        return ""
    if not math.isfinite(sum(numbers)):
        return f"{next(number for number in numbers if not math.isfinite(number)):g}"
    most = max((number - middle for number in numbers), key=abs)
    if len(set(numbers)) > 1:
        return f"≤ {abs(most):.1g}"
    return f"{most:+.3g}" if most else "0"


def finite_numbers(rows: Sequence[Row]) -> list[float]:
    """The numbers of all ranks, where each has one, but for nan and what is infinite."""
    return [number for row in rows for number in row.numbers if math.isfinite(number)]


def gist_text(gist: Gist, value: Value) -> str:
    """What numbers are like, in a line.

    Example:
        >>> gist_text(Gist(-1.0, 2.0, 0.123456, 9.5, 3, 100), Value("Tensor", "...", shape=(20, 5)))
        'min -1  max 2  mean 0.1235  norm 9.5  3 nan'
    """
    bounds = {"min": gist.least, "max": gist.most, "mean": gist.mean, "norm": gist.norm}
    parts = [f"{name} {number:.4g}" for name, number in bounds.items()]
    parts += [f"{gist.num_nans:,} nan"] if gist.num_nans else []
    if gist.num_seen < math.prod(value.shape or ()):
        parts.append(f"(of {gist.num_seen:,} of its numbers)")
    return "  ".join(parts)


def seconds_text(least: float, most: float) -> str:
    """A time, or a range of times.

    Example:
        >>> seconds_text(0.012, 0.012), seconds_text(0.5, 12.0), seconds_text(0.0001, 0.0001)
        ('0.01 s', '0.50-12.0 s', '<0.01 s')
    """
    low, high = _number(least), _number(most)
    return f"{high} s" if low == high else f"{low}-{high} s"


def _number(seconds: float) -> str:
    if seconds < 0.005:
        return "<0.01"
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"


def clipped(text: str, limit: int) -> str:
    """The first `limit` characters, with a mark where there were more.

    Example:
        >>> clipped("abcdef", 4)
        'abc…'
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
