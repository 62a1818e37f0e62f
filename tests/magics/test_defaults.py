"""`%mesh config`: how cells run whose line does not say."""

from __future__ import annotations

import pytest

from meshbook.magics.book import Book
from meshbook.magics.defaults import Settings, configure
from meshbook.magics.grammar import Config, OnMeshArgs, parse_mesh, parse_on_mesh
from meshbook.magics.options import GrammarError


def settings(line: str, book: Book) -> Settings:
    args = parse_mesh(f"config {line}").args
    assert isinstance(args, Config)
    return configure(book, args)


def set_by(line: str, book: Book | None = None) -> Book:
    book = book or Book()
    settings(line, book)
    return book


def test_settings_are_read_as_the_options_are() -> None:
    book = set_by("show=first tail=50 on_error=wait grace=0.5 timeout=60")
    assert book.defaults == {"show": "first", "tail": 50, "on_error": "wait", "grace": 0.5, "timeout": 60.0}
    assert set_by("tail=default", book).defaults.keys() == {"show", "on_error", "grace", "timeout"}


def test_what_holds_is_told() -> None:
    told = repr(settings("tail=50 show=first", Book())).splitlines()
    assert [line.split()[:2] for line in told] == [
        ["show", "first"],
        ["tail", "50"],
        ["timeout", "none"],
        ["on-error", "stop"],
        ["grace", "2"],
    ]
    assert told[0].endswith("(default: auto)") and not told[3].endswith(")")
    assert told[0].index("(") == told[1].index("("), "the defaults stand in a column"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("tial=50", "no setting 'tial': did you mean 'tail'?"),
        ("tail", "'tail' gives no value: write tail=VALUE, or tail=default"),
        ("tail=", "'tail=' gives no value"),
        ("tail=many", "%mesh config: tail: 'many'"),
        ("show=all", "%mesh config: show: 'all' is not one of auto, table"),
        ("grace=-1", "%mesh config: grace: '-1'"),
    ],
)
def test_a_mistake_changes_nothing(line: str, why: str) -> None:
    book = set_by("tail=7")
    with pytest.raises(GrammarError) as caught:
        set_by(f"show=first {line}", book)
    assert why in str(caught.value)
    assert book.defaults == {"tail": 7}


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("", OnMeshArgs(show="first", tail=50, on_error="debug")),
        ("dp=0 --show table", OnMeshArgs("dp=0", show="table", tail=50, on_error="debug")),
        ("--tail=3 -- x", OnMeshArgs(expr="x", show="first", tail=3, on_error="debug")),
        ("--full", OnMeshArgs(show="first", full=True, on_error="debug")),
        ("-b", OnMeshArgs(show="first", bg=True, tail=50)),
    ],
)
def test_a_line_comes_before_them(line: str, args: OnMeshArgs) -> None:
    assert parse_on_mesh(line, {"show": "first", "tail": 50, "on_error": "debug"}) == args


def test_a_default_that_excludes_the_background_is_not_meant_there() -> None:
    assert parse_on_mesh("-b", {"show": "diff"}) == OnMeshArgs(bg=True)
