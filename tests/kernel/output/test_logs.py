"""Lines of logs: chosen, cut, followed and told cell by cell, without ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshbook.kernel.output.logs import Choice, LogLine, LogReader, runs_of, sections
from meshbook.runtime.wire.log import RankLog
from meshbook.runtime.wire.tape import Stream


@pytest.fixture
def log() -> Iterator[RankLog]:
    log = RankLog()
    yield log
    log.close()


def texts(lines: object) -> list[str]:
    return [line.text for line in lines]  # type: ignore[attr-defined]


def test_a_line_that_two_streams_interrupt_stays_whole(log: RankLog) -> None:
    log.append(1, "stdout", "loss ")
    log.append(1, "stderr", "warning\n")
    log.append(1, "stdout", "0.5\n")
    assert LogReader(log, Choice()).last(None) == [
        LogLine(1, "stderr", "warning\n"),
        LogLine(1, "stdout", "loss 0.5\n"),
    ]


def test_the_choice(log: RankLog) -> None:
    log.append(1, "stdout", "loss 1\n")
    log.append(1, "stderr", "loss is high\n")
    log.append(2, "stdout", "loss 2\nstep\n")
    assert texts(LogReader(log, Choice(runs={2})).last(None)) == ["loss 2\n", "step\n"]
    assert texts(LogReader(log, Choice(stream="stderr")).last(9)) == ["loss is high\n"]
    assert texts(LogReader(log, Choice(pattern=re.compile(r"loss \d$"))).last(1)) == ["loss 2\n"]
    assert texts(LogReader(log, Choice(runs={1}, pattern=re.compile("2"))).last(None)) == []


def test_what_comes_is_told_when_its_line_ends(log: RankLog) -> None:
    reader = LogReader(log, Choice())
    log.append(1, "stdout", "one\ntw")
    assert texts(reader.last(5)) == ["one\n"]
    assert texts(reader.rest()) == ["tw"]
    assert list(reader.news()) == []
    log.append(1, "stdout", "o\nthree\nfo")
    assert texts(reader.news()) == ["two\n", "three\n"]
    log.append(1, "stderr", "x")
    assert list(reader.news()) == []
    assert texts(reader.rest()) == ["fo", "x"]


said = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from(["stdout", "stderr"]), st.text("ab\n", max_size=6)), max_size=30
)


@settings(max_examples=100, deadline=None)
@given(said, st.integers(0, 30))
def test_no_line_is_lost_or_told_twice(said: list[tuple[int, Stream, str]], cut: int) -> None:
    log = RankLog()
    reader = LogReader(log, Choice())
    for piece in said[:cut]:
        log.append(*piece)
    lines = reader.last(None)
    for piece in said[cut:]:
        log.append(*piece)
    lines += [*reader.news(), *reader.rest()]
    log.close()
    for owner in {(run, stream) for run, stream, _ in said}:
        told = "".join(line.text for line in lines if (line.run, line.stream) == owner)
        assert told == "".join(text for run, stream, text in said if (run, stream) == owner)
    assert all(line.text.count("\n") <= 1 for line in lines)


def test_sections_keep_cells_apart_and_join_what_is_in_none() -> None:
    lines = [LogLine(run, "stdout", f"{run}\n") for run in (7, 8, 9, 12)]
    found = sections({0: lines, 3: lines[:1]}, {7: "cell 1", 12: "cell 1"})
    assert [(each.title, {rank: texts(said) for rank, said in each.lines.items()}) for each in found] == [
        ("cell 1", {0: ["7\n"], 3: ["7\n"]}),
        ("", {0: ["8\n", "9\n"]}),
        ("cell 1", {0: ["12\n"]}),
    ]


def test_cells_by_number_and_by_label() -> None:
    titles = {4: "cell 2", 5: "train", 9: "cell 2", 11: "2"}
    assert runs_of("2", titles) == {4, 9, 11}
    assert runs_of("train", titles) == {5}
    assert runs_of("3", titles) == frozenset()


def test_of_bars_in_bars_a_terminal_leaves_little(log: RankLog) -> None:
    log.append(1, "stderr", "start\n")
    for step in range(3):
        log.append(1, "stderr", f"\router {step}/3")
        for part in range(500):
            for text in ("\n", f"\rinner {part}/500", "\x1b[A"):
                log.append(1, "stderr", text)
        log.append(1, "stderr", "\n\r             \r\x1b[A")
    log.append(1, "stderr", "\router 3/3\n")
    log.append(1, "stdout", "next\n")
    for count in (None, 3, 200):
        reader = LogReader(log, Choice())
        assert [*texts(reader.last(count)), *texts(reader.rest())] == ["start\n", "outer 3/3\n", "next\n"]
    assert texts(LogReader(log, Choice()).last(1)) == ["next\n"]


def test_the_end_of_a_bar_is_told_when_nothing_follows_it(log: RankLog) -> None:
    reader = LogReader(log, Choice())
    log.append(1, "stderr", "\r50%\r100%\n")
    assert texts(reader.last(5)) == []
    assert texts(reader.rest()) == ["100%\n"]
    assert texts(reader.news()) == ["100%\n"]
    assert texts(reader.rest()) == []
