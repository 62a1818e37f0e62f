"""Progress bars: what a cell's output shows of lines that are rewritten in place."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.wire.tape import Text
from meshbook.widgets.bars import MOST_ROWS, PERIOD
from meshbook.widgets.live import WINDOW, Live
from tests.widgets.stages import Page, Paper


def err(text: str) -> Text:
    return Text(1, "stderr", text)


def out(text: str) -> Text:
    return Text(1, "stdout", text)


def test_a_bar_is_one_line_that_is_rewritten_and_stays_in_its_last_state() -> None:
    page = Page()
    live = Live(page, range(2))
    live.update([(0, err("\r10%")), (1, err("\r20%"))], 0.0)
    assert page.text == "[  0 │ 10%\n  1 │ 20%]\n"
    live.update([(0, err("\r100%")), (1, err("\r100%"))], PERIOD)
    assert page.text == "[0-1 │ 100%]\n"
    live.update([(0, err("\n")), (1, err("\n")), (0, out("done\n"))], 2 * PERIOD)
    live.finish(3 * PERIOD)
    assert page.text == "[0-1 │ 100%]\n  0 │ done\n"


def test_bars_that_are_equally_far_are_one_line_however_fast_they_are() -> None:
    page = Page()
    live = Live(page, range(3))
    live.update([(rank, err(f"\r 50%|█ | 1/2 [00:01<00:01,  {rank}.5it/s]")) for rank in range(3)], 0.0)
    assert page.text == "[0-2 │  50%|█ | 1/2 [00:01<00:01,  0.5it/s]]\n"
    live.update([(rank, err(f"\r100%|██| 2/2 [00:02<00:00,  {rank}.6it/s]\n")) for rank in (0, 2)], PERIOD)
    live.finish(2 * PERIOD)
    assert page.text == "[0,2 │ 100%|██| 2/2 [00:02<00:00,  0.6it/s]\n  1 │  50%|█ | 1/2 [00:01<00:01,  1.5it/s]]\n"


def test_a_bar_that_ends_before_it_is_drawn_is_no_complaint() -> None:
    paper = Paper()
    paper.can_update = False
    live = Live(paper, range(2))
    said = "\r 50%\r100%\nwarning\nnext\r100%\nlast\r\n\r 30%"
    live.update([(rank, err(said)) for rank in range(2)], 0.0)
    live.finish(PERIOD)
    assert [(stream, text.replace("0-1 │ ", "")) for stream, text in paper.events] == [
        ("stdout", "100%\n"),
        ("stderr", "warning\n"),
        ("stdout", "100%\n"),
        ("stderr", "last\n"),
        ("stdout", " 30%\n"),
    ]


def test_bars_in_step_are_one_line_while_they_move_and_told_apart_where_they_stop() -> None:
    page = Page()
    live = Live(page, range(3))
    bars = [f" {done}%|█ | {done}/99 [00:01<00:09, 10.00it/s]" for done in (11, 10, 50)]
    live.update([(rank, err(f"\r{text}")) for rank, text in enumerate(bars)], 0.0)
    assert page.text == f"[0-1 │ {bars[1]}\n  2 │ {bars[2]}]\n"
    live.finish(PERIOD)
    assert page.text == f"[  0 │ {bars[0]}\n  1 │ {bars[1]}\n  2 │ {bars[2]}]\n"


def test_many_changes_are_few_messages() -> None:
    page = Page()
    live = Live(page, range(4))
    for step in range(1_000):
        live.update([(rank, err(f"\rrank {rank}: {step}/1000")) for rank in range(4)], step / 1_000)
    live.finish(1.0)
    assert page.num_messages <= 2 + 1 / PERIOD
    assert page.text == "[" + "\n".join(f"  {rank} │ rank {rank}: 999/1000" for rank in range(4)) + "]\n"


def test_bars_after_other_output_stand_below_it() -> None:
    page = Page()
    live = Live(page, range(2))
    for epoch in range(2):
        live.update([(0, err(f"\repoch {epoch}: 50%"))], epoch)
        live.update([(0, err(f"\repoch {epoch}: 100%\n")), (0, out(f"loss {epoch}\n"))], epoch + 0.3)
        live.update([], epoch + 0.3 + WINDOW)
    live.finish(9.0)
    assert page.text == "[  0 │ epoch 0: 100%]\n  0 │ loss 0\n[  0 │ epoch 1: 100%]\n  0 │ loss 1\n"


def test_bars_one_after_the_other_are_lines_of_one_block() -> None:
    page = Page()
    live = Live(page, range(2))
    for epoch in range(2):
        live.update([(rank, err(f"\repoch {epoch}: 50%")) for rank in range(2)], epoch)
        live.update([(1, err(f"\repoch {epoch}: 100%\n"))], epoch + 0.3)
        live.update([(0, err(f"\repoch {epoch}: 100%\n"))], epoch + 0.31)
    live.finish(9.0)
    assert page.text == "[0-1 │ epoch 0: 100%\n0-1 │ epoch 1: 100%]\n"


def test_a_bar_that_erases_itself_is_gone_and_the_next_line_is_ordinary() -> None:
    page = Page()
    live = Live(page, range(2))
    live.update([(0, err("\r50%")), (1, out("other\n"))], 0.0)
    live.update([], WINDOW)
    live.update([(0, err("\r   \r"))], 1.0)
    live.update([(0, err("all done\n"))], 2.0)
    live.finish(3.0)
    assert page.text == "[]\n  1 │ other\n  0 │ all done\n"


def test_a_line_that_grows_is_shown_before_its_end() -> None:
    page = Page()
    live = Live(page, [0])
    for second in range(3):
        live.update([(0, out("."))], float(second))
    assert page.text == "[  0 │ ...]\n"
    live.update([(0, out(" ready\n"))], 4.0)
    live.finish(4.0)
    assert page.text == "[  0 │ ... ready]\n"


def test_where_displays_cannot_be_updated_the_last_state_is_told() -> None:
    page = Page(can_update=False)
    live = Live(page, range(2))
    live.update([(rank, err("\r50%")) for rank in range(2)], 0.0)
    assert page.text == ""
    live.update([(rank, err("\r100%\n")) for rank in range(2)], 1.0)
    live.finish(1.0)
    assert page.text == "0-1 │ 100%\n"


def test_of_a_bar_that_goes_over_the_budget_no_old_state_stays() -> None:
    page = Page()
    live = Live(page, [0], budget=300)
    live.update([(0, err("\r50%"))], 0.0)
    live.update([(0, err("\r100%\n")), *((0, out(f"line {i}\n")) for i in range(1_000))], 1.0)
    live.finish(2.0)
    assert "50%" not in page.text
    assert "`%mesh logs` has all" in page.text


def test_of_very_many_bars_the_last_are_shown() -> None:
    page = Page()
    live = Live(page, range(100))
    live.update([(rank, err(f"\rrank {rank}")) for rank in range(100)], 0.0)
    assert page.text.count("\n") == MOST_ROWS + 1
    assert "60 more lines" in page.text
    assert page.text.endswith("rank 99]\n")


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["\r", "\n", "a", "b", " "])), max_size=40), st.data())
def test_each_rank_has_the_lines_it_would_have_in_a_terminal(feeds: list[tuple[int, str]], data: Any) -> None:
    live_page, plain = Page(), Page(can_update=False)
    both = [Live(live_page, range(3)), Live(plain, range(3))]
    now = 0.0
    for rank, text in feeds:
        now += data.draw(st.sampled_from([0.0, 0.01, 0.5]))
        for live in both:
            live.update([(rank, err(text))], now)
    for live in both:
        live.finish(now + 9)
    for rank in range(3):
        assert sorted(lines_of(live_page, rank)) == sorted(lines_of(plain, rank))


def lines_of(page: Page, rank: int) -> list[str]:
    """What a rank said, but for blank lines: one that ends a bar that was erased says nothing."""
    names = {"0-1": (0, 1), "0-2": (0, 1, 2), "1-2": (1, 2), "0,2": (0, 2), "0": (0,), "1": (1,), "2": (2,)}
    lines = [line.strip("[]").partition(" │ ") for line in page.text.splitlines()]
    return [text for who, _, text in lines if text.strip() and rank in names[who.strip()]]


def nested_writes(outer: int, inner: int, leave: bool) -> list[str]:
    """What tqdm writes, a flush each, for a bar in a bar."""
    writes = ["\router 0%"]
    for i in range(outer):
        for j in range(inner + 1):
            writes += ["\n", f"\rinner {j}/{inner}", "\x1b[A"]
        writes += [f"\rinner {inner}/{inner}", "\n"] if leave else ["\n", "\r         ", "\r", "\x1b[A"]
        writes += [f"\router {i + 1}/{outer}"]
    return [*writes, f"\router {outer}/{outer}", "\n"]


@given(st.booleans(), st.lists(st.sampled_from([0.0, 0.001, 0.02]), min_size=9, max_size=9), st.booleans())
def test_of_bars_in_bars_whose_writes_come_apart_no_stray_line_is_left(
    leave: bool, steps: list[float], can_update: bool
) -> None:
    page = Page(can_update)
    live, now = Live(page, range(2)), 0.0
    for count, text in enumerate(nested_writes(3, 4, leave)):
        for rank in range(2):
            now += steps[count % len(steps)] / 2
            live.update([(rank, err(text))], now)
    live.finish(now + 9)
    expected = ["inner 4/4"] * 3 if leave else []
    for rank in range(2):
        assert lines_of(page, rank) == [*expected, "outer 3/3"]


PAUSES = st.sampled_from([0.0, 0.01, 0.1, 0.4])


@given(st.permutations(range(3)), st.lists(PAUSES, min_size=9, max_size=9))
def test_bars_below_which_ranks_print_are_one_whenever_they_are_drawn(order: list[int], pauses: list[float]) -> None:
    page = Page()
    live, now = Live(page, range(3)), 0.0
    steps = [err("\r0%"), out("step 0\n"), err("\r50%")]
    for step, said in enumerate(steps):
        for place, rank in enumerate(order):
            live.update([(rank, said)], now)
            now += pauses[3 * step + place]
    live.update([(rank, err("\r100%\n")) for rank in range(3)], now)
    live.finish(now + 9)
    assert page.text.startswith("[0-2 │ 100%]\n") and page.text.count("100%") == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["bar", "line", "both", "end"]), PAUSES), max_size=30))
def test_what_a_rank_says_stands_in_the_order_in_which_it_began(said: list[tuple[int, str, float]]) -> None:
    page = Page()
    live, now = Live(page, range(3)), 0.0
    expected: dict[int, list[str]] = {0: [], 1: [], 2: []}
    is_open = dict.fromkeys(range(3), False)
    for rank, what, pause in said:
        new = str(len(expected[rank]))
        if what == "end":  # of one that was seen: others are told when they end
            live.update([], now + 9)
            live.update([(rank, err("\n"))] if is_open[rank] else [], now := now + 10)
            is_open[rank] = False
        elif what == "line" or is_open[rank]:
            live.update([(rank, out(f"{new}\n"))], now)
            expected[rank].append(new)
        else:  # in one instant, or a bar alone
            texts = [out(f"{new}\n")] if what == "both" else []
            expected[rank] += [new] * len(texts)
            bar = str(len(expected[rank]))
            live.update([(rank, text) for text in [*texts, err(f"\r{bar}")]], now)
            expected[rank].append(bar)
            is_open[rank] = True
        now += pause
    live.finish(now + 9)
    assert {rank: lines_of(page, rank) for rank in range(3)} == expected


def test_a_bar_that_begins_late_joins_the_others_if_its_rank_has_said_nothing_since() -> None:
    for rank, text in ((1, "[0-1 │ 50%]\n  0 │ step 0\n"), (0, "[  0 │ 50%]\n  0 │ step 0\n[  0 │ 50%]\n")):
        page = Page()
        live = Live(page, range(2))
        live.update([(0, err("\r50%"))], 0.0)
        live.update([(0, out("step 0\n"))], 1.0)
        live.update([], 2.0)
        live.update([(0, err("\n"))] if rank == 0 else [], 3.0)
        live.update([], 4.0)
        live.update([(rank, err("\r50%"))], 5.0)
        live.finish(9.0)
        assert page.text == text


def test_a_bar_that_begins_when_the_others_have_ended_stands_where_it_is_seen() -> None:
    page = Page()
    live = Live(page, range(2))
    live.update([(0, err("\r50%"))], 0.0)
    live.update([(0, err("\r100%\n")), (0, out("done\n"))], 1.0)
    live.update([], 2.0)
    live.update([(1, err("\r50%"))], 3.0)
    live.finish(9.0)
    assert page.text == "[  0 │ 100%]\n  0 │ done\n[  1 │ 50%]\n"


def test_a_bar_that_ends_is_told_soon_though_nothing_follows() -> None:
    page = Page(can_update=False)
    live = Live(page, range(2))
    live.update([(0, err("\r50%")), (0, err("\r100%\n"))], 1.0)
    assert page.text == ""
    live.update([], 1.0 + 2 * WINDOW)
    assert page.text == "  0 │ 100%\n"
    live.update([(1, err("\r100%\n")), (1, out("done\n"))], 2.0)
    live.update([], 2.0 + 2 * WINDOW)
    assert page.text == "  0 │ 100%\n  1 │ 100%\n  1 │ done\n"
