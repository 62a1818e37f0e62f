"""The rows of a result: ranks that came to the same are one row. Plain data, and the plain text of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .fold import ranks_text
from .outcome import Failure, Value

_MAX_ROWS = 40
_BUDGET = 20_000
_WIDE = 60


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
    def facts(self) -> str:
        """Type and size of an array: `float32 [2, 3] cuda:0`."""
        value = self.value
        return facts_text(value.dtype, value.shape, value.device) if value is not None else ""

    @property
    def who(self) -> str:
        """`rank 3` or `ranks 0-2,7`."""
        return f"rank{'s' * (len(self.ranks) > 1)} {ranks_text(self.ranks)}"

    @property
    def time(self) -> str:
        """`0.21-0.22 s`; empty where no rank says."""
        return seconds_text(*self.seconds) if self.seconds is not None else ""


def table_text(rows: Sequence[Row]) -> str:
    """The rows as plain text, a line each where they have one; bounded, with what is odd kept to the last."""
    shown = _most_telling(rows, _MAX_ROWS)
    room = max(_WIDE, _BUDGET // max(len(shown), 1))
    texts = [clipped(row.text, room) or "done" for row in shown]
    wide = max((len(text) for text in texts if "\n" not in text and len(text) <= _WIDE), default=0)
    indent = "  " if any(row.marker for row in shown) else ""
    has_coords = len(rows) > 1 and any(row.coords.count("=") > 1 for row in rows)
    lines = [_row_text(row, text, wide, indent, has_coords) for row, text in zip(shown, texts, strict=True)]
    if hidden := len(rows) - len(shown):
        lines.append(f"{indent}… {hidden:,} more rows")
    return "\n".join(lines)


def _row_text(row: Row, text: str, wide: int, indent: str, has_coords: bool) -> str:
    who = f"{row.who} ({row.coords})" if has_coords else row.who
    about = "   ".join(filter(None, [who, row.facts, row.time, row.note]))
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
    """An error in one line.

    Example:
        >>> error_line("ValueError", "loss is nan\\nin step 3")
        'ValueError: loss is nan'
    """
    first = message.strip().partition("\n")[0]
    return f"{type_name}: {first}" if first else type_name


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
