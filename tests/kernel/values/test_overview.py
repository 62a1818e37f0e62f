from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.outcome import Failure, Gist, Value
from meshbook.kernel.values.overview import MOST_ROWS, overview, strays
from meshbook.kernel.values.rows import Row, gist_text, table_text


def row(rank: int, text: str, **fields: Any) -> Row:
    try:
        numbers = (float(text),)
    except ValueError:
        numbers = ()
    value = Value("float", text, **fields)
    return Row((rank,), f"dp={rank}", value, None, None, None, False, numbers=numbers)


def told(rows: list[Row]) -> list[Row]:
    def of(ranks: tuple[int, ...]) -> Row:
        numbers = tuple(number for each in rows if each.ranks[0] in ranks for number in each.numbers)
        return Row(ranks, "", None, None, None, None, False, numbers=numbers)

    return overview(rows, of)


def texts(rows: list[Row]) -> list[tuple[tuple[int, ...], str]]:
    return [(each.ranks, each.text) for each in told(rows)]


MANY = range(MOST_ROWS + 4)
ALL = tuple(MANY)


def test_few_rows_stay() -> None:
    rows = [row(rank, f"{rank}.5") for rank in range(MOST_ROWS)]
    assert told(rows) == rows


def test_who_has_the_least_and_the_most_is_named() -> None:
    [one] = told([row(rank, f"{abs(rank - 7)}.5") for rank in MANY])
    assert one.note == "least: rank 7, most: rank 19"
    [one] = told([row(rank, f"{rank // 2}.5") for rank in MANY])
    assert one.note == "least: ranks 0-1, most: ranks 18-19"
    [one] = told([row(rank, f"{rank // 3}.5") for rank in MANY])
    assert one.note == "most: ranks 18-19"


def test_of_records_they_are_named_entry_by_entry() -> None:
    records = [{"loss": 5.0 - rank / 7, "norm": 1.0 + rank % 4, "step": 7, "host": f"n{rank}"} for rank in MANY]
    [one] = told([row(rank, "", record=record) for rank, record in enumerate(records)])
    assert one.note == "loss least: rank 19, most: rank 0"
    assert table_text([one]).endswith(one.note)


@pytest.mark.parametrize(
    ("text", "of_all"),
    [
        ("{0}", "0…19"),
        ("{1}", "0.1234…19.12"),
        ("tensor({2:.4f})", "tensor(0.5000…19.5000)"),
        ("(0.5, 'node{0}')", "(0.5, 'node0…19')"),
        ("<Net at 0x7f8dd36c{0:04x}> {0}", "<Net at 0x…> 0…19"),
        ("[[{0}, 1],\n [2, {0}]]", "[[0…19, 1],\n [2, 0…19]]"),
    ],
)
def test_those_that_differ_in_numbers_alone_are_one(text: str, of_all: str) -> None:
    rows = [row(rank, text.format(rank, rank + 0.123412341, rank + 0.5)) for rank in MANY]
    assert texts(rows) == [(ALL, of_all)]


