from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.magics.selector import parse_selector
from meshbook.magics.terms import SelectorError

GRID = {"dp": 2, "tp": 4}
HOSTS = ["node0"] * 4 + ["node1"] * 4


def ranks(text: str, **known: Any) -> tuple[int, ...]:
    return parse_selector(text).resolve(GRID, **known)


def refusal(text: str, **known: Any) -> str:
    with pytest.raises(SelectorError) as caught:
        ranks(text, **known)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", range(8)),
        ("all", range(8)),
        ("dp=:", range(8)),
        ("0", [0]),
        ("-1", [7]),
        ("0,3", [0, 3]),
        ("3 0", [0, 3]),
        ("(0,3)", [0, 3]),
        ("0-3", range(4)),
        ("dp=0-1,tp=1-2", [1, 2, 5, 6]),
        ("rank=(0,2-3,5-7)", [0, 2, 3, 5, 6, 7]),
        ("!(0-2,7)", [3, 4, 5, 6]),
        ("!1-6", [0, 7]),
        ("::2", [0, 2, 4, 6]),
        ("!0", range(1, 8)),
        ("!0,!7", range(1, 7)),
        ("dp=0", range(4)),
        ("dp = 1", range(4, 8)),
        ("dp=0,tp=:", range(4)),
        ("dp=0 tp=1:3", [1, 2]),
        ("dp=-1 , tp=( 0, 2 )", [4, 6]),
        ("tp=0,dp=1", [4]),
        ("tp=!0", [1, 2, 3, 5, 6, 7]),
        ("tp=!(0,1)", [2, 3, 6, 7]),
        ("tp=1:99", [1, 2, 3, 5, 6, 7]),
        ("tp=::-2", [1, 3, 5, 7]),
        ("rank=::2", [0, 2, 4, 6]),
        ("rank=(5,1)", [1, 5]),
        ("rank=2:6,dp=0", [2, 3]),
        ("'dp=0, tp=1'", [1]),
        ('dp="1"', range(4, 8)),
    ],
)
def test_a_selector_means_these_ranks(text: str, expected: list[int]):
    assert ranks(text) == tuple(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host=node1", range(4, 8)),
        ("host=0", range(4)),
        ("host=!node1", range(4)),
        ("host=(node0,node1),tp=0", [0, 4]),
        ("local_rank=0", [0, 4]),
        ("local_rank=-1", [3, 7]),
    ],
)
def test_hosts_have_names_and_numbers(text: str, expected: list[int]):
    assert ranks(text, hosts=HOSTS) == tuple(expected)


def test_host_names_may_hold_dots_and_dashes():
    assert parse_selector("host=gpu-7.cluster").resolve({"dp": 2}, hosts=["a", "gpu-7.cluster"]) == (1,)
    assert parse_selector("host=10.0.0.2").resolve({"dp": 2}, hosts=["10.0.0.1", "10.0.0.2"]) == (1,)


STATES = {1: "failed", 2: "stuck", 3: "dead", 5: "failed", 6: "busy"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@failed", [1, 5]),
        ("@failed,dp=0", [1]),
        ("@stuck", [2]),
        ("@busy", [2, 6]),
        ("@failed @stuck", [1, 2, 5]),
        ("@alive", [0, 1, 2, 4, 5, 6, 7]),
        ("@dead", [3]),
        ("@dead,@failed", [1, 3, 5]),
        ("@first", [0]),
        ("dp=1,@first", [4]),
        ("@first @failed", [1]),
    ],
)
def test_states_choose_ranks(text: str, expected: list[int]):
    assert ranks(text, states=STATES) == tuple(expected)


@pytest.mark.parametrize("text", ["", "all", "dp=0", "tp=3", "tp=2:", "rank=2:4", "2-4", "rank=!0", "@alive,3,0"])
def test_dead_ranks_are_skipped(text: str):
    assert 3 not in ranks(text, states={3: "dead"})


@pytest.mark.parametrize("text", ["3", "rank=3", "rank=(0,3)", "dp=0,tp=3", "dp=0,tp=-1", "@dead", "dp=0,@dead"])
def test_dead_ranks_are_kept_where_they_are_named(text: str):
    assert 3 in ranks(text, states={3: "dead"})


def test_an_axis_of_size_one_need_not_be_named():
    axes, states = {"dp": 1, "tp": 2}, {0: "dead"}
    assert parse_selector("tp=0").resolve(axes, states) == (0,)
    with pytest.raises(SelectorError, match="every rank is dead"):
        parse_selector("").resolve({"dp": 1}, states)


def test_the_rest_is_dead():
    message = refusal("dp=0", states=dict.fromkeys(range(4), "dead"))
    assert message.startswith("every rank of 'dp=0' is dead (ranks 0-3)")
    assert "%mesh restart @dead" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dp=0,tq=1", "no axis 'tq' in this mesh (dp=2, tp=4) at column 6: did you mean 'tp'?"),
        ("zz=1", "no axis 'zz' in this mesh (dp=2, tp=4) at column 1: there are also rank, host, local_rank"),
        ("dp=5", "dp=5 is out of range at column 4: dp is 0 to 1 in this mesh (dp=2, tp=4)"),
        ("dp=-3", "dp=-3 is out of range at column 4: dp is 0 to 1 in this mesh (dp=2, tp=4)"),
        ("9", "rank=9 is out of range at column 1: rank is 0 to 7 in this mesh (dp=2, tp=4)"),
        ("tp=!4", "tp=4 is out of range at column 4: tp is 0 to 3 in this mesh (dp=2, tp=4)"),
        ("dp=2:", "'dp=2:' selects nothing at column 4: dp is 0 to 1 in this mesh (dp=2, tp=4)"),
        ("dp=0,rank=7", "no rank of this mesh (dp=2, tp=4) is in every term of 'dp=0,rank=7'"),
        (
            "tp=0,3",
            "no rank of this mesh (dp=2, tp=4) is in every term of 'tp=0,3': "
            "several indices of one axis are written tp=(0,3)",
        ),
        ("tp=2-4", "tp=4 is out of range at column 4: tp is 0 to 3 in this mesh (dp=2, tp=4)"),
        ("(0,6-9)", "rank=8 is out of range at column 1: rank is 0 to 7 in this mesh (dp=2, tp=4)"),
        ("@failed", "no rank is failed now (mesh dp=2, tp=4): @failed are those on which the last cell failed"),
        ("dp=0 @dead", "no rank is dead now in 'dp=0 @dead' (mesh dp=2, tp=4)"),
        ("host=a", "no host names are known for this mesh (dp=2, tp=4) at column 1"),
    ],
)
def test_a_refusal_names_what_would_have_been_right(text: str, expected: str):
    assert refusal(text) == expected


