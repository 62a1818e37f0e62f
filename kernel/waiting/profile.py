"""Where ranks spend their time: their stacks are looked at again and again, and counted by the user's lines.

A profile of each rank by itself says little of a step that ends when the slowest does. Here the ranks stand side by
side: what they share is one line, and who differs from it is named there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

from ...runtime.ranges import named
from .ledger import line_text
from .stacks import RankStack, place_of

PACE = 0.04
"""Seconds between two looks."""

_REST = 3
"""Times as long as a look has taken the ranks are left alone after it: many on few cores are slowed down by it."""

_AT_REST = 5
"""Looks after which nobody is watched any longer who does nothing."""

_APART = 0.15
"""By so much of its time a rank differs from the others to be named."""

_LEAST, _LEAST_INSIDE = 0.02, 0.05
"""The part of a rank's time that a line must take to be told, and one of a library's within it."""

_MOST, _MOST_INSIDE = 12, 3
"""Lines that are told, and within each."""

NOBODY_WORKS = "nobody works"


@dataclass(frozen=True, slots=True)
class Share:
    """What one place takes of the time of each rank."""

    place: str
    """A line of the user's, `cell 4, line 6`; within such a row a library's, or `waiting in all_reduce`."""
    source: str
    parts: Mapping[int, float]
    """Of the looks at each rank, those in which it was there: 0 to 1."""
    inside: tuple[Share, ...] = ()

    @property
    def most(self) -> float:
        return max(self.parts.values())

    @property
    def apart(self) -> dict[int, float]:
        """The ranks that differ from the others."""
        usual = median(self.parts.values())
        return {rank: part for rank, part in self.parts.items() if abs(part - usual) >= _APART}

    @property
    def usual(self) -> str:
        """What it takes of the others' time: `96…98 %`."""
        apart = self.apart
        return _percent([part for rank, part in self.parts.items() if rank not in apart] or [*self.parts.values()])

    @property
    def odd(self) -> str:
        """Who differs: `rank 2: 46 %`."""
        apart = self.apart
        high = [rank for rank, part in apart.items() if part > median(self.parts.values())]
        low = [rank for rank in apart if rank not in high]
        return ", ".join(f"{named(ranks)}: {_percent([apart[r] for r in ranks])}" for ranks in (high, low) if ranks)


def slept(seconds: float) -> bool:
    """Wait so long, and go on."""
    time.sleep(seconds)
    return True


class Profile:
    """Where ranks of a mesh were in some seconds: print it, or read `shares`, the largest first.

    Example:
        >>> from meshbook.kernel.outcome import Frame
        >>> def seen(rank, line):
        ...     return RankStack(rank, "busy", (Frame("cell 4", line, "<module>", "load()", True),))
        >>> Profile([[seen(0, 6), seen(1, 6), seen(2, line)] for line in (5, 6)], seconds=3.0)
        where ranks 0-2 were in 2 looks of 3 s
           100 %  cell 4, line 6  load()  rank 2: 50 %
             0 %  cell 4, line 5  load()  rank 2: 50 %
    """

    def __init__(self, looks: Sequence[Sequence[RankStack]], seconds: float, note: str = "") -> None:
        self.seconds = seconds
        self.num_looks = len(looks)
        self.note = note
        by_rank: dict[int, list[RankStack]] = {}
        for look in looks:
            for stack in look:
                by_rank.setdefault(stack.rank, []).append(stack)
        self.ranks = tuple(sorted(by_rank))
        self.shares = _shares(by_rank, _line_of, _LEAST)

    @property
    def title(self) -> str:
        if not self.ranks:
            return "no rank lives"
        were = "was" if len(self.ranks) == 1 else "were"
        return f"where {named(self.ranks)} {were} in {self.num_looks} looks of {self.seconds:.3g} s"

    def data(self) -> dict[str, Any]:
        """All of it as plain values: `shares` with the part of each rank's looks, by rank."""
        return {
            "ranks": list(self.ranks),
            "seconds": self.seconds,
            "looks": self.num_looks,
            "shares": [_data(share) for share in self.shares],
        }

    def _rows(self) -> list[tuple[int, Share]]:
        """The lines to be shown, each with how deep it stands."""
        shown = self.shares[:_MOST]
        return [row for share in shown for row in ((0, share), *((1, each) for each in share.inside[:_MOST_INSIDE]))]

    @property
    def _rest(self) -> str:
        num_more = len(self.shares) - _MOST
        return f"… and {num_more} more line{'s' * (num_more > 1)}" if num_more > 0 else ""

    def __repr__(self) -> str:
        rows = [
            (f"{share.usual:>8}  {'  ' * depth}{share.place}", share.source, share.odd) for depth, share in self._rows()
        ]
        wide = min(max((len(place) for place, source, _ in rows if source), default=0), 60)
        lines = [
            "  ".join(filter(None, [f"{place:<{wide}}" if source else place, source, odd]))
            for place, source, odd in rows
        ]
        return "\n".join(filter(None, [self.title, *lines, self._rest, self.note]))

    def _repr_html_(self) -> str:
        columns = map(_unbroken, ("of the time", "at", "", "who differs"))
        head = "".join(f'<th scope="col">{column}</th>' for column in columns)
        body = "".join(_html_row(depth, share) for depth, share in self._rows())
        foot = "".join(f"<p>{escape(text)}</p>" for text in (self._rest, self.note) if text)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        title = f"<p><strong>{escape(self.title)}</strong></p>"
        return f'<div class="meshbook" role="region" aria-label="profile of ranks">{title}{table}{foot}</div>'