def test_other_words_and_other_shapes_are_other_rows() -> None:
    rows = [row(rank, "nan" if rank == 3 else f"{rank}.5", shape=(rank // 10,)) for rank in MANY]
    assert texts(rows) == [
        ((0, 1, 2, 4, 5, 6, 7, 8, 9), "0.5…9.5"),
        ((3,), "nan"),
        (tuple(range(10, 20)), "10.5…19.5"),
    ]


def test_odd_ones_and_failures_keep_their_rows() -> None:
    rows = [row(rank, f"{rank}.5") for rank in MANY]
    rows[7] = Row((7,), "dp=7", rows[7].value, None, None, None, True)
    rows[2] = Row((2,), "dp=2", None, Failure("ValueError", "2", (), ""), None, None, False)
    usual = tuple(rank for rank in MANY if rank not in (2, 7))
    assert texts(rows) == [(usual, "0.5…19.5"), ((2,), "ValueError: 2"), ((7,), "7.5")]


def failed(rank: int, message: str) -> Row:
    return Row((rank,), f"dp={rank}", None, Failure("ValueError", message, (), ""), None, None, True)


def test_failures_that_differ_in_numbers_alone_are_one() -> None:
    rows = [failed(rank, f"loss {rank / 10}\nat {rank}" if rank != 3 else "bad") for rank in MANY]
    others = tuple(rank for rank in MANY if rank != 3)
    assert texts(rows) == [(others, "ValueError: loss 0.0…1.9"), ((3,), "ValueError: bad")]


def test_of_failures_the_odd_one_keeps_its_row() -> None:
    rows = [failed(rank, f"loss {99 if rank == 3 else rank / 10}") for rank in MANY]
    assert [text for _, text in texts(rows)] == ["ValueError: loss 0.0…1.9", "ValueError: loss 99"]


def test_failures_that_are_all_odd_in_something_stay_apart() -> None:
    numbers = [[0, 0, 0, 9, 9], [0, 0, 9, 0, 9], [9, 0, 0, 0, 0], [0, 9, 0, 0, 0], [0, 0, 9, 0, 0], [9, 0, 0, 0, 0]]
    rows = [failed(rank, f"{row[0]} {row[1]} {row[2]} {row[3]} {row[4]}") for rank, row in enumerate(numbers)]
    rows += [row(rank, "x" * rank) for rank in range(6, 18)]
    assert told(rows) == rows


def test_deaths_that_differ_in_numbers_alone_are_one() -> None:
    rows = [Row((rank,), "", None, None, f"exited with code 3 (pid {rank + 90})", None, False) for rank in MANY]
    assert texts(rows) == [(ALL, "exited with code 3 (pid 90…109)")]


def test_where_it_makes_no_few_of_them_all_stay() -> None:
    rows = [row(rank, "x" * rank + f"{number}") for rank in MANY for number in (1, 2)]
    assert told(rows) == rows


def test_what_has_a_richer_form_is_not_told_by_its_text() -> None:
    rows = [row(rank, f"{rank}", mime={"text/html": f"<b>{rank}</b>"}) for rank in MANY]
    assert told(rows) == rows


def test_large_tensors_are_told_by_their_gists() -> None:
    gists = {rank: Gist(-rank / 10, 1.0, 0.1, 9.5, 0, 100) for rank in MANY}
    rows = [row(rank, f"tensor {'x' * 300 * rank}", shape=(10, 10), gist=gists[rank]) for rank in MANY]
    assert "min 0" in gist_text(gists[0], Value("Tensor", "", shape=(10, 10)))
    assert texts(rows) == [(ALL, "min -1.9…0  max 1  mean 0.1  norm 9.5")]


def record(rank: int, entries: Mapping[str, Any]) -> Row:
    return row(rank, str(entries), record=dict(entries))


def test_of_records_each_entry_is_told() -> None:
    rows = [record(rank, {"loss": rank / 7, "step": 3, "host": f"n{rank // 10}", "ok": True}) for rank in MANY]
    [one] = told(rows)
    assert one.record == {"loss": "0.0…2.714", "step": 3, "host": "n0…1", "ok": True}
    assert one.text == "loss: 0.0…2.714, step: 3, host: n0…1, ok: True"


def test_records_with_an_entry_that_is_no_number_are_others() -> None:
    rows = [record(rank, {"loss": float("nan") if rank % 2 else rank / 7, "step": rank}) for rank in MANY]
    assert [one.record for one in told(rows)] == [
        {"loss": "0.0…2.571", "step": "0…18"},
        {"loss": "nan", "step": "1…19"},
    ]


def test_how_far_they_lie_from_the_median() -> None:
    assert told([row(rank, f"{rank}.5") for rank in MANY])[0].away == "-9.5…+9.5"


def test_of_few_rows_none_is_a_stray() -> None:
    assert strays([row(rank, text) for rank, text in enumerate(["1", "1.1", "99"])]) == set()


@given(st.lists(st.sampled_from(["1", "2.5", "nan", "a 1", "a 2", "x", ""]), max_size=40))
def test_no_rank_is_lost(values: list[str]) -> None:
    rows = [row(rank, text) for rank, text in enumerate(values)]
    assert sorted(rank for each in told(rows) for rank in each.ranks) == list(range(len(values)))
