from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshbook.runtime.wire import log as log_module
from meshbook.runtime.wire.log import RankLog


@pytest.fixture
def log() -> Iterator[RankLog]:
    log = RankLog()
    yield log
    log.close()


def test_text_is_kept_by_run_and_stream_in_order(log: RankLog):
    log.append(1, "stdout", "a€\n")
    log.append(1, "stderr", "warn\n")
    log.append(2, "stdout", "b\n")
    log.append(1, "stdout", "late\n")
    assert log.read() == "a€\nwarn\nb\nlate\n"
    assert log.read(run=1) == "a€\nwarn\nlate\n"
    assert log.read(run=1, stream="stdout") == "a€\nlate\n"
    assert log.read(stream="stderr") == "warn\n"
    assert log.read(run=9) == ""


def test_last_and_grep_pick_lines(log: RankLog):
    log.append(1, "stdout", "loss 1\nstep\nloss 2\nst")
    log.append(1, "stdout", "ep\nloss 3")
    assert log.read(last=2) == "step\nloss 3"
    assert log.read(last=0) == ""
    assert log.read(grep=r"^loss \d$") == "loss 1\nloss 2\nloss 3"
    assert log.read(grep="loss", last=2) == "loss 2\nloss 3"


def test_the_tail_comes_from_memory_and_is_bounded(log: RankLog):
    log.append(1, "stderr", "x" * 100_000 + "\n")
    for i in range(60):
        log.append(2, "stderr", f"line {i}\n")
    assert log.tail("stderr", 2) == "line 58\nline 59\n"
    assert len(log.tail("stderr", 1000)) <= 1 << 14
    assert log.tail("stdout", 3) == log.tail("stderr", 0) == ""


def test_the_tail_is_of_the_newest_run_and_what_came_with_it(log: RankLog):
    log.append(1, "stderr", "old news\n")
    log.append(3, "stderr", "last words\n")
    log.append(0, "stderr", "from C\n")
    log.append(1, "stderr", "late\n")
    assert log.tail("stderr", 10) == log.tail("stderr", 10, since=3) == "last words\nfrom C\nlate\n"
    assert log.tail("stderr", 10, since=4) == ""


def test_no_file_before_the_first_text(log: RankLog, tmp_path: Path):
    quiet = RankLog(tmp_path / "missing")
    quiet.append(1, "stdout", "")
    assert quiet.read() == ""
    quiet.append(1, "stdout", "x")  # the folder is not there: as good as a full disk
    assert quiet.lost > 0
    assert quiet.read() == ""
    quiet.close()


def test_the_file_has_no_name(tmp_path: Path):
    log = RankLog(tmp_path)
    log.append(1, "stdout", "text")
    assert list(tmp_path.iterdir()) == []
    log.close()


def test_after_a_full_disk_the_log_goes_on(log: RankLog, monkeypatch: pytest.MonkeyPatch):
    log.append(1, "stdout", "before\n")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log_module.os, "pwrite", full)
        log.append(2, "stderr", "gone\n")
    log.append(2, "stdout", "after\n")
    assert log.read() == "before\nafter\n"
    assert log.read(run=2, stream="stdout") == "after\n"
    assert log.lost >= len("gone\n")


def test_a_mistake_is_told(log: RankLog):
    with pytest.raises(ValueError, match=r"grep='\(' is no regular expression"):
        log.read(grep="(")
    with pytest.raises(ValueError, match="0 or more"):
        log.read(last=-1)


def test_a_closed_log_says_so_and_keeps_its_tail():
    log = RankLog()
    log.append(1, "stderr", "boom\n")
    log.close()
    log.close()
    assert log.tail("stderr", 5) == "boom\n"
    with pytest.raises(ValueError, match="closed"):
        log.read()
    log.append(1, "stderr", "more")
    assert log.lost == len("more")


