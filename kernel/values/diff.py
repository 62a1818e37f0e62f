"""Compares the values that a cell left on its ranks, without bringing them to the notebook.

Ranks exchange digests first: of the whole, then, where those differ, of each leaf against the table of one rank. Only
leaves that differ are measured. For that the bytes of one rank go to the others, a few megabytes at a time, through the
notebook: its payloads reach many ranks at the cost of one copy, and need no process group, which a slice, a broken
collective or `--pg none` may not give. The notebook holds one piece at a time, each rank one piece of its own and one
of the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from .difference import Comparison, LeafDiff, LeafGroup
from .kept import Cut, Parting, Summary, Table, table_of
from .leaves import PIECE, Leaf
from .measure import Apart, Tolerance

_summary_of = msgspec.msgpack.Decoder(Summary).decode
_parting_of = msgspec.msgpack.Decoder(Parting).decode

Job = tuple[int, tuple[int, ...], Cut, int]
"""The rank whose elements are sent, those that compare theirs with them, which elements, how many bytes."""


class Call(Protocol):
    """Calls a method of `Kept` on ranks."""

    def __call__(self, ranks: Sequence[int], step: str, /, *args: object) -> Mapping[int, Any]: ...


def compare(call: Call, ranks: Sequence[int], tolerance: Tolerance, max_bytes: int) -> Comparison:
    """Which of these ranks differ, and in what. No more than `max_bytes` of what differs are measured."""
    summaries = {rank: _summary_of(data) for rank, data in call(ranks, "summary").items()}
    groups: dict[Summary, list[int]] = {}
    for rank in ranks:
        groups.setdefault(summaries[rank], []).append(rank)
    first = max(groups.values(), key=len)[0]
    if len(groups) == 1:
        return Comparison(tuple(ranks), summaries, (), tolerance)
    data = call([first], "table")[first]
    others = {each[0]: each for each in groups.values() if each[0] != first}
    partings = {rank: _parting_of(told) for rank, told in call(list(others), "parting", data).items()}
    members = {first: groups[summaries[first]], **others}
    leaves, num_left_out, num_sharded, num_alone = _leaf_diffs(first, table_of(data), partings, members)
    if not all(summary.can_measure for summary in summaries.values()):
        max_bytes = 0
    measured = _measured(call, leaves, tolerance, max_bytes)
    return Comparison(
        tuple(ranks), summaries, tuple(measured), tolerance, num_left_out, max_bytes, num_sharded, num_alone
    )


def _leaf_diffs(
    first: int, table: Table, partings: Mapping[int, Parting], members: Mapping[int, Sequence[int]]
) -> tuple[list[LeafDiff], int, int, int]:
    """The leaves that differ between ranks which have the same part of them; how many more there are at the least.

    And how many are distributed over ranks; of how many of those no two ranks have the same part.
    """
    names = dict.fromkeys([*table, *(name for parting in partings.values() for name in parting.leaves)])
    partial = [list(parting.leaves) for parting in partings.values() if parting.num_left_out]
    if partial:  # what comes behind the last leaf that a rank told is not known to be equal there
        places = {name: place for place, name in enumerate(names)}
        end = min(places[told[-1]] for told in partial)
        names = dict.fromkeys(list(names)[: end + 1])
    found: list[LeafDiff] = []
    num_sharded = num_alone = 0
    for name in names:
        leaves: dict[Leaf | None, list[int]] = {}
        for rank, ranks in members.items():
            own = partings[rank].leaves if rank != first else {}
            leaves.setdefault(own[name] if name in own else table.get(name), []).extend(ranks)
        parts = _by_shard(leaves)
        num_sharded += len(parts) > 1
        num_alone += len(parts) > 1 and all(sum(map(len, groups.values())) == 1 for groups in parts)
        found += [_leaf_diff(name, groups) for groups in parts if len(groups) > 1]
    most = max(sum(name not in names for name in each.leaves) + each.num_left_out for each in partings.values())
    return found, most, num_sharded, num_alone


def _by_shard(leaves: Mapping[Leaf | None, list[int]]) -> list[dict[Leaf | None, list[int]]]:
    """Those that are the same part of a leaf together. Ranks that lack the leaf lack the first part."""
    parts: dict[str, dict[Leaf | None, list[int]]] = {}
    for leaf, ranks in leaves.items():
        if leaf is not None:
            parts.setdefault(leaf.shard, {})[leaf] = ranks
    if None in leaves:
        next(iter(parts.values()))[None] = leaves[None]
    return list(parts.values())


def _leaf_diff(name: str, groups: Mapping[Leaf | None, Sequence[int]]) -> LeafDiff:
    ordered = sorted(groups.items(), key=lambda each: (-len(each[1]), min(each[1])))
    return LeafDiff(name, tuple(LeafGroup(tuple(sorted(ranks)), leaf) for leaf, ranks in ordered))


def _measured(call: Call, leaves: Sequence[LeafDiff], tolerance: Tolerance, max_bytes: int) -> Iterator[LeafDiff]:
    """The leaves with how far apart they are, as far as they can be measured."""
    jobs: list[Job] = []
    room = max_bytes
    for leaf in leaves:
        targets = tuple(group.ranks[0] for group in leaf.groups[1:] if group.is_near(leaf.groups[0]))
        usual = leaf.groups[0].leaf
        if targets and usual is not None and usual.num_bytes <= room:
            room -= usual.num_bytes
            jobs += _jobs(leaf.name, usual, leaf.groups[0].ranks[0], targets)
    found: dict[tuple[str, int], Apart] = {}
    for batch in _batches(jobs):
        source, targets = batch[0][:2]
        cuts = [cut for _, _, cut, _ in batch]
        pieces = call([source], "pieces", cuts)[source]
        for rank, told in call(targets, "apart", cuts, pieces, tolerance).items():
            for (name, _, _), apart in zip(cuts, told, strict=True):
                found[name, rank] = found.get((name, rank), Apart()).joined(apart)
    return (leaf.measured(found) for leaf in leaves)


def _jobs(name: str, leaf: Leaf, source: int, targets: tuple[int, ...]) -> Iterator[Job]:
    num_elements = leaf.num_elements
    size = max(leaf.num_bytes // max(num_elements, 1), 1)
    step = max(PIECE // size, 1)
    for begin in range(0, num_elements, step):
        end = min(begin + step, num_elements)
        yield source, targets, (name, begin, end), (end - begin) * size


def _batches(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Small leaves together, large ones piece by piece: a call each would take longer than the comparison."""
    batch: list[Job] = []
    for job in jobs:
        if batch and (job[:2] != batch[0][:2] or sum(each[3] for each in batch) + job[3] > PIECE):
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch
