from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshbook.kernel.output.fold import LineFolder
from meshbook.kernel.output.spread import MOST_ALONE, Gatherer
from meshbook.kernel.output.weave import FoldedLine


def said(texts: list[str]) -> list[FoldedLine]:
    return [FoldedLine((rank,), "stdout", text) for rank, text in enumerate(texts)]


def told(texts: list[str]) -> list[tuple[tuple[int, ...], str]]:
    return [(line.ranks, line.text) for line in Gatherer().gather(said(texts))]


ALL = tuple(range(12))


@pytest.mark.parametrize(
    ("text", "of_all"),
    [
        ("{0}", "0…11"),
        ("rank {0}: loss {1}", "rank 0…11: loss -0.5…0.6"),
        ("{1}", "-0.5…0.6"),
        ("x={1:.1e}, y", "x=-5.0e-01…6.0e-01, y"),
        ("tensor([{2}., 2.])", "tensor([0.…110., 2.])"),
        ("[{1: .1f}, {2:3}]  {0}", "[-0.5…0.6, 0…110]  0…11"),
        ("  {0:2} left", "  0…11 left"),
        ("{3:,} tokens", "0…1,100,000 tokens"),
        ("cuda:{0} /out/rank{0}.pt", "cuda:0…11 /out/rank0…11.pt"),
        ("{0}-{0} 1.2.{0}", "0…11-0…11 1.2.0…11"),
        ("\x1b[32m{0}\x1b[0m", "\x1b[32m0…11\x1b[0m"),
        ("1 \x1b[1m\x1b[32m {0}\x1b[0m {0}", "1 \x1b[1m\x1b[32m 0…11\x1b[0m 0…11"),
        ("<Net at 0x7f8dd36c{0:04x}> {0}", "<Net at 0x…> 0…11"),
        ("2026-11-30 10:00:{0:02},5 INFO loss {0}", "2026-11-30 10:00:00,5 INFO loss 0…11"),
        ("[rank{0}]:W1124 09:17:40.7580 160{0:02} x.py:3] {0} slow", "W1124 09:17:40.7580 16000 x.py:3] 0…11 slow"),
    ],
)
def test_each_number_from_the_least_to_the_most(text: str, of_all: str) -> None:
    texts = [text.format(rank, (rank - 5) / 10, rank * 10, rank * 100_000) for rank in ALL]
    assert told(texts) == [(ALL, of_all)]


def test_few_are_told_one_by_one() -> None:
    texts = [f"loss {rank}" for rank in range(MOST_ALONE)]
    assert told(texts) == [((rank,), text) for rank, text in enumerate(texts)]


def test_other_words_are_other_lines() -> None:
    texts = [f"loss {rank / 8}" if rank != 3 else "loss nan" for rank in range(24)]
    others = tuple(rank for rank in range(24) if rank != 3)
    assert told(texts) == [(others, "loss 0.0…2.875"), ((3,), "loss nan")]


def test_what_was_told_as_one_once_is_always_told_so() -> None:
    gatherer = Gatherer()
    assert len(gatherer.gather(said([f"step {rank}" for rank in range(3)]))) == 3
    assert len(gatherer.gather(said([f"step {rank}" for rank in ALL]))) == 1
    assert [line.text for line in gatherer.gather(said(["step 3", "step 5", "loss 3", "loss 4"]))] == [
        "step 3…5",
        "loss 3",
        "loss 4",
    ]
    assert [line.text for line in gatherer.gather(said(["step 3"]))] == ["step 3"]


def test_the_odd_one_out_keeps_its_line() -> None:
    texts = [f"step 7 loss {1 + rank / 100:.2f}" for rank in ALL]
    texts[4], texts[9] = "step 7 loss 99.1", "step 3 loss 1.03"
    usual = tuple(rank for rank in ALL if rank not in (4, 9))
    assert told(texts) == [(usual, "step 7 loss 1.00…1.11"), ((4,), texts[4]), ((9,), texts[9])]


def test_where_many_are_odd_none_is() -> None:
    texts = [f"step {rank // 12} loss {1 + rank / 1000}" for rank in range(22)]
    assert told(texts) == [(tuple(range(22)), "step 0…1 loss 1.0…1.021")]


def test_of_few_none_is_odd() -> None:
    gatherer = Gatherer()
    gatherer.gather(said([f"{rank} {rank} {rank}" for rank in ALL]))
    assert [line.text for line in gatherer.gather(said(["0 7 0", "0 0 7", "5 0 0"]))] == ["0…5 0…7 0…7"]


def test_in_a_long_loop_few_are_one_too() -> None:
    gatherer = Gatherer()
    for num_ranks, num_lines in ((2, 2), (3, 1), (8, 1)):
        for step in range(100):
            told = gatherer.gather(said([f"step {step}{'.' * num_ranks} loss {rank}" for rank in range(num_ranks)]))
            assert len(told) in (num_ranks, num_lines)
        assert len(told) == num_lines
    assert len(gatherer.gather(said(["another 1", "another 2", "another 3"]))) == 3


def test_lines_that_each_rank_says_together_stay_together() -> None:
    lines = [
        FoldedLine((rank,), "stdout", text)
        for rank in ALL
        for text in (f"tensor([[{rank}, 1],", f"        [{rank}, 2]])")
    ]
    assert [(line.ranks, line.text) for line in Gatherer().gather(lines)] == [
        (ALL, "tensor([[0…11, 1],"),
        (ALL, "        [0…11, 2]])"),
    ]


def test_what_a_rank_says_next_is_another_line() -> None:
    lines = said([f"step 0 {rank}" for rank in ALL]) + said([f"step 1 {rank}" for rank in ALL])
    assert [line.text for line in Gatherer().gather(lines)] == ["step 0 0…11", "step 1 0…11"]


def test_streams_and_bars_are_kept_apart() -> None:
    lines = [line._replace(stream="stderr" if line.ranks[0] % 2 else "stdout") for line in said([*map(str, ALL)])]
    assert Gatherer().gather(lines) == lines
    bars = [line._replace(stream="stderr", is_bar=True) for line in lines]
    assert Gatherer().gather(bars) == bars


@given(st.lists(st.tuples(st.integers(0, 20), st.text("a1-.,e \x1b[m0", max_size=12)), max_size=60))
@example([(rank, text) for text in ("1", "2") for rank in range(20)])
def test_no_rank_is_lost_and_each_keeps_its_order(events: list[tuple[int, str]]) -> None:
    lines = [FoldedLine((rank,), "stdout", text) for rank, text in events]
    seen: dict[int, int] = {}
    for line in Gatherer().gather(lines):
        for rank in line.ranks:
            seen[rank] = seen.get(rank, 0) + 1
            mine = [text for each, text in events if each == rank]
            if not line.is_spread:
                assert line.text == mine[seen[rank] - 1]
    assert seen == {rank: sum(each == rank for each, _ in events) for rank, _ in events}


def test_a_folder_spreads_where_it_is_told_to() -> None:
    for spreads, num_lines in ((True, 3), (False, 36)):
        folder = LineFolder(ALL, spreads=spreads)
        for rank in ALL:
            folder.feed(rank, "stdout", "".join(f"step {step} loss {rank + step}\n" for step in range(3)), 0.0)
        assert len(folder.poll(1.0)) == num_lines


def test_ranks_that_are_not_in_step_are_told_together_all_the_same() -> None:
    folder = LineFolder(ALL, window=0.1, spreads=True)
    said: dict[int, list[str]] = {rank: [] for rank in ALL}
    told: list[FoldedLine] = []
    for tick in range(240):  # each rank says something every 0.06 s, one after the other
        rank, step = tick % len(ALL), tick // len(ALL)
        folder.feed(rank, "stdout", f"step {step} of {rank}\n", tick * 0.005)
        said[rank].append(f"step {step} of {rank}")
        told += folder.poll(tick * 0.005)
    told += [line for line in folder.finish(9.0) if isinstance(line, FoldedLine)]
    assert {rank: sum(rank in line.ranks for line in told) for rank in ALL} == {rank: len(said[rank]) for rank in ALL}
    assert len(told) < 80 + 30


@pytest.mark.parametrize(("num_lines", "is_spread"), [(100, True), (1000, False)])
def test_a_flood_of_few_ranks_is_told_as_it_comes(num_lines: int, is_spread: bool) -> None:
    folder = LineFolder(range(4), budget=1 << 30, spreads=True)
    for rank in range(4):
        folder.feed(rank, "stdout", "".join(f"line {line} of {rank}\n" for line in range(num_lines)), 0.0)
    assert any(line.is_spread for line in folder.poll(1.0)) is is_spread


def test_what_is_told_as_one_costs_the_budget_as_one() -> None:
    folder = LineFolder(range(100), budget=9_000, spreads=True)
    for step in range(50):
        for rank in range(100):
            folder.feed(rank, "stdout", f"step {step} loss {rank + step / 7}\n", float(step))
        assert len(folder.poll(step + 0.5)) == 1
    assert folder.finish(99.0) == []