def test_alternating_streams_and_runs_cost_no_memory_each(log: RankLog):
    for i in range(4000):
        log.append(i % 2, "stdout" if i % 3 else "stderr", f"{i}\n")
    assert len(log._offsets) == 1  # pyright: ignore[reportPrivateUsage]
    assert log.read(run=1, stream="stderr") == "".join(f"{i}\n" for i in range(4000) if i % 2 and i % 3 == 0)


def test_large_text_spans_blocks(log: RankLog):
    text = "".join(f"€{i}\n" for i in range(200_000))
    log.append(1, "stdout", text)
    assert log.read(run=1) == text
    assert log.read(last=100_000) == "".join(f"€{i}\n" for i in range(100_000, 200_000))
    assert log.read(grep="^€19999[89]$") == "€199998\n€199999\n"


def test_one_thread_appends_while_another_reads(log: RankLog):
    def append() -> None:
        for i in range(3000):
            log.append(i % 2, "stdout", f"{i}\n")

    writer = threading.Thread(target=append)
    writer.start()
    while writer.is_alive():
        seen = log.read().split("\n")[:-1]
        assert seen == [str(i) for i in range(len(seen))]
    writer.join()
    assert [log.read(run).count("\n") for run in (0, 1)] == [1500, 1500]


entries = st.tuples(st.integers(0, 3), st.sampled_from(["stdout", "stderr"]), st.text("ab€\n", max_size=6))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(entries, max_size=20),
    st.none() | st.integers(0, 3),
    st.none() | st.sampled_from(["stdout", "stderr"]),
    st.none() | st.integers(0, 5),
    st.none() | st.sampled_from(["a", "b€", "^$"]),
)
def test_it_reads_as_a_list_of_texts_would(entries, run, stream, last, grep):
    log = RankLog()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "_BLOCK", 40)
        for entry in entries:
            log.append(*entry)
        text = "".join(t for r, s, t in entries if run in (None, r) and stream in (None, s))
        lines = [line for line in text.replace("\n", "\n\0").split("\0") if line]
        if grep is not None:
            lines = [line for line in lines if log_module.re.search(grep, line)]
        if last is not None:
            lines = lines[max(0, len(lines) - last) :]
        assert log.read(run, stream, last, grep) == "".join(lines)
    log.close()


@settings(max_examples=100, deadline=None)
@given(st.lists(entries, max_size=20), st.integers(0, 20))
def test_what_comes_after_a_mark_is_read_block_by_block(entries, cut):
    log = RankLog()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "_BLOCK", 40)
        for entry in entries[:cut]:
            log.append(*entry)
        before, mark = drain(log, log_module.Mark())
        for entry in entries[cut:]:
            log.append(*entry)
        after, _ = drain(log, mark)
    assert characters(before) == characters(entries[:cut])
    assert characters(after) == characters(entries[cut:])
    log.close()


@settings(max_examples=100, deadline=None)
@given(st.lists(entries, max_size=20), st.integers(0, 5), st.sampled_from([None, "stderr"]))
def test_enough_lines_stand_after_the_mark_before_the_last(entries, last, stream):
    log = RankLog()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "_BLOCK", 40)
        for entry in entries:
            log.append(*entry)
        kept, _ = drain(log, log.before_last(last, {1, 2}, stream))
    everything = [(r, s, t) for r, s, t in entries if r in (1, 2) and stream in (None, s)]
    found = [(r, s, t) for r, s, t in kept if r in (1, 2) and stream in (None, s)]
    wanted = sum(text.count("\n") for _, _, text in everything)
    assert sum(text.count("\n") for _, _, text in found) >= min(last, wanted)
    log.close()


def test_a_closed_log_has_no_marks(log: RankLog):
    log.append(1, "stdout", "a\n")
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.since(log_module.Mark())
    with pytest.raises(ValueError, match="closed"):
        log.before_last(1)


def drain(log: RankLog, mark: log_module.Mark):
    pieces = []
    while True:
        more, after = log.since(mark)
        if after.offset == mark.offset:
            return pieces, mark
        pieces, mark = pieces + more, after


def characters(pieces):
    return [(run, stream, character) for run, stream, text in pieces for character in text]
