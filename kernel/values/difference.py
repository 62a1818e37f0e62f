"""What a comparison of ranks came to: which agree, and where the others differ. Plain data, and its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from ...runtime.numerals import condensed
from ...runtime.ranges import named
from .kept import Summary
from .leaves import Leaf
from .measure import Apart, Tolerance, index_text
from .rows import facts_text
from .summary import readable

_MOST_ROWS = 60

_FEW_ROWS = 16
"""So many are told one by one."""


@dataclass(frozen=True, slots=True)
class LeafGroup:
    """Ranks with the same leaf."""

    ranks: tuple[int, ...]
    leaf: Leaf | None
    """None: they do not have it."""
    apart: Apart | None = None
    """From the usual one, if that was measured; its `nans` are those of the usual one, then those of this."""

    def is_near(self, usual: LeafGroup) -> bool:
        """Can the difference be measured?"""
        if self.leaf is None or usual.leaf is None:
            return False
        return self.leaf.is_numeric and usual.leaf.is_numeric and self.leaf.shape == usual.leaf.shape

    def is_equal(self, usual: LeafGroup) -> bool:
        """Is it the same, but for what the tolerance covers?"""
        if self.leaf is None or usual.leaf is None or self.apart is None:
            return False
        return self.leaf.form == usual.leaf.form and not self.apart.num_differing


@dataclass(frozen=True, slots=True)
class LeafDiff:
    """A leaf that is not the same on all ranks."""

    name: str
    groups: tuple[LeafGroup, ...]
    """The first is the usual one: that of most ranks, or of the lowest among as many."""

    @property
    def title(self) -> str:
        """Its name, and which part of it that is, where it is distributed over ranks."""
        shard = next((group.leaf.shard for group in self.groups if group.leaf is not None), "")
        return f"{self.name or 'value'} ({shard})" if shard else self.name or "value"

    def measured(self, found: Mapping[tuple[str, int], Apart]) -> LeafDiff:
        """With what was measured, by name and lowest rank; what the tolerance covers joins the usual one."""
        usual, *others = self.groups
        others = [replace(group, apart=found.get((self.name, group.ranks[0]))) for group in others]
        equal = [rank for group in others if group.is_equal(usual) for rank in group.ranks]
        usual = replace(usual, ranks=tuple(sorted([*usual.ranks, *equal])))
        return LeafDiff(self.name, (usual, *(group for group in others if not group.is_equal(self.groups[0]))))


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One leaf on ranks that differ from the usual."""

    name: str
    usual: str
    ranks: tuple[int, ...]
    what: str

    @property
    def who(self) -> str:
        return named(self.ranks)


