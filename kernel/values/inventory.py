"""What `%mesh who` found: the names of the ranks, equal ones told once, those on which ranks disagree first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from ...runtime.numerals import brief, read, spread
from ...runtime.ranges import named
from .names import Held
from .rows import clipped, facts_text
from .summary import readable

_PLURALS = {"function": "functions", "class": "classes", "module": "modules"}


@dataclass(frozen=True, slots=True)
class Holding:
    """One name on ranks that have the same behind it."""

    name: str
    ranks: tuple[int, ...]
    held: Held | None
    """None: these ranks do not have the name."""
    is_agreed: bool
    """All ranks have the same type and size behind it."""
    value: str = ""
    """Of a number or text: what it is on these ranks, or lies between, or that it differs."""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Name, type, size, ranks."""
        what, size = ("missing", "") if self.held is None else (type_text(self.held), size_text(self.held))
        return self.name, what, size or self.value, named(self.ranks)


class Inventory:
    """The names in the cells' namespaces, as they were when it was asked for; print it, or read `holdings`.

    Ranks disagree on a name that is missing on some, or has another type or shape there; values are not compared.
    `silent` ranks did not answer in time.

    Example:
        >>> x, y = Held("x", "value", "int", value="3"), Held("x", "value", "Tensor", (2,), "torch.float32", "cpu", 8)
        >>> Inventory({0: [x], 1: [x], 2: [y]})
        ≠ x  int     3              ranks 0-1
        ≠ x  Tensor  float32 [2]    rank 2
    """

    def __init__(self, held: Mapping[int, Sequence[Held]], silent: Sequence[int] = ()) -> None:
        self.silent = tuple(silent)
        self._held = {rank: {each.name: each for each in held[rank]} for rank in sorted(held)}

    @cached_property
    def holdings(self) -> list[Holding]:
        """Every name, a line for all ranks that have the same; first those on which ranks disagree."""
        names = sorted({name for held in self._held.values() for name in held})
        lines = [line for name in names for line in self._of_name(name)]
        return sorted(lines, key=lambda line: line.is_agreed)  # stable: names stay in order

    def _of_name(self, name: str) -> list[Holding]:
        groups: dict[object, list[int]] = {}
        for rank, held in self._held.items():
            groups.setdefault(_sort_of(held.get(name)), []).append(rank)
        return [self._line(name, ranks, len(groups) == 1) for ranks in groups.values()]

    def _line(self, name: str, ranks: list[int], is_agreed: bool) -> Holding:
        values = {each.value if (each := self._held[rank].get(name)) else None for rank in ranks}
        return Holding(name, tuple(ranks), self._held[ranks[0]].get(name), is_agreed, _value_text(values))

    @property
    def rows(self) -> list[Holding]:
        """What has a line of its own: values, and other names on which ranks disagree."""
        return [line for line in self.holdings if not (line.is_agreed and line.held and line.held.kind != "value")]

    @property
    def remarks(self) -> list[str]:
        """The other names, kind by kind, and who has not answered."""
        found: dict[str, list[str]] = {}
        for line in self.holdings:
            if line.is_agreed and line.held is not None and line.held.kind != "value":
                found.setdefault(_PLURALS[line.held.kind], []).append(line.name)
        remarks = [f"{kind}: {clipped(', '.join(names), 200)}" for kind, names in sorted(found.items())]
        return remarks + ([f"no answer from {named(self.silent)}"] if self.silent else [])

    def data(self) -> dict[str, Any]:
        """`names` (a dict for each of `holdings`, what is not known left out) and `silent` ranks."""
        return {
            "names": [
                {"name": line.name, "ranks": list(line.ranks), "is_agreed": line.is_agreed, **_plain(line)}
                for line in self.holdings
            ],
            "silent": list(self.silent),
        }

    def __repr__(self) -> str:
        if not self._held or not any(self._held.values()):
            return "\n".join(["no names yet: what cells assign is listed here", *self.remarks])
        rows = [line.cells for line in self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
        has_marks = any(not line.is_agreed for line in self.rows)
        marks = ["≠ " if not line.is_agreed else "  " * has_marks for line in self.rows]
        table = [
            mark + "  ".join([name.ljust(widths[0]), what.ljust(widths[1]), size.ljust(widths[2] + 2), ranks]).rstrip()
            for mark, (name, what, size, ranks) in zip(marks, rows, strict=True)
        ]
        return "\n".join([*table, *self.remarks])


def _value_text(values: Collection[str | None]) -> str:
    """What ranks have under one name, if one line can say it."""
    texts = [value for value in values if value is not None]
    if len(values) == 1:
        return "".join(texts)
    reads = [brief(read(text)) for text in texts]
    are_alike = len(texts) == len(values) and len({each.around for each in reads}) == 1
    return spread(reads) if are_alike else "differs"


def _sort_of(held: Held | None) -> object:
    """What must be equal for ranks to agree: a device of their own is no disagreement."""
    if held is None:
        return None
    device = (held.device or "").partition(":")[0]
    return held.kind, held.type_name, held.shape, held.dtype, device, held.length, held.num_params


def type_text(held: Held) -> str:
    """Example: `Tensor`, `function train`."""
    return held.type_name if held.kind in ("value", "module") else f"{held.kind} {held.type_name}"


def size_text(held: Held) -> str:
    """Size and form, as far as they are known.

    Example:
        >>> size_text(Held("m", "value", "Linear", num_params=1_500_000, nbytes=6_000_000))
        '1,500,000 parameters, 5.7 MB'
        >>> size_text(Held("x", "value", "list", length=3))
        'length 3'
    """
    parts = [
        facts_text(held.dtype, held.shape, held.device),
        f"{held.num_params:,} parameters" if held.num_params is not None else "",
        f"length {held.length:,}" if held.length is not None and held.value is None else "",
        readable(held.nbytes) if held.nbytes is not None and held.nbytes >= 1024 else "",
    ]
    return ", ".join(filter(None, parts))


def _plain(line: Holding) -> dict[str, Any]:
    if line.held is None:
        return {"is_missing": True}
    known = {name: value for name, value in msgspec.structs.asdict(line.held).items() if value is not None}
    return known | {"value": line.value} if line.value else known
