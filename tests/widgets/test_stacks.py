"""The tree of stacks as HTML."""

from __future__ import annotations

from meshbook.kernel.outcome import Frame
from meshbook.kernel.waiting.report import StackReport
from meshbook.kernel.waiting.stacks import RankStack
from meshbook.widgets.stacks import StacksView, stacks_html


def report() -> StackReport:
    top = Frame("cell <1>", 2, "<module>", "train(a < b)", True)
    below = Frame("lib.py", 7, "wait", "lock.acquire()", False)
    loader = (("loader <0>", (below,)),)
    stacks = [
        RankStack(0, "busy", (top,)),
        RankStack(1, "busy", (top, below), "all_reduce", 2.0, others=loader),
        RankStack(2, "dead"),
        RankStack(3, "idle"),
    ]
    return StackReport("m", {"rank": 4}, stacks, {2: "exited with code 3"}, "--native: py-spy <is> missing")


def test_the_page_says_what_the_text_says_and_escapes_it() -> None:
    html = stacks_html(report())
    for words in ("ranks 0-1", "train(a &lt; b)", "waiting in all_reduce for 2.00 s", "exited with code 3", "idle"):
        assert words in html
    assert "cell <1>" not in html and "<0>" not in html and "<is>" not in html
    assert "1 other thread<" in html
    assert '<div class="mb-foot">--native: py-spy &lt;is&gt; missing</div>' in html
    assert '<span class="mb-dim">   lib.py, line 7, in wait   lock.acquire()</span>' in html, "no line of the user's"


def test_the_users_innermost_line_is_marked() -> None:
    html = stacks_html(report())
    assert html.count('class="mb-hot"') == 1
    assert html.index('class="mb-hot"') < html.index("train(a")
    assert html.count('<div class="mb-bad"') == 1


def test_a_line_from_which_all_go_on_to_others_is_not_marked() -> None:
    trunk, left, right = (Frame("cell 1", line, "f", f"line {line}", True) for line in (1, 2, 3))
    stacks = [RankStack(0, "busy", (trunk, left)), RankStack(1, "busy", (trunk, right))]
    html = stacks_html(StackReport("m", {"rank": 2}, stacks))
    assert html.count('class="mb-hot"') == 2
    assert 'class="mb-hot">   cell 1, line 1' not in html


def test_the_view_is_the_report() -> None:
    view = StacksView(report())
    assert repr(view) == repr(view.report)
    assert view.data() == view.report.data()
    assert view._repr_html_() == stacks_html(view.report)  # pyright: ignore[reportPrivateUsage]