def profile(
    look: Callable[[], Sequence[RankStack]], seconds: float, rest: Callable[[float], bool] = slept, advice: str = ""
) -> Profile:
    """Look for so long, or until Ctrl-C; not at ranks that do nothing.

    `look` gives the stacks of the ranks now; `rest` waits so many seconds, and says whether to go on. `advice` is for
    who finds that nobody works.
    """
    began = now = time.monotonic()
    looks: list[Sequence[RankStack]] = []
    note = ""
    try:
        while now < began + seconds:
            looks.append(look())
            if len(looks) == _AT_REST and not any(stack.frames for each in looks for stack in each):
                note = ": ".join(filter(None, [NOBODY_WORKS, advice]))
                break
            took = time.monotonic() - now
            if not rest(min(max(PACE, _REST * took), max(began + seconds - now - took, 0.0))):
                break
            now = time.monotonic()
    except KeyboardInterrupt:
        if not looks:
            raise
    return Profile(looks, time.monotonic() - began, note)


_Place = tuple[str, str]
"""Where it is, and the text of that line."""


def _line_of(stack: RankStack) -> _Place:
    """The user's innermost line; of a rank that does nothing its state."""
    for frame in reversed(stack.frames):
        if frame.is_user and not frame.file.startswith("<"):  # which has no lines to read, as a dataclass's `__init__`
            return line_text(frame.file, frame.line), frame.source
    if stack.frames:
        return place_of(stack.frames[-1]), ""
    return stack.trouble or stack.state, ""


def _inside(stack: RankStack) -> _Place:
    """What it does there: waits, or stands in a library; nothing of the line's own."""
    if stack.waiting:
        return f"waiting in {stack.waiting}", ""
    place = place_of(stack.frames[-1]) if stack.frames else ""
    is_own = not place or stack.frames[-1].is_user or place == _line_of(stack)[0]
    return ("", "") if is_own else (place, "")


def _shares(
    by_rank: Mapping[int, Sequence[RankStack]],
    where: Callable[[RankStack], _Place],
    least: float,
    totals: Mapping[int, int] | None = None,
) -> tuple[Share, ...]:
    """The largest first. `totals` are the looks at each rank, if they are not those given."""
    totals = totals or {rank: len(stacks) for rank, stacks in by_rank.items()}
    seen: dict[_Place, dict[int, list[RankStack]]] = {}
    for rank, stacks in by_rank.items():
        for stack in stacks:
            seen.setdefault(where(stack), {}).setdefault(rank, []).append(stack)
    found: list[Share] = []
    for (place, source), there in seen.items():
        parts = {rank: len(there.get(rank, ())) / total for rank, total in totals.items()}
        if place and max(parts.values()) >= least:
            inside = _shares(there, _inside, _LEAST_INSIDE, totals) if where is _line_of else ()
            found.append(Share(place, source, parts, inside))
    return tuple(sorted(found, key=lambda share: (-share.most, -sum(share.parts.values()), share.place)))


def _percent(parts: Iterable[float]) -> str:
    """Example: `96…98 %`."""
    percents = sorted(round(100 * part) for part in parts)
    least, most = percents[0], percents[-1]
    return f"{least} %" if least == most else f"{least}…{most} %"


def _data(share: Share) -> dict[str, Any]:
    return {
        "place": share.place,
        "source": share.source,
        "parts": {rank: round(part, 4) for rank, part in share.parts.items()},
        "inside": [_data(each) for each in share.inside],
    }


def _html_row(depth: int, share: Share) -> str:
    indent = ' style="padding-left:28px"' if depth else ""
    source = f"<code>{escape(share.source)}</code>" if share.source else ""
    odd = f"<strong>{_unbroken(escape(share.odd))}</strong>" if share.odd else ""
    usual, place = _unbroken(share.usual), escape(share.place)
    return f"<tr><td>{usual}</td><td{indent}>{place}</td><td>{source}</td><td>{odd}</td></tr>"


def _unbroken(text: str) -> str:
    """On one line but where a comma stands.

    >>> _unbroken("ranks 2-3: 4 %, rank 5: 0 %")
    'ranks\\xa02-3:\\xa04\\xa0%, rank\\xa05:\\xa00\\xa0%'
    """
    return text.replace(" ", "\xa0").replace(",\xa0", ", ")
