"""Bars in step: those that move together are one group, a straggler and what says something else are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.output.in_step import APART, in_step


def bar(done: int, pace: str = "10.00it/s", total: int = 500, head: str = "epoch 1: ", rest: str = "]") -> str:
    return f"{head}{100 * done // total:3d}%|████      | {done}/{total} [00:01<00:09, {pace}{rest}"


BARS = st.builds(
    bar,
    st.integers(0, 500),
    st.sampled_from(["10.00it/s", " 2.50s/it", "0.00it/s", "?it/s", "3.00batch/s"]),
    head=st.sampled_from(["", "epoch 1: ", "epoch 2: "]),
    rest=st.sampled_from(["]", ", loss=0.1]"]),
)
TEXTS = st.lists(BARS | st.sampled_from(["Working...", "50%", "7it [00:01, 5.00it/s]", ""]), max_size=12)


@given(TEXTS)
def test_every_bar_is_in_one_group_and_the_last_leads_it(texts: list[str]) -> None:
    groups = in_step(texts)
    assert sorted(index for group in groups for index in group) == list(range(len(texts)))
    assert [min(group) for group in groups] == sorted(min(group) for group in groups)
    for group in groups:
        done = [int(texts[index].partition("/500")[0].rpartition(" ")[2]) for index in group if "/500" in texts[index]]
        assert done == sorted(done)


@pytest.mark.parametrize(
    ("texts", "groups"),
    [
        ([bar(9), bar(11), bar(10)], [[0, 2, 1]]),
        ([bar(9), bar(9 + int(APART * 10)), bar(10 + int(APART * 10))], [[0, 1], [2]]),  # seconds, not steps
        ([bar(9, "0.10it/s"), bar(10, "0.10it/s"), bar(11, "0.10it/s")], [[0, 1], [2]]),  # but one step always
        ([bar(9, " 2.31s/it"), bar(10, " 2.29s/it"), bar(11, " 2.29s/it")], [[0, 1], [2]]),
        ([bar(9), bar(9, head="epoch 2: ")], [[0], [1]]),
        ([bar(9), bar(9, total=400)], [[0], [1]]),
        ([bar(9), bar(9, rest=", loss=0.5]"), bar(9, rest=", loss=0.4]")], [[0], [1], [2]]),
        ([bar(9), bar(9, "10.00batch/s")], [[0], [1]]),
        (["7it [00:01, 5.00it/s]", "7it [00:02, 4.00it/s]", "8it [00:01, 5.00it/s]"], [[0, 1], [2]]),
    ],
)
def test_what_is_in_step(texts: list[str], groups: list[list[int]]) -> None:
    assert in_step(texts) == groups