class Comparison:
    """How the values of ranks differ: print it, or read `groups`, `leaves`, `rows` and `data()`.

    Example:
        >>> one, two = (Summary("float", bytes([n]), 1, 8, f"{n}.0") for n in (1, 2))
        >>> usual, odd = (Leaf("float", bytes([n]), (), "float64", f"{n}.0", 8) for n in (1, 2))
        >>> leaf = LeafDiff("", (LeafGroup((0, 1), usual), LeafGroup((2,), odd, Apart(1, 1, 0, 1.0, 0.5))))
        >>> Comparison((0, 1, 2), {0: one, 1: one, 2: two}, [leaf], Tolerance())
        rank 2 differs from ranks 0-1   float
        ≠ rank 2  2.0 instead of 1.0, by 1 (0.5 relative)
    """

    def __init__(
        self,
        ranks: Sequence[int],
        summaries: Mapping[int, Summary],
        leaves: Sequence[LeafDiff],
        tolerance: Tolerance,
        num_left_out: int = 0,
        max_bytes: int = 0,
        num_sharded: int = 0,
        num_alone: int = 0,
    ) -> None:
        self.ranks = tuple(ranks)
        self.leaves = tuple(leaf for leaf in leaves if len(leaf.groups) > 1)
        """Those that differ by more than the tolerance, in the order of the value."""
        self.tolerance = tolerance
        self.num_left_out = num_left_out
        """How many more leaves differ, at the least."""
        self._num_near = len(leaves) - len(self.leaves)
        self._summaries = summaries
        self._max_bytes = max_bytes
        self._num_compared = num_sharded - num_alone
        """Distributed leaves of which some ranks have the same part."""
        self._num_alone = num_alone

    @property
    def is_equal(self) -> bool:
        return len(self.groups) == 1

    @cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """Ranks with equal values; the largest group first, of as large ones that of the lowest rank."""
        found: dict[object, list[int]] = {}
        for rank in self.ranks:
            places = [_place(leaf, rank) for leaf in self.leaves]
            key = (*places, self._summaries[rank].digest if self.num_left_out else b"")
            found.setdefault(key, []).append(rank)
        return sorted(map(tuple, found.values()), key=lambda ranks: (-len(ranks), ranks))

    @cached_property
    def rows(self) -> list[DiffRow]:
        """A line for each leaf and group of ranks that differs from the usual."""
        return [
            DiffRow(leaf.title, _facts(leaf.groups[0].leaf), group.ranks, self._what(group, leaf.groups[0]))
            for leaf in self.leaves
            for group in leaf.groups[1:]
        ]

    def _what(self, group: LeafGroup, usual: LeafGroup) -> str:
        here, there = group.leaf, usual.leaf
        if here is None:
            return "missing"
        if there is None:
            return f"only here: {_facts(here)}"
        if here.form != there.form and (here.type_name, here.shape) != (there.type_name, there.shape):
            both = here.type_name != there.type_name
            return f"{_facts(here, both)} instead of {_facts(there, both)}"
        parts = [f"{here.text} instead of {there.text}"] if here.text and here.text != there.text else []
        parts += [f"{here.dtype} instead of {there.dtype}"] if here.dtype != there.dtype else []
        if group.apart is not None and group.apart.num_differing:
            parts += _apart_texts(group.apart, here.shape or ())
        elif group.apart is None and group.is_near(usual):
            why = f"it is over {readable(self._max_bytes)}: --max-bytes" if self._max_bytes else "there is no numpy"
            parts.append(f"differs, not measured: {why}")
        return ", ".join(parts) or "differs"

    @property
    def title(self) -> str:
        """Who agrees and who does not, and what it is that was compared."""
        summary = self._summaries[self.groups[0][0]]
        usual, *others = self.groups
        if self._num_alone == summary.num_leaves:
            says = f"nothing to compare: each of {named(self.ranks)} has another part"
        elif not others:
            verb = "agree" if self._num_compared or self._num_alone else "are equal"
            says = f"{named(usual)} {verb if len(usual) > 1 else 'alone'}"
        elif len(usual) > 1:
            odd = [rank for ranks in others for rank in ranks]
            says = f"{named(odd)} differ{'' if len(odd) > 1 else 's'} from {named(usual)}"
        else:
            says = f"{named(self.ranks)} all differ"
        what = [summary.type_name, *([summary.text] if self.is_equal and summary.text else [])]
        if summary.num_leaves > 1:
            what.append(self._counts(summary))
        return f"{says}   {', '.join(what)}"

    def _counts(self, summary: Summary) -> str:
        num_differing = len({leaf.name for leaf in self.leaves}) + self.num_left_out
        if not num_differing:
            return f"{summary.num_leaves:,} leaves, {readable(summary.num_bytes)}"
        return f"{num_differing:,} of {summary.num_leaves:,} leaves differ"

    @property
    def remarks(self) -> list[str]:
        """What else there is to say."""
        remarks: list[str] = []
        if self._num_compared:
            remarks.append(f"{_distributed(self._num_compared)} compared between ranks that hold the same part")
        if 0 < self._num_alone < self._summaries[self.ranks[0]].num_leaves:
            remarks.append(f"{_distributed(self._num_alone)} not compared: each rank has another part")
        if self._num_near:
            within = ", ".join(f"{name}={value:g}" for name, value in self._limits if value) or "but in their bytes"
            remarks.append(f"{self._num_near:,} more {'are' if self._num_near > 1 else 'is'} equal within {within}")
        if len(self._told) > _MOST_ROWS:
            remarks.append(f"{len(self._told) - _MOST_ROWS:,} more lines: `data()` has them")
        if len(self._told) < len(self.rows):
            remarks.append(
                f"a…b: from the least to the most of what ranks have; `.rows` has all {len(self.rows):,} lines"
            )
        if self.num_left_out:
            remarks.append(f"{self.num_left_out:,} more leaves differ")
        return remarks

    @property
    def _limits(self) -> list[tuple[str, float]]:
        return [("rtol", self.tolerance.rtol), ("atol", self.tolerance.atol)]

    def shown(self) -> list[DiffRow]:
        """The rows; very many that differ in their numbers alone are one, and of what is left the first are shown."""
        return self._told[:_MOST_ROWS]

    @cached_property
    def _told(self) -> list[DiffRow]:
        if len(self.rows) <= _FEW_ROWS:
            return self.rows
        told: list[DiffRow] = []
        for _, rows in groupby(self.rows, key=lambda row: (row.name, row.usual)):
            told += _condensed(list(rows))
        return told

    def data(self) -> dict[str, Any]:
        """`groups` of equal ranks, `leaves` that differ (a dict each), `num_leaves`, `num_left_out`, `type`."""
        summary = self._summaries[self.ranks[0]]
        return {
            "groups": [list(ranks) for ranks in self.groups],
            "type": summary.type_name,
            "num_leaves": summary.num_leaves,
            "num_left_out": self.num_left_out,
            "leaves": [_leaf_data(leaf) for leaf in self.leaves],
        }

    def __repr__(self) -> str:
        rows = [[row.name, row.usual, row.who, row.what] for row in self.shown()]
        if all(leaf.name == "" for leaf in self.leaves):  # the value is one leaf: the title names it
            rows = [row[2:] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [f"≠ {'  '.join(map(str.ljust, row, widths)).rstrip()}" for row in rows]
        return "\n".join([self.title, *table, *self.remarks])


def _condensed(rows: Sequence[DiffRow]) -> list[DiffRow]:
    """Those of one leaf: what differs in its numbers alone as one."""
    return [
        replace(rows[alike[0]], ranks=tuple(sorted(rank for index in alike for rank in rows[index].ranks)), what=what)
        for alike, [what] in condensed([[row.what] for row in rows])
    ]


def _place(leaf: LeafDiff, rank: int) -> int:
    """The number of the group that a rank is in; one that has another part of the leaf does not differ."""
    return next((number for number, group in enumerate(leaf.groups) if rank in group.ranks), 0)


def _distributed(count: int) -> str:
    return f"{count:,} {'leaf is distributed, and was' if count == 1 else 'leaves are distributed, and were'}"


def _facts(leaf: Leaf | None, with_type: bool = False) -> str:
    if leaf is None:
        return "missing"
    facts = leaf.text or facts_text(leaf.dtype, leaf.shape, None)
    return f"{leaf.type_name} {facts}".strip() if with_type or not facts else facts


def _apart_texts(apart: Apart, shape: tuple[int, ...]) -> list[str]:
    """How many elements differ, by how much, and where the first of them is."""
    how = f"by {'up to ' * (apart.num_elements > 1)}{apart.largest:.4g} ({apart.relative:.2g} relative)"
    parts = [how] if apart.largest else []
    if apart.num_elements > 1:
        count = f"{apart.num_differing:,} of {apart.num_elements:,} differ"
        parts = [f"{count} {how}" if apart.largest else count]
        parts += [f"first at {index_text(apart.first, shape)}"] if apart.first is not None else []
    usual, here = apart.nans
    return parts + ([f"{here:,} NaN instead of {usual:,}"] if here != usual else [])


def _leaf_data(leaf: LeafDiff) -> dict[str, Any]:
    return {"name": leaf.name, "groups": [_group_data(group) for group in leaf.groups]}


def _group_data(group: LeafGroup) -> dict[str, Any]:
    """The usual group comes first, and the others say how far they are from it."""
    found: dict[str, Any] = {"ranks": list(group.ranks)}
    if group.leaf is not None:
        leaf = group.leaf
        shape = None if leaf.shape is None else list(leaf.shape)
        found |= {"type": leaf.type_name, "shape": shape, "dtype": leaf.dtype, "text": leaf.text}
    if group.apart is not None:
        apart = group.apart
        found |= {
            "num_elements": apart.num_elements,
            "num_differing": apart.num_differing,
            "first": apart.first,
            "largest": apart.largest,
            "relative": apart.relative,
            "nans": list(apart.nans),
        }
    return found
