"""Results: values are found by place and decoded once; the odd one stands out."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.outcome import Failure, Outcome, Value
from meshbook.kernel.values.results import MeshResult, StayedValue
from meshbook.runtime.errors import ActorError, SupervisionError

AXES = {"dp": 2, "tp": 2}
BOOM = Failure("ValueError", "loss is nan", (), "Traceback ...", pickle.dumps(ValueError("loss is nan")))


def seen(value: object, *, data: bytes | None = None, **facts: object) -> Outcome:
    """The outcome of a cell that ended in `value`."""
    pickled = pickle.dumps(value) if data is None else data
    return Outcome(Value(type(value).__name__, repr(value), pickled=pickled, **facts))  # type: ignore[arg-type]


def word(rank: int) -> str:
    """Another one for each rank: those that differ in numbers alone are told as one."""
    return "abcdefghij"[rank % 10] * (1 + rank // 10)


def result(
    outcomes: Mapping[int, Outcome],
    lost: Mapping[int, str] | None = None,
    axes: Mapping[str, int] = AXES,
    decode: Callable[[bytes], object] = pickle.loads,
) -> MeshResult:
    encoded = {rank: msgspec.msgpack.encode(outcome) for rank, outcome in outcomes.items()}
    ranks = sorted([*outcomes, *(lost or ())])
    return MeshResult(axes, ranks, encoded, dict.fromkeys(outcomes, 0.01), lost or {}, decode)


def each(*values: object) -> MeshResult:
    return result({rank: seen(value) for rank, value in enumerate(values)})


def test_values_are_found_by_rank_by_point_and_by_slice() -> None:
    r = each("a", "b", "c", "d")
    assert (r[2], r[{"dp": 0, "tp": 1}], r.sel(dp=1).values()) == ("c", "b", ["c", "d"])
    assert r.sel(tp=slice(1, None)).ranks == (1, 3)
    assert r.sel(dp=-1, tp=0).item() == "c"
    assert r.sel(rank=(0, 3)).values() == ["a", "d"]
    assert [(dict(point), value) for point, value in r.sel(tp=1)] == [
        ({"dp": 0, "tp": 1}, "b"),
        ({"dp": 1, "tp": 1}, "d"),
    ]


@given(st.slices(4), st.slices(3))
def test_slices_pick_what_numpy_picks(dp: slice, tp: slice) -> None:
    r = result({rank: seen(rank) for rank in range(12)}, axes={"dp": 4, "tp": 3})
    wanted = set(np.arange(12).reshape(4, 3)[dp, tp].flatten().tolist())
    if wanted:
        assert set(r.sel(dp=dp, tp=tp).ranks) == wanted
    else:
        with pytest.raises(IndexError, match="took no part"):
            r.sel(dp=dp, tp=tp)


def test_a_wrong_place_is_answered_with_the_right_ones() -> None:
    r = each("a", "b", "c", "d")
    with pytest.raises(KeyError, match="no axis 'pp': there are dp, tp, rank"):
        r.sel(pp=0)
    with pytest.raises(IndexError, match=r"dp=2 is out of range: dp has size 2 \(0..1\)"):
        r.sel(dp=2)
    with pytest.raises(IndexError, match=r"rank 9 is not in this result: it is of ranks 0-3"):
        r[9]
    with pytest.raises(IndexError, match="dp=0 took no part: this result is of ranks 2-3"):
        r.sel(dp=1).sel(dp=0)
    with pytest.raises(KeyError, match="name every axis"):
        r[{"dp": 0}]
    with pytest.raises(ValueError, match=r"has 4 \(0-3\)"):
        r.item()


def test_equal_values_are_decoded_once_and_only_when_asked_for() -> None:
    decoded: list[bytes] = []

    def decode(data: bytes) -> object:
        decoded.append(data)
        return pickle.loads(data)

    r = result({rank: seen([rank % 2]) for rank in range(4)}, decode=decode)
    assert repr(r) and r.ok and decoded == []
    assert r.values() == [[0], [1], [0], [1]] and r.sel(dp=1).values() == [[0], [1]]
    assert len(decoded) == 2


def test_the_value_of_a_rank_that_failed_is_its_error() -> None:
    r = result({0: seen(1), 1: Outcome(failure=BOOM)}, {2: "died: SIGKILL, pid 123"})
    assert (r.ok, r.failed, r[0]) == (False, (1, 2), 1)
    with pytest.raises(ValueError, match=r"rank 1 \(dp=0,tp=1\): ValueError: loss is nan") as info:
        r[1]
    assert isinstance(info.value, ActorError) and info.value.exception_formatted == "Traceback ..."
    with pytest.raises(SupervisionError, match="SIGKILL, pid 123"):
        r[2]
    assert list(r.errors) == [1, 2] and r.lost == {2: "died: SIGKILL, pid 123"}
    assert r.failures == {1: BOOM}


def test_an_error_whose_class_only_the_rank_knows_is_still_told() -> None:
    r = result({0: Outcome(failure=Failure("Odd", "no", (), "remote tb", b"not a pickle"))})
    with pytest.raises(ActorError, match="Odd: no"):
        r[0]


def test_a_cell_that_ended_in_a_statement_has_no_values() -> None:
    r = result({0: Outcome(), 1: Outcome()})
    assert r.values() == [None, None] and not r.has_values
    assert repr(r) == "done   ranks 0-1   0.01 s"
    assert each(1, 2).has_values


def test_a_value_that_stayed_says_where_why_and_how_to_get_it() -> None:
    value = Value("Tensor", "tensor(...)", {}, (1024, 1024), "torch.float32", "cuda:0", 4 << 20, None, "too large")
    r = result({0: seen(1), 1: Outcome(value)})
    assert isinstance(r[1], StayedValue)
    assert repr(r[1]) == (
        "<Tensor float32 [1024, 1024] cuda:0, stayed on rank 1: too large; "
        "get it by %mesh pull NAME --max-bytes 4194304>"
    )
    with pytest.raises(ValueError, match="cannot stack what is not here"):
        r.stack()


def test_stack_has_the_shape_of_the_mesh_when_all_of_it_took_part() -> None:
    r = each(*[np.full(3, rank) for rank in range(4)])
    assert r.stack().shape == (2, 2, 3) and r.stack()[1, 0, 0] == 2
    assert r.sel(dp=1).stack().shape == (2, 3)
    assert each(1.0, 2.0, 3.0, 4.0).stack().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert np.array(each(1.0, 2.0, 3.0, 4.0), dtype=int).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="leave copy=False out"):
        each(1.0, 2.0, 3.0, 4.0).__array__(copy=False)
    with pytest.raises(ValueError, match=r"\[3\] on ranks 0-1,3, \[4\] on rank 2"):
        each(*[np.zeros(4 if rank == 2 else 3) for rank in range(4)]).stack()


@pytest.mark.slow
def test_stack_of_tensors_is_a_tensor() -> None:
    torch = pytest.importorskip("torch")
    stacked = each(*[torch.tensor(float(rank)) for rank in range(4)]).stack()
    assert isinstance(stacked, torch.Tensor) and stacked.tolist() == [[0.0, 1.0], [2.0, 3.0]]


@pytest.mark.slow
def test_to_pandas_has_a_row_for_every_rank() -> None:
    r = result({0: seen(1.5), 1: seen([1, 2]), 2: Outcome(failure=BOOM)}, {3: "died"})
    frame = r.to_pandas()
    assert list(frame.columns) == ["rank", "dp", "tp", "value", "seconds", "error"]
    assert frame["value"].tolist()[:2] == [1.5, "[1, 2]"]
    assert frame["error"].tolist()[2:] == ["ValueError: loss is nan", "died"]
    assert frame["tp"].tolist() == [0, 1, 0, 1]


def test_equal_ranks_are_one_line_of_text() -> None:
    r = result({rank: seen(6, shape=(2,), dtype="torch.float32") for rank in range(4)})
    assert repr(r) == "6   ranks 0-3   float32 [2]   0.01 s"


def test_objects_of_one_kind_are_one_line_wherever_they_are_in_memory() -> None:
    def held(address: int, name: str = "Net") -> Outcome:
        text = f"[<{name} object at {address:#x}>, 1]"
        return Outcome(Value("list", text, {"text/html": text.replace("<", "&lt;").replace(">", "&gt;")}))

    same = {rank: held(0x7F8DD36C6E50 + 16 * (rank % 2)) for rank in range(3)}
    made = result({**same, 3: held(0x55AA00, "Other")})
    rows = made.rows()
    assert [(row.ranks, row.is_odd) for row in rows] == [((0, 1, 2), False), ((3,), True)]
    assert rows[0].value is not None and rows[0].value.text == "[<Net object at 0x…>, 1]"
    assert rows[0].value.mime["text/html"] == "[&lt;Net object at 0x…&gt;, 1]"
    assert "<Other object at 0x55aa00>" in made.text()


def test_values_that_cannot_travel_are_one_line_wherever_what_is_in_their_way_is_in_memory() -> None:
    kept = [Outcome(Value("Op", "<Op add>", stayed=f"cannot pickle: <op at {n:#x}>")) for n in (0xABCDE0, 0xABCDF0)]
    assert len(result(dict(enumerate(kept)), axes={"dp": 2}).rows()) == 1


def test_failures_that_differ_by_an_address_are_one_line() -> None:
    failed = [
        Outcome(failure=Failure("TypeError", f"<Net at {n:#x}> is no layer", (), "")) for n in (0xABCDE0, 0xABCDF0)
    ]
    assert len(result(dict(enumerate(failed)), axes={"dp": 2}).rows()) == 1


def test_texts_that_name_addresses_are_what_they_say() -> None:
    assert len(each("at 0x7f8dd36c6e50 ", "at 0x7f8dd36c6f10 ", "a", "a").rows()) == 3


def test_the_odd_one_out_is_marked_without_colour() -> None:
    r = result({0: seen(0.5), 1: seen(0.5), 2: seen(0.5), 3: seen(0.25)})
    assert repr(r).splitlines() == [
        "  0.5    ranks 0-2 (dp=0,tp=0-1 · dp=1,tp=0)   0.01 s",
        "≠ 0.25   rank 3 (dp=1,tp=1)   Δ -0.25   0.01 s",
    ]
    assert not any(row.is_odd for row in each(1, 2, 1, 2).rows())


def test_numbers_that_look_equal_and_are_not_are_noted() -> None:
    r = result({rank: seen(0.5, dtype="float64", data=b"%d" % rank) for rank in range(4)})
    assert repr(r).endswith("differ in what is not shown") and len(r.rows()) == 1


@pytest.mark.parametrize(("kind", "differs"), [("Tensor", True), ("DTensor", False)])
def test_pickles_of_tensors_of_subclasses_may_differ(kind: str, differs: bool) -> None:
    values = {rank: Value(kind, "ones", dtype="torch.float32", pickled=b"%d" % rank) for rank in range(4)}
    r = result({rank: Outcome(value) for rank, value in values.items()})
    assert ("differ in what is not shown" in repr(r)) is differs
    assert len(r.rows()) == 1


def test_by_rank_has_a_row_for_every_rank() -> None:
    r = each(1, 1, 1, 2)
    assert [row.ranks for row in r.rows()] == [(0, 1, 2), (3,)]
    assert [(row.ranks, row.is_odd) for row in r.by_rank().rows()] == [((r,), r == 3) for r in range(4)]


def test_very_many_numbers_are_seen_at_a_glance_with_the_one_that_lies_apart() -> None:
    values = [2.0 + rank / 1000 if rank != 37 else 7.07 for rank in range(64)]
    r = result({rank: seen(value) for rank, value in enumerate(values)} | {5: Outcome(failure=BOOM)}, axes={"dp": 64})
    assert repr(r).splitlines() == [
        "  2.0…2.063                 ranks 0-4,6-36,38-63   0.01 s   least: rank 0, most: rank 63",
        "✗ ValueError: loss is nan   rank 5   0.01 s",
        "≠ 7.07                      rank 37   Δ +5.04   0.01 s",
        "… all 64 rows: result.by_rank()",
    ]
    assert len(r.rows()) == 64 == len(r.by_rank().rows(at_a_glance=True))
    assert r.rows(at_a_glance=True)[0].away == "-0.032…+0.031"


def test_few_numbers_have_each_its_row_and_the_one_that_lies_apart_is_marked() -> None:
    values = [2.0 + rank / 1000 if rank != 3 else 7.07 for rank in range(8)]
    rows = result({rank: seen(value) for rank, value in enumerate(values)}, axes={"dp": 8}).rows(at_a_glance=True)
    assert [row.is_odd for row in rows] == [rank == 3 for rank in range(8)]
    assert not any(row.is_odd for row in each(1.0, 1.1, 9.0).rows())


def test_of_very_many_rows_the_failed_and_odd_ones_are_kept() -> None:
    outcomes = {rank: seen(word(rank)) for rank in range(200)} | {150: Outcome(failure=BOOM)}
    text = repr(result(outcomes, axes={"dp": 200}))
    assert "✗ ValueError: loss is nan   rank 150" in text and "… 160 more rows" in text
    assert len(text.splitlines()) == 41


@pytest.mark.parametrize(("num_ranks", "num_lines"), [(1, 100), (8, 20), (64, 4)])
def test_of_long_values_the_text_shows_the_top(num_ranks: int, num_lines: int) -> None:
    def value(rank: int) -> Outcome:
        return Outcome(Value("Config", "\n".join(f"line {line} of {word(rank)}" for line in range(100))))

    lines = repr(result({rank: value(rank) for rank in range(num_ranks)}, axes={"rank": num_ranks})).splitlines()
    assert lines[1] == "  line 0 of a"
    assert lines[num_lines] == (f"  … {101 - num_lines} more lines" if num_lines < 100 else "  line 99 of a")
    assert len(lines) <= 41 * (num_lines + 1)


def test_html_is_made_by_whoever_can() -> None:
    encoded = {0: msgspec.msgpack.encode(seen(1))}
    r = MeshResult({"dp": 1}, [0], encoded, {}, {}, pickle.loads, lambda r: f"<b>{len(r)}</b>")
    assert r._repr_mimebundle_() == {"text/plain": "1   rank 0", "text/html": "<b>1</b>"}
    assert each(1)._repr_mimebundle_() == {"text/plain": "1   rank 0   0.01 s"}


def test_a_number_that_is_none_is_odd_though_no_two_ranks_agree() -> None:
    assert [row.is_odd for row in each(0.1, 0.2, float("nan"), 0.4).rows()] == [False, False, True, False]
    assert [row.is_odd for row in each(0.1, float("nan"), float("inf"), 0.4).rows()] == [False] * 4


def records(*values: Mapping[str, float], **others: Outcome) -> MeshResult:
    told = {rank: seen(value, record=value) for rank, value in enumerate(values)}
    return result(told | {int(rank[1:]): outcome for rank, outcome in others.items()}, axes={"dp": 4, "tp": 2})


def test_entries_of_records_are_columns() -> None:
    r = records({"loss": 0.25, "step": 1}, {"loss": 0.123456, "step": 10}, {"loss": 1e-7, "step": 1})
    assert repr(r).splitlines() == [
        "    loss  step",
        "    0.25     1   rank 0 (dp=0,tp=0)   0.01 s",
        "≠ 0.1235    10   rank 1 (dp=0,tp=1)   0.01 s",
        "   1e-07     1   rank 2 (dp=1,tp=0)   0.01 s",
    ]
    frame = r.to_pandas()
    assert list(frame.columns) == ["rank", "dp", "tp", "loss", "step", "seconds", "error"]
    assert list(frame["loss"]) == [0.25, 0.123456, 1e-7]


def test_an_entry_that_differs_from_what_most_have_is_odd() -> None:
    steps = [{"step": 100, "loss": loss} for loss in (0.1, 0.2, 0.3, 0.4, math.nan)]
    steps[1]["step"] = 99
    rows = records(*steps).rows()
    assert [row.odd_entries for row in rows] == [set(), {"step"}, set(), set(), {"loss"}]
    assert [row.is_odd for row in rows] == [False, True, False, False, True]
    none_usual = records(*({"step": rank, "loss": math.nan if rank < 3 else 1.0 / rank} for rank in range(4))).rows()
    assert [row.odd_entries for row in none_usual] == [set(), set(), set(), {"loss"}]


def test_failures_stand_beside_records() -> None:
    r = records({"rank": 0, "loss": 0.5}, {"rank": 1, "loss": 0.5}, r2=Outcome(failure=BOOM), r3=Outcome())
    head, first, *_ = repr(r).splitlines()
    assert head.split() == ["rank", "loss"] and first.split()[:4] == ["0", "0.5", "rank", "0"]
    assert "✗ ValueError: loss is nan   rank 2" in repr(r) and "done" in repr(r)
    frame = r.to_pandas()
    assert list(frame["value.rank"])[:2] == [0, 1] and frame["error"][2] == "ValueError: loss is nan"


def test_equal_records_are_one_line_as_any_values_are() -> None:
    r = records({"loss": 0.5, "step": 1}, {"loss": 0.5, "step": 1})
    assert repr(r).startswith("{'loss': 0.5, 'step': 1}   ranks 0-1")


def test_what_has_a_size_and_no_type_of_numbers_is_told_by_its_own_type() -> None:
    frame = Outcome(Value("DataFrame", "   a  b\n0  1  2", shape=(1, 2)))
    (row,) = result(dict.fromkeys(range(4), frame)).rows()
    assert row.facts == "DataFrame [1, 2]"