def test_an_unknown_host_is_refused_with_the_known():
    expected = "no host 'nod1' (there are node0, node1) at column 6: did you mean 'node1'?"
    assert refusal("host=nod1", hosts=HOSTS) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dp=0,tp", "'tp' has no index at column 6: write tp=0, or 'all' for every rank"),
        ("failed", "'failed' is a state at column 1: write @failed"),
        ("@faild", "at column 1: did you mean '@failed'?"),
        ("@", "no state '@'"),
        ("dp=", "expected an index at column 4"),
        ("dp=abc", "expected an index at column 4"),
        ("host=", "expected a host name"),
        ("dp=0,,tp=1", "a term is missing after the comma at column 5"),
        ("dp=0, ", "a term is missing after the comma at column 5"),
        (",dp=0", "expected an index at column 1"),
        ("dp=0tp=1", "expected a comma or a space at column 5"),
        ("dp=(0", "expected a comma or ')' at column 6"),
        ("dp=(0:1)", "expected a comma or ')' at column 6"),
        ("dp=()", "expected an index at column 5"),
        ("3-1", "'3-1' is no range at column 1: write the smaller number first, such as 0-3"),
        ("tp=(0,2-2)", "'2-2' is no range at column 7"),
        ("0-99999999", "'0-99999999' is no range at column 1"),
        ("0-", "expected a comma or a space at column 2"),
        ("tp=::0", "a slice cannot have step 0 at column 4"),
        ("[0,2]", "square brackets at column 1: write (0,2) for [0,2]"),
        ("tp=1,tp=2", "axis 'tp' is given twice at column 6: write it once, such as tp=(0,1)"),
        ("dp=0 'tp=1", "the quote at column 6 is not closed"),
    ],
)
def test_a_mistake_is_told_with_its_column(text: str, expected: str):
    assert expected in refusal(text)


def test_nothing_is_evaluated():
    assert "'__import__' has no index" in refusal("__import__('os')")


def integers(size: int) -> st.SearchStrategy[tuple[str, object]]:
    return st.integers(-size, size - 1).map(lambda i: (str(i), [i]))


def slices(size: int) -> st.SearchStrategy[tuple[str, object]]:
    edge = st.none() | st.integers(-size - 2, size + 2)
    step = st.none() | st.integers(-3, 3).filter(bool)

    def spell(start: int | None, stop: int | None, step: int | None) -> tuple[str, object]:
        parts = ["" if part is None else str(part) for part in (start, stop, step)]
        return ":".join(parts if step is not None else parts[:2]), slice(start, stop, step)

    return st.builds(spell, edge, edge, step)


def tuples(size: int) -> st.SearchStrategy[tuple[str, object]]:
    several = st.lists(st.integers(-size, size - 1), min_size=1, max_size=4)
    return several.map(lambda picks: (f"({', '.join(map(str, picks))})", picks))


def exceptions(size: int) -> st.SearchStrategy[tuple[str, object]]:
    return st.integers(0, size - 1).map(lambda i: (f"!{i}", [j for j in range(size) if j != i]))


def kept(index: object, size: int) -> list[int]:
    return sorted(set(np.arange(size)[index].tolist()))  # pyright: ignore


@given(st.data())
def test_rectangles_are_those_of_numpy(data: st.DataObject):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axes = {f"axis{place}": size for place, size in enumerate(sizes)}
    named = data.draw(st.lists(st.sampled_from(list(axes)), unique=True))
    kinds = st.sampled_from([integers, slices, tuples, exceptions])
    drawn = {axis: data.draw(data.draw(kinds)(axes[axis])) for axis in named}
    text = data.draw(st.sampled_from([",", " ", " , "])).join(f"{axis}={drawn[axis][0]}" for axis in named)
    indices = [kept(drawn[axis][1], size) if axis in drawn else list(range(size)) for axis, size in axes.items()]
    expected = np.arange(np.prod(sizes)).reshape(sizes)[np.ix_(*indices)].ravel().tolist()

    if not expected:
        with pytest.raises(SelectorError, match="selects nothing"):
            parse_selector(text).resolve(axes)
        return
    assert parse_selector(text).resolve(axes) == tuple(expected)


@given(st.text(alphabet="dtp=01-:,()!@ allhostfir'\"[]", max_size=14))
def test_any_text_is_read_or_refused_in_one_line(text: str):
    try:
        found = parse_selector(text).resolve(GRID, hosts=HOSTS)
    except SelectorError as error:
        assert "\n" not in str(error)
    else:
        assert list(found) == sorted(set(found)) != []
