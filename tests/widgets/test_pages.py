"""`--show tabs`: pages that need no script, and as text a section each."""

from __future__ import annotations

import msgspec

from meshbook.kernel.outcome import Failure, Frame, Outcome, Value
from meshbook.kernel.values.results import MeshResult
from meshbook.widgets.pages import Pages


def pages(*outcomes: Outcome) -> Pages:
    encoded = {rank: msgspec.msgpack.encode(outcome) for rank, outcome in enumerate(outcomes)}
    return Pages(MeshResult({"dp": 2, "tp": 2}, range(len(outcomes)), encoded, {0: 0.5}, {}, bytes))


def seen(text: str, **more: object) -> Outcome:
    return Outcome(Value("T", text, **more))  # type: ignore[arg-type]


FAILED = Outcome(failure=Failure("ValueError", "boom <b>", (Frame("cell 1", 2, "f", "raise", True),), "tb"))


def test_equal_ranks_share_a_page_and_the_first_is_open() -> None:
    html = pages(seen("1\n2"), seen("1\n2"), seen("3", mime={"text/html": "<i>3</i>"}), FAILED)._repr_html_()
    assert html.count("<details") == 3 and html.count(" open>") == 1
    assert html.index("ranks 0-1  (dp=0,tp=0-1)") < html.index("<pre>1\n2</pre>") < html.index("<div><i>3</i></div>")
    assert "ValueError: boom &lt;b&gt;" in html and "→ 2  raise" in html
    assert "<script" not in html and "<input" not in html


def test_only_pages_of_one_output_close_each_other() -> None:
    one, other = (pages(seen("1"), seen("2"))._repr_html_() for _ in range(2))
    names = [html.partition('name="')[2].partition('"')[0] for html in (one, other)]
    assert one.count(f'name="{names[0]}"') == 2 and names[0] != names[1]


def test_as_text_each_page_is_a_section() -> None:
    assert repr(pages(seen("1"), seen("1"), seen("1"), FAILED)).split("\n\n") == [
        "ranks 0-2  (dp=0,tp=0-1 · dp=1,tp=0)  0.50 s\n1",
        "✗  rank 3  (dp=1,tp=1)\nValueError: boom <b>",
    ]


def test_of_very_many_pages_the_rest_is_told() -> None:
    many = MeshResult(
        {"dp": 300}, range(300), {r: msgspec.msgpack.encode(seen(str(r))) for r in range(300)}, {}, {}, bytes
    )
    assert repr(Pages(many)).endswith("… 44 more pages are in the result")
    assert Pages(many)._repr_html_().count("<details") == 256
