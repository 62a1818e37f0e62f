"""HTML of results: readable without style, script or kernel; safe; bounded."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import msgspec
import pytest
import torch

from meshbook.kernel.outcome import Failure, Frame, Gist, Outcome, Value
from meshbook.kernel.values.results import MeshResult
from meshbook.kernel.values.summary import describe
from meshbook.widgets.table import result_html

VOID = {"br", "img", "hr", "input"}


class Page(HTMLParser):
    """What a browser makes of it when the style is stripped: tags that close in order, and text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, f"not closed: {self.open}"
        self.text = re.sub(r"\s+", " ", "".join(self.words)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.words.append(" ")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    def has(self, tag: str, **attrs: str) -> bool:
        return any(name == tag and attrs.items() <= found.items() for name, found in self.tags)

    def num(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def result(outcomes: dict[int, Outcome], lost: dict[int, str] | None = None, tp: int = 4) -> MeshResult:
    encoded = {rank: msgspec.msgpack.encode(outcome) for rank, outcome in outcomes.items()}
    ranks = sorted([*outcomes, *(lost or ())])
    axes = {"dp": max(ranks[-1] // tp + 1, 1), "tp": tp}
    return MeshResult(axes, ranks, encoded, dict.fromkeys(outcomes, 0.01), lost or {}, bytes, result_html)


def value(text: str, **more: object) -> Outcome:
    return Outcome(Value("T", text, pickled=text.encode(), **more))  # type: ignore[arg-type]


def test_ranks_that_agree_are_one_line_and_no_table() -> None:
    page = Page(result_html(result({rank: value("6.0", dtype="float32", shape=(2,)) for rank in range(4)})))
    assert " ".join(page.text.split()) == "6.0 ranks 0-3 · float32 [2] · 0.01 s"
    assert not page.has("table")


def test_the_odd_row_and_the_failed_row_are_marked_by_more_than_colour() -> None:
    failed = Outcome(failure=Failure("ValueError", "boom", (), ""))
    outcomes = {rank: value("1") for rank in range(5)} | {5: value("2"), 6: failed}
    page = Page(result_html(result(outcomes, {7: "died: SIGKILL"})))
    assert page.has("tr", **{"class": "mb-odd"}) and page.has("tr", **{"class": "mb-bad"})
    assert page.has("span", title="differs from the majority") and page.has("span", title="failed")
    assert "≠ 5 1 1 2 0.01 s ok" in page.text and "✗ 6 1 2 ValueError: boom 0.01 s failed" in page.text
    assert "✗ 7 1 3 died: SIGKILL no answer" in page.text
    assert page.text.endswith("5 of 8 equal · 2 failed")


def test_a_screen_reader_finds_a_named_region_and_headed_rows_and_columns() -> None:
    page = Page(result_html(result({0: value("1"), 1: value("2")})))
    assert page.has("div", role="region", **{"aria-label": "result of 2 ranks, 2 rows"})
    assert page.has("th", scope="col") and page.has("th", scope="row")


def test_a_small_table_has_no_script_and_a_large_one_no_control_that_would_need_it() -> None:
    assert "<script" not in result_html(result({0: value("1"), 1: value("2")}))
    html, script = result_html(result({rank: value(str(rank)) for rank in range(8)})).split("<script>")
    assert "copy as TSV" in script and "\n  " not in script
    assert not re.search(r"<input|<button|onclick|<select", html)


def test_a_column_an_axis_and_a_line_a_block() -> None:
    html = result_html(result({rank: value("1" if rank < 7 else "2") for rank in range(8)}))
    assert "<td>0<br>1</td><td>0-3<br>0-2</td>" in html
    assert 'data-axis="tp">tp</th>' in html
    assert "data-axis" in result_html(result({rank: value(str(rank)) for rank in range(3)}, tp=1))


def test_numbers_have_their_distance_to_the_median() -> None:
    numbers = {rank: Outcome(Value("float", text, pickled=b"")) for rank, text in enumerate(["0.5", "0.5", "0.75"])}
    page = Page(result_html(result(numbers)))
    assert "Δ to median" in page.text and "0.5 0 0.01 s" in page.text
    assert "≠ 2 0 2 0.75 +0.25 0.01 s" in page.text
    assert "Δ to median" not in Page(result_html(result({0: value("a"), 1: value("b")}))).text


def test_numbers_that_look_alike_say_how_far_apart_they_are() -> None:
    alike = {
        rank: value("tensor(0.5)", dtype="float32", shape=(), gist=Gist(n, n, n, n, 0, 1))
        for rank, n in enumerate([0.5, 0.5, 0.5001])
    }
    assert "tensor(0.5) ranks 0-2 · Δ ≤ 0.0001" in Page(result_html(result(alike))).text


def test_a_failure_unfolds_to_the_users_own_lines() -> None:
    frames = (Frame("cell 5", 1, "<module>", "check(l)", True), Frame("/lib/x.py", 2, "check", "raise", False))
    failed = Outcome(failure=Failure("ValueError", "loss is nan", frames, "the whole traceback"))
    page = Page(result_html(result({0: value("1"), 1: failed})))
    assert page.has("details") and "ValueError: loss is nan cell 5, line 1 → 1 check(l)" in page.text
    bare = Outcome(failure=Failure("SyntaxError", "invalid", (), "the whole traceback"))
    assert "SyntaxError: invalid the whole traceback" in Page(result_html(result({0: value("1"), 1: bare}))).text


def test_a_tensor_is_its_numbers_at_a_glance_and_unfolds_to_text_and_picture() -> None:
    outcomes = {rank: Outcome(describe(torch.arange(64.0).reshape(8, 8) + rank)) for rank in range(2)}
    page = Page(result_html(result(outcomes)))
    summaries = [attrs for tag, attrs in page.tags if tag == "summary"]
    assert len(summaries) == 2 and "min 0 max 63 mean 31.5 norm 292.1 tensor([[" in page.text
    assert page.has("img", **{"class": "mb-heat", "alt": "heat map: 1 is dark, 64 is bright"})


def test_arrays_whose_text_is_equal_and_whose_numbers_are_not_are_apart() -> None:
    one, other = torch.zeros(100, 100), torch.zeros(100, 100)
    other[50, 50] = float("nan")
    r = result({0: Outcome(describe(one)), 1: Outcome(describe(one)), 2: Outcome(describe(other))})
    assert [row.ranks for row in r.rows()] == [(0, 1), (2,)]
    assert "1 nan" in repr(r) and "1 nan in orange" in result_html(r)


def test_the_foot_names_what_to_type_next() -> None:
    encoded = {r: msgspec.msgpack.encode(value("1" if r < 3 else "2")) for r in range(4)}
    html = result_html(MeshResult({"dp": 4}, range(4), encoded, {}, {}, bytes, result_html, "loss"))
    assert Page(html).text.endswith("3 of 4 equal · loss[3] · loss.table()")


def test_matrices_of_a_thousand_ranks_stay_under_a_megabyte() -> None:
    seen = describe(torch.rand(64, 64, generator=torch.Generator().manual_seed(1)))
    outcomes = {
        rank: Outcome(msgspec.structs.replace(seen, text=seen.text + str(rank), pickled=None)) for rank in range(1024)
    }
    html = result_html(result(outcomes, tp=32))
    assert len(html) < 1_000_000 and html.count("mb-heat") > 400


@pytest.mark.parametrize("text", ["<script>x</script>", "a & b", 'say "<b>"', "\x1b[31m<i>red\x1b[0m"])
def test_what_ranks_print_is_escaped(text: str) -> None:
    failure = Failure(text, text, (Frame(text, 1, text, text, True),), "")
    lost = {2: text}
    page = Page(result_html(result({0: value(text), 1: Outcome(failure=failure)}, lost)))
    assert not {tag for tag, _ in page.tags} & {"script", "b", "i"}
    assert text.replace("\x1b[31m", "").replace("\x1b[0m", "") in page.text
    assert "→ 1 " in page.text  # the line that the failure went through


def frame(rank: int) -> Outcome:
    return value(f"df {rank}", mime={"text/html": f"<table><tr><td>{rank}</td></tr></table>"})


def test_rich_values_are_details_open_where_there_are_few() -> None:
    few = result({rank: frame(rank) for rank in (0, 1)} | {2: value("3")})
    page = Page(result_html(few))
    assert [("open" in attrs) for tag, attrs in page.tags if tag == "details"] == [True, True]
    many = result({rank: frame(rank) for rank in range(8)} | {8: value("3")})
    page = Page(result_html(many))
    assert page.has("summary") and not any("open" in attrs for tag, attrs in page.tags if tag == "details")
    assert page.num("table") == 9


def test_values_that_are_tables_stand_side_by_side_where_there_are_not_too_many() -> None:
    page = Page(result_html(result({rank: frame(rank) for rank in range(16)})))
    assert page.num("figure") == 16 and not page.has("details")
    page = Page(result_html(result({rank: frame(rank) for rank in range(17)})))
    assert page.num("details") == 17 and not page.has("figure")
    few = result({rank: frame(rank) for rank in range(2)})
    assert Page(result_html(few)).num("figure") == 2 and not Page(result_html(few.by_rank())).has("figure")


def test_pictures_are_data_in_the_page() -> None:
    svg = value("fig", mime={"image/svg+xml": "<svg><script>x</script></svg>"})
    page = Page(result_html(result({0: value("fig", mime={"image/png": "aGk=\n"}), 1: svg})))
    sources = [attrs["src"] or "" for tag, attrs in page.tags if tag == "img"]
    assert sources[0] == "data:image/png;base64,aGk=" and sources[1].startswith("data:image/svg+xml;base64,")
    assert not page.has("script")


BOOM = Failure("ValueError", "boom", (), "")


def picture(data: str) -> Outcome:
    return value("<a figure>", mime={"image/png": data})


def captions(source: str) -> list[str]:
    return re.findall(r"<summary>([^<]*)<br>", source)


def test_values_that_are_pictures_are_seen_in_one_glance_the_odd_one_marked() -> None:
    equal = {rank: picture("aGk=") for rank in range(5)}
    source = result_html(result(equal | {5: picture("aGo=")}))
    assert captions(source) == ["ranks 0-4", "≠ rank 5"]
    page = Page(source)
    assert not page.has("table")
    assert page.has("img", src="data:image/png;base64,aGo=", alt="<a figure>")
    assert page.has("div", role="region")


def test_who_asks_for_a_table_of_pictures_has_one() -> None:
    pictures = result({rank: picture(f"{rank}aGk=") for rank in range(4)})
    assert captions(result_html(pictures)) == [f"rank {rank}" for rank in range(4)]
    assert Page(result_html(pictures.by_rank())).has("table")


@pytest.mark.parametrize(
    "other", [value("1"), Outcome(), Outcome(failure=Failure("ValueError", "boom", (), "")), picture("a" * 8_000_000)]
)
def test_where_not_all_values_are_pictures_or_they_are_too_large_there_is_a_table(other: Outcome) -> None:
    assert Page(result_html(result({0: picture("aGk="), 1: picture("aGo="), 2: other}))).has("table")


def test_one_picture_of_all_ranks_is_a_row() -> None:
    assert Page(result_html(result({rank: picture("aGk=") for rank in range(4)}))).has("table")


def test_text_of_several_lines_keeps_them() -> None:
    html = result_html(result({0: value("1 2\n3 4"), 1: value("5")}))
    assert "<pre>1 2\n3 4</pre>" in html


def test_a_thousand_different_ranks_are_small_and_quick() -> None:
    outcomes = {rank: value(f"tensor({rank})" + "x" * 1_000, dtype="float32", shape=()) for rank in range(1024)}
    r = result(outcomes, tp=32)
    start = time.process_time()
    html = result_html(r)
    assert time.process_time() - start < 5  # about 0.05
    assert len(html) < 300_000 and html.count("<tr") == 1 + 1 + 1 + 1024


def test_very_many_rows_are_below_what_they_come_to_closed() -> None:
    outcomes = {rank: value(str(2 + rank / 64)) for rank in range(64)} | {9: Outcome(failure=BOOM)}
    html = result_html(result(outcomes))
    page = Page(html)
    assert page.num("table") == 2 and page.has("summary") and "all 64 rows" in page.text
    assert "0-8,10-63" in page.text.partition("all 64 rows")[0]
    assert "2.0…2.984" in page.text.partition("all 64 rows")[0] and "boom" in page.text.partition("all 64 rows")[0]
    [details] = [attrs for tag, attrs in page.tags if tag == "details" and attrs.get("class") == "mb-all"]
    assert "open" not in details
    assert Page(result_html(result(outcomes).by_rank())).num("table") == 1


def test_columns_of_very_many_records_are_summed_up_too() -> None:
    outcomes = {
        rank: Outcome(describe({"loss": 2 + rank / 64, "ok": rank != 3, "host": f"node{rank // 8}"}))
        for rank in range(64)
    }
    page = Page(result_html(result(outcomes)))
    glance = page.text.partition("all 64 rows")[0]
    assert "2.0…2.984 True node0…7" in glance and "2.047 False node0" in glance
    assert "loss least: rank 0, most: rank 63" in glance


def test_entries_of_records_are_columns_that_sort_by_number() -> None:
    losses = {0: 0.5, 1: float("nan"), 2: 12.0, 3: 1e-7, 4: 2.0}
    outcomes = {rank: Outcome(describe({"loss": loss, "<b>": "a&b"})) for rank, loss in losses.items()}
    outcomes[5] = Outcome(failure=Failure("ValueError", "bad", (), ""))
    html = result_html(result(outcomes))
    page = Page(html)
    titles = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', html)
    assert titles == ["ranks", "dp", "tp", "loss", "&lt;b&gt;", "value", "time", "state"]
    assert 'data-v="12"' in html or "<code>12</code>" in html
    assert '<span class="mb-mark"><code>nan</code></span>' in html
    assert "a&b" in page.text and "ValueError: bad" in page.text
    assert page.text.index("1e-07") < page.text.index("ValueError: bad")
