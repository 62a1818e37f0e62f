from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshbook.runtime.wire.tape import Ended, Event, Shown, Tape, Text, mark

TOKEN = "0123456789abcdef"


def m(kind, value: int | None = None) -> bytes:
    return mark(TOKEN, kind, value)


def merged(events: list[Event]) -> list[Event]:
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Text) and isinstance(last, Text) and (last.run, last.stream) == (event.run, event.stream):
            out[-1] = Text(event.run, event.stream, last.text + event.text)
        else:
            out.append(event)
    return out


def read(*pieces: bytes, source: Literal["out", "err"] = "out") -> list[Event]:
    tape = Tape(TOKEN, source)
    return merged([event for piece in pieces for event in tape.feed(piece)] + tape.close())


def test_each_mark_says_what_follows():
    data = m("run", 4) + b"a" + m("err") + b"b" + m("out") + b"c" + m("show", 9) + b"d" + m("end", 4)
    assert read(data) == [
        Text(4, "stdout", "a"),
        Text(4, "stderr", "b"),
        Text(4, "stdout", "c"),
        Shown(4, 9),
        Text(4, "stdout", "d"),
        Ended(4),
    ]


def test_text_before_the_first_run_belongs_to_none():
    assert read(b"hello") == [Text(0, "stdout", "hello")]


def test_a_tape_that_is_ahead_of_the_answers_does_not_go_back():
    """The answers come by another way: that of the first run may lie there still."""
    tape = Tape(TOKEN, "out")
    tape.begin([8, 9, 10])
    assert tape.feed(b"c") == [Text(8, "stdout", "c")]
    assert tape.feed(m("run", 10) + b"x") == [Text(10, "stdout", "x")]
    tape.begin([8, 9, 10])
    assert tape.feed(b"y") == [Text(10, "stdout", "y")]
    tape.begin([])
    assert tape.feed(b"z") == [Text(10, "stdout", "z")]
    tape.begin([11])
    assert tape.feed(b"c") == [Text(11, "stdout", "c")]


def test_all_of_the_err_pipe_is_stderr():
    assert read(m("run", 2) + b"Fatal" + m("end", 2), source="err") == [Text(2, "stderr", "Fatal"), Ended(2)]


def test_after_an_aside_the_tape_is_where_it_was():
    data = m("run", 5) + m("err") + b"a" + m("aside", 3) + b"old" + m("err") + b"!" + m("back") + b"b"
    assert read(data) == [
        Text(5, "stderr", "a"),
        Text(3, "stdout", "old"),
        Text(3, "stderr", "!"),
        Text(5, "stderr", "b"),
    ]


def test_an_aside_inside_a_code_point_leaves_it_whole():
    euro = "€".encode()
    data = m("run", 5) + euro[:1] + m("aside", 5) + b"child" + m("back") + euro[1:]
    assert read(data) == [Text(5, "stdout", "child€")]


def test_a_code_point_over_two_stderr_writes_is_joined():
    euro = "€".encode()
    data = m("err") + euro[:2] + m("out") + m("err") + euro[2:] + m("out")
    assert read(data) == [Text(0, "stderr", "€")]


def test_a_code_point_that_never_ends_is_told_before_the_end_of_its_run():
    assert read(m("run", 1) + b"\xe2\x82" + m("end", 1)) == [Text(1, "stdout", "\ufffd"), Ended(1)]


@pytest.mark.parametrize(
    "forged",
    [
        mark("fedcba9876543210", "end", 1),
        b"\x1b]mb;",
        b"\x1b[31mred\x1b[0m",
        b"\x1b\x1b]mb\x1b",
        m("run", 1)[:-1],
        b"\x1b]mb;" + TOKEN.encode() + b";launch;1\a",
        b"\x1b]mb;" + TOKEN.encode() + b";run;" + b"9" * 40 + b"\a",
    ],
)
@pytest.mark.parametrize("after", [b"", b"tail"])
def test_what_is_no_mark_is_text(forged: bytes, after: bytes):
    data = b"x" + forged + after
    assert read(data) == [Text(0, "stdout", data.decode())]
    assert read(*(bytes([byte]) for byte in data)) == [Text(0, "stdout", data.decode())]


def test_a_broken_mark_does_not_swallow_the_next():
    assert read(m("run", 7)[:-1] + m("run", 8) + b"x")[-1] == Text(8, "stdout", "x")


def test_plain_text_is_not_held_back():
    assert Tape(TOKEN, "out").feed(b"no newline") == [Text(0, "stdout", "no newline")]


def test_a_memoryview_is_as_good():
    assert Tape(TOKEN, "out").feed(memoryview(b"abc")) == [Text(0, "stdout", "abc")]


def test_the_last_end_is_known():
    tape = Tape(TOKEN, "out")
    tape.feed(m("run", 6) + m("end", 6))
    assert tape.ended == 6


def test_a_hundred_megabytes_without_a_newline_take_no_room():
    tape, chunk = Tape(TOKEN, "out"), b"\xe2\x82\xac" * 333_333 + b"\xe2"
    tracemalloc.start()
    for _ in range(100):
        tape.feed(chunk)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 10_000
    assert peak < 20 * len(chunk)


runs = st.integers(0, 3)
texts = st.text(max_size=8) | st.sampled_from(["\x1b", "\x1b]mb;", "€", "\x1b]mb;" + TOKEN[:5], "\x07", "𝄞"])
steps = st.one_of(
    st.tuples(st.just("text"), texts),
    st.tuples(st.sampled_from(["run", "show", "end", "aside"]), runs),
    st.tuples(st.sampled_from(["err", "out", "back"]), st.none()),
)


def told(script: list[tuple[str, object]]) -> list[Event]:
    """What a tape must say of a script whose texts are whole: the rules of the marks, once more and plainly."""
    events: list[Event] = []
    main: tuple[int, str] = (0, "stdout")
    aside: tuple[int, str] | None = None
    for kind, value in script:
        run, stream = aside or main
        match kind:
            case "text" if value:
                events.append(Text(run, stream, value))  # pyright: ignore[reportArgumentType]
            case "run":
                main, aside = (value, "stdout"), None  # pyright: ignore[reportAssignmentType]
            case "show":
                events.append(Shown(run, value))  # pyright: ignore[reportArgumentType]
            case "end":
                events.append(Ended(value))  # pyright: ignore[reportArgumentType]
            case "aside":
                aside = (value, "stdout")  # pyright: ignore[reportAssignmentType]
            case "back":
                aside = None
            case "err" | "out" if aside:
                aside = (run, f"std{kind}")
            case "err" | "out":
                main = (run, f"std{kind}")
            case _:
                pass
    return merged(events)


def written(script: list[tuple[str, object]]) -> bytes:
    return b"".join(v.encode() if k == "text" else m(k, v) for k, v in script)  # type: ignore


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=12), st.lists(st.integers(0, 500), max_size=12))
def test_any_script_in_any_cuts_is_told_right(script, places):
    assert read(*cut(written(script), places)) == told(script)


noise = st.lists(st.binary(max_size=6) | st.sampled_from([b"\xe2\x82", b"\xac", m("err"), m("end", 1), b"\x1b]mb;"]))


@settings(max_examples=150, deadline=None)
@given(noise, st.lists(st.integers(0, 500), max_size=12))
def test_the_cuts_do_not_matter_for_bytes_of_any_kind(pieces, places):
    data = b"".join(pieces)
    assert read(*cut(data, places)) == read(data)
