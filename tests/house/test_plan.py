"""The plan of the house says what each file says of itself."""

from __future__ import annotations

from pathlib import Path

from tests.house.plan import ROOT, WINGS, as_markdown, first_sentence

FILES = sorted(file for wing in WINGS for file in (ROOT / wing).rglob("*.py"))


def test_a_file_says_first_what_it_is() -> None:
    assert [str(file) for file in FILES if not first_sentence(file)] == []


def test_the_plan_equals_the_files() -> None:
    assert (ROOT / "docs" / "house.md").read_text() == as_markdown(), "run `make docs`"


def test_a_file_without_a_docstring_is_told_by_nothing(tmp_path: Path) -> None:
    bare, said = tmp_path / "bare.py", tmp_path / "said.py"
    bare.write_text("x = 1\n")
    said.write_text('"""What it is, on\ntwo lines.\nMore of it."""\n')
    assert (first_sentence(bare), first_sentence(said)) == ("", "What it is, on two lines.")
