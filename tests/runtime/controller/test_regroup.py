"""Whether ranks are in step, purely. What regrouping does to process groups: `tests/kernel/recovery/test_stuck.py`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.controller.regroup import out_of_step, shared

Counts = st.dictionaries(st.sampled_from(["world", "dp", "tp"]), st.integers(0, 5))


@given(st.lists(Counts, max_size=4), Counts)
def test_ranks_are_in_step_when_no_group_disagrees(others: list[dict[str, int]], one: dict[str, int]):
    same = dict.fromkeys(range(3), one)
    assert not out_of_step(same)
    all_of_them = dict(enumerate([*others, one]))
    names = {name for own in all_of_them.values() for name in own}
    disagree = any(len({own[name] for own in all_of_them.values() if name in own}) > 1 for name in names)
    assert out_of_step(all_of_them) == disagree


Members = st.dictionaries(st.sampled_from(["0", "a", "b"]), st.sets(st.integers(0, 3), min_size=1).map(tuple))


@given(Members, st.sets(st.tuples(st.integers(0, 3), st.sampled_from(["0", "a", "b"]))))
def test_a_group_is_shared_when_all_its_ranks_have_it(groups: dict[str, tuple[int, ...]], lacks: set[tuple[int, str]]):
    told = {
        rank: {name: ranks for name, ranks in groups.items() if rank in ranks and (rank, name) not in lacks}
        for rank in range(4)
    }
    assert shared(told) == {name for name, ranks in groups.items() if not any((rank, name) in lacks for rank in ranks)}
