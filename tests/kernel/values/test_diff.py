"""Comparing the values of ranks that are objects of this process: all steps but the way over the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate, Shard

from meshbook.kernel.values import diff as diff_module
from meshbook.kernel.values import kept as kept_module
from meshbook.kernel.values.diff import compare
from meshbook.kernel.values.difference import Comparison
from meshbook.kernel.values.kept import Kept
from meshbook.kernel.values.measure import Tolerance


class Ranks:
    """Holds a value a rank, and counts the bytes that go from one to another."""

    def __init__(self, values: Sequence[object]) -> None:
        self.kept = {rank: Kept(value) for rank, value in enumerate(values)}
        self.steps: list[str] = []
        self.largest = 0

    def __call__(self, ranks: Sequence[int], step: str, /, *args: Any) -> Mapping[int, Any]:
        self.steps.append(step)
        found = {rank: getattr(self.kept[rank], step)(*args) for rank in ranks}
        if step == "pieces":
            self.largest = max(self.largest, *(sum(piece.nbytes for piece in told) for told in found.values()))
        return found


def compared(*values: object, max_bytes: int = 1 << 30, **tolerance: float) -> Comparison:
    return compare(Ranks(values), range(len(values)), Tolerance(**tolerance), max_bytes)


def lines(*values: object, **options: Any) -> list[str]:
    return repr(compared(*values, **options)).splitlines()


def test_equal_values_exchange_digests_only() -> None:
    ranks = Ranks([{"x": torch.ones(1000)}] * 4)
    found = compare(ranks, range(4), Tolerance(), 1 << 30)
    assert (ranks.steps, found.is_equal, found.groups) == (["summary"], True, [(0, 1, 2, 3)])
    assert repr(found) == "ranks 0-3 are equal   dict"


def test_only_what_differs_is_measured_against_the_majority() -> None:
    values = [{f"p{i}": torch.full((4, 4), float(i)) for i in range(9)} for _ in range(4)]
    values[0]["p3"][1, 2] += 0.5
    values[2]["p7"] = torch.zeros(3)
    del values[3]["p8"]
    assert lines(*values) == [
        "ranks 0-3 all differ   dict, 3 of 9 leaves differ",
        "≠ p3  float32 [4, 4]  rank 0  1 of 16 differ by up to 0.5 (0.14 relative), first at [1, 2]",
        "≠ p7  float32 [4, 4]  rank 2  float32 [3] instead of float32 [4, 4]",
        "≠ p8  float32 [4, 4]  rank 3  missing",
    ]


def test_of_very_many_ranks_it_is_told_in_a_few_lines_how_far_they_are_apart() -> None:
    values = [{"w": torch.full((2, 2), 99.0 if rank == 9 else 1 + rank / 64), "b": 1.0} for rank in range(20)]
    assert lines(*values) == [
        "ranks 0-19 all differ   dict, 1 of 2 leaves differ",
        "≠ w  float32 [2, 2]  ranks 1-8,10-19  4 of 4 differ by up to 0.01562…0.2969 (0.015…0.23 relative), "
        "first at [0, 0]",
        "≠ w  float32 [2, 2]  rank 9           4 of 4 differ by up to 98 (0.99 relative), first at [0, 0]",
        "a…b: from the least to the most of what ranks have; `.rows` has all 19 lines",
    ]
    assert len(compared(*values).rows) == 19


def test_the_tolerance_and_what_is_left_of_it() -> None:
    values = [
        {"x": torch.tensor([1.0, 2.0]), "y": torch.tensor(5.0)},
        {"x": torch.tensor([1.0, 2.1]), "y": torch.tensor(6.0)},
    ]
    found = compared(*values, rtol=0.1)
    assert [leaf.name for leaf in found.leaves] == ["y"]
    assert found.remarks == ["1 more is equal within rtol=0.1"]
    assert compared(*values, rtol=0.2).is_equal
    assert compared(torch.tensor(0.0), torch.tensor(-0.0)).is_equal


def test_forms() -> None:
    assert lines(torch.ones(2), torch.ones(2, dtype=torch.float64))[1:] == ["≠ rank 1  float64 instead of float32"]
    assert lines(1.0, 2.0)[1:] == ["≠ rank 1  2.0 instead of 1.0, by 1 (0.5 relative)"]
    assert lines("a", "b", "b") == ["rank 0 differs from ranks 1-2   str", "≠ rank 0  'a' instead of 'b'"]
    assert lines(1, "1")[1:] == ["≠ rank 1  str '1' instead of int 1"]
    assert lines({"a": 1}, {"a": 1, "b": 2})[1:] == ["≠ b  missing  rank 1  only here: 2"]
    nan = torch.tensor([1.0, float("nan")])
    assert lines(torch.ones(2), nan)[1:] == ["≠ rank 1  1 of 2 differ, first at [1], 1 NaN instead of 0"]


def test_large_leaves_travel_in_pieces_and_no_more_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_module, "PIECE", 400)
    one, other = torch.arange(1000.0), torch.arange(1000.0)
    other[777] = 0
    ranks = Ranks([{"a": one, "b": torch.zeros(30)}, {"a": other, "b": torch.ones(30)}])
    found = compare(ranks, range(2), Tolerance(), 1 << 30)
    assert ranks.largest <= 400 and ranks.steps.count("pieces") > 10
    apart = found.leaves[0].groups[1].apart
    assert apart is not None and (apart.num_elements, apart.first, apart.largest) == (1000, 777, 777.0)
    told = repr(compare(Ranks([{"a": one}, {"a": other}]), range(2), Tolerance(), 2000))
    assert "differs, not measured: it is over 2 KB: --max-bytes" in told


def test_of_very_many_leaves_the_first_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MOST", 5)
    values = [[[rank + i] for i in range(20)] for rank in range(3)]
    found = compared(*values)
    assert [leaf.name for leaf in found.leaves] == [f"{i}.0" for i in range(5)]
    assert found.num_left_out == 15 and "15 more leaves differ" in repr(found)
    assert found.data()["num_left_out"] == 15


def test_data() -> None:
    data = compared(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]), torch.tensor([1.0, 2.0])).data()
    assert data["groups"] == [[0, 2], [1]]
    usual, odd = data["leaves"][0]["groups"]
    assert usual == {"ranks": [0, 2], "type": "Tensor", "shape": [2], "dtype": "float32", "text": ""}
    assert (odd["first"], odd["largest"], odd["relative"], odd["num_differing"]) == (1, 2.0, 0.5, 1)


trees = st.dictionaries(
    st.sampled_from("abc"),
    st.sampled_from([0.0, 1.0, 1.25]) | st.just("x") | st.lists(st.sampled_from([0.0, 1.0]), min_size=8, max_size=8),
    max_size=3,
)


@settings(deadline=None)
@given(st.lists(trees, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_ranks_are_in_one_group_where_their_values_are_equal(values: list[dict[str, Any]], random: Any) -> None:
    found = compared(*values)
    together = {(a, b) for ranks in found.groups for a in ranks for b in ranks}
    same = {(a, b) for a, x in enumerate(values) for b, y in enumerate(values) if x == y}
    assert together == same
    order = list(range(len(values)))
    random.shuffle(order)
    again = compared(*(values[place] for place in order))
    assert {leaf.name for leaf in again.leaves} == {leaf.name for leaf in found.leaves}
    assert sorted(map(len, again.groups)) == sorted(map(len, found.groups))


class Mesh2:
    """The places of one rank on two axes, as a `DeviceMesh` tells them."""

    mesh_dim_names = ("dp", "tp")
    ndim = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def get_coordinate(self) -> list[int]:
        return list(divmod(self.rank, 2))


class Spread(torch.Tensor):
    """A distributed tensor: `placements` says how, `local` is the part of its rank."""

    local: torch.Tensor
    placements: tuple[Any, ...]
    device_mesh: Mesh2

    def to_local(self) -> torch.Tensor:
        return self.local


def spread(rank: int, local: torch.Tensor, *placements: Any) -> Spread:
    made = torch.zeros(4).as_subclass(Spread)
    made.local, made.placements, made.device_mesh = local, placements, Mesh2(rank)
    return made


def model_on(rank: int) -> dict[str, object]:
    """A weight that is spread over both axes, one over tp, and a norm that all have."""
    tp = rank % 2
    return {
        "both": spread(rank, torch.full((2,), float(rank)), Shard(0), Shard(1)),
        "tp": spread(rank, torch.full((2,), float(tp)), Replicate(), Shard(0)),
        "norm": spread(rank, torch.ones(2), Replicate(), Replicate()),
        "step": 3,
    }


def test_parts_of_a_distributed_model_are_compared_where_they_are_the_same() -> None:
    values = [model_on(rank) for rank in range(4)]
    assert lines(*values) == [
        "ranks 0-3 agree   dict, 4 leaves, 32 B",
        "1 leaf is distributed, and was compared between ranks that hold the same part",
        "1 leaf is distributed, and was not compared: each rank has another part",
    ]
    values[3]["tp"].local[1] += 0.5  # type: ignore[attr-defined]
    values[2]["norm"].local[0] += 0.25  # type: ignore[attr-defined]
    assert lines(*values) == [
        "ranks 2-3 differ from ranks 0-1   dict, 2 of 4 leaves differ",
        "≠ tp (tp 1)  float32 [2]  rank 3  1 of 2 differ by up to 0.5 (0.33 relative), first at [1]",
        "≠ norm       float32 [2]  rank 2  1 of 2 differ by up to 0.25 (0.2 relative), first at [0]",
        "1 leaf is distributed, and was compared between ranks that hold the same part",
        "1 leaf is distributed, and was not compared: each rank has another part",
    ]
    del values[3]["both"]
    assert "≠ both (dp 0, tp 0)  float32 [2]  rank 3  missing" in lines(*values)
    for rank in (2, 3):
        values[rank]["tp"].local.add_(1)  # type: ignore[attr-defined]
    assert "3 of 4 leaves differ" in lines(*values)[0]  # of one of them both parts do


def test_where_no_two_ranks_have_the_same_part_nothing_is_said_to_agree() -> None:
    def shards(num_ranks: int) -> list[object]:
        return [{"w": spread(rank, torch.ones(2), Shard(0), Shard(1))} for rank in range(num_ranks)]

    assert lines(*shards(2)) == ["nothing to compare: each of ranks 0-1 has another part   dict"]
    assert lines(*shards(4), shards(1)[0])[0] == "ranks 0-4 agree   dict"
    assert lines(*shards(1)) == ["rank 0 alone   dict"]


def test_however_many_leaves_are_spread_those_that_differ_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MOST", 1)
    values = [
        {f"p{n}": spread(rank, torch.full((2,), rank + n), Shard(0), Shard(1)) for n in range(9)} for rank in (0, 1)
    ]
    for rank in (0, 1):
        values[rank]["own"] = torch.tensor([float(rank)])  # type: ignore[assignment]
    found = compared(*values)
    assert ([leaf.name for leaf in found.leaves], found.num_left_out) == (["own"], 0)
