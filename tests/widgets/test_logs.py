"""Logs on a stage."""

from __future__ import annotations

from meshbook.kernel.output.logs import LogLine, Section
from meshbook.widgets.logs import LogPrinter, print_sections
from tests.widgets.stages import Paper


def out(text: str) -> LogLine:
    return LogLine(1, "stdout", f"{text}\n")


def test_equal_lines_are_told_once_and_stderr_apart() -> None:
    paper = Paper()
    bad = LogLine(1, "stderr", "bad\n")
    print_sections(paper, [Section("cell 3", {0: [out("a"), bad], 1: [out("a"), out("50%\r100%")]})], 0.0)
    assert paper.events == [("stdout", "0-1 │ a\n"), ("stderr", "  0 │ bad\n"), ("stdout", "  1 │ 100%\n")]


def test_several_cells_are_named() -> None:
    paper = Paper()
    print_sections(paper, [Section("cell 3", {0: [out("a")]}), Section("", {0: [out("a")], 12: [out("a")]})], 0.0)
    assert "".join(text for _, text in paper.events) == ("── cell 3\n  0 │ a\n── outside of cells\n0,12 │ a\n")


def test_the_budget_is_kept_and_the_gap_says_what_to_do() -> None:
    paper = Paper()
    printer = LogPrinter(paper, [0], budget=300)
    printer.add(0, [out(f"line {i}") for i in range(1000)], 0.0)
    assert printer.is_full
    printer.finish(0.0)
    told = "".join(text for _, text in paper.events)
    assert len(told) < 700
    assert "more lines (" in told and "choose fewer with a selector, --cell, -n or --grep\n" in told
    assert told.endswith("line 999\n")
