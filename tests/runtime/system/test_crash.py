"""The stacks of a crash, found in what a process wrote: real ones, and any cut of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.system import crash
from meshbook.runtime.system.crash import Place, Sieve

DUMP = """Fatal Python error: Segmentation fault

Thread 0x00007fe039f136c0 (most recent call first):
  File "/lib/threading.py", line 982 in run
  File "/lib/threading.py", line ??? in _bootstrap

Current thread 0x00007fe05a675b80 [main] (most recent call first):
  File "/lib/ctypes/__init__.py", line 519 in string_at
  File "<ipython-input-4-00000002>", line 3 in f
  File "<ipython-input-4-00000002>", line 5 in <module>

Current thread's C stack trace (most recent call first):
  Binary file "/usr/lib/libpython3.so", at _Py_DumpStack+0x31 [0x7f]
  <truncated rest of calls>

Extension modules: numpy._core, torch._C (total: 2)
"""

CRASHING = "import ctypes, sys\ndef f():\n    ctypes.string_at(0)\nprint('careful', file=sys.stderr, flush=True)\nf()\n"


def test_a_dump_is_read() -> None:
    told = crash.read("careful\n" + DUMP)
    assert told is not None
    assert told.what == "Segmentation fault"
    cell = "<ipython-input-4-00000002>"
    assert told.stack == (
        Place("/lib/ctypes/__init__.py", 519, "string_at"),
        Place(cell, 3, "f"),
        Place(cell, 5, "<module>"),
    )
    assert told.others == (Place("/lib/threading.py", 982, "run"),)


def test_of_two_crashes_the_last_counts() -> None:
    later = 'Left by os._exit(3)\n\nStack (most recent call first):\n  File "a.py", line 1 in g\n'
    told = crash.read(DUMP + later)
    assert told == crash.Crash("os._exit(3)", (Place("a.py", 1, "g"),))


def test_a_python_traceback_is_no_dump() -> None:
    said = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: no\n\nlast\n'
    assert (crash.read(said), crash.without(said), Sieve().feed(said)) == (None, said, said)


def test_last_words_are_told_without_the_stacks_even_of_half_a_dump() -> None:
    assert crash.without(f"before\n{DUMP}after\n") == "before\nafter\n"
    assert crash.without(DUMP[60:].partition("\n")[2]) == ""


@given(st.data())
def test_however_the_text_is_cut_the_dump_is_held_back(data: st.DataObject) -> None:
    text = f"before\n{DUMP}after\n"
    begun = len("before\nFatal Python error: ")  # faulthandler writes so much in one piece
    cuts = sorted(data.draw(st.sets(st.integers(begun, len(text)), max_size=8)))
    sieve = Sieve()
    said = [sieve.feed(text[start:end]) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(said) == "before\nafter\n"
    assert sieve.crash() == crash.read(text)


def test_the_frames_of_an_actor_begin_with_its_endpoint_and_name_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on a thread, and its class came to the rank by value: with the name that IPython gives the cell."""
    monkeypatch.setattr(crash, "cell_of", {"/tmp/ipykernel_7/12.py": "cell 3"}.get)
    thread = [Place("/lib/threading.py", line, name) for line, name in ((982, "run"), (1002, "_bootstrap"))]
    stack = [Place("/lib/ctypes/__init__.py", 519, "string_at"), Place("/tmp/ipykernel_7/12.py", 31, "crash"), *thread]
    assert crash.places_text(stack) == ["cell 3, line 31, in crash", "/lib/ctypes/__init__.py, line 519, in string_at"]


def test_what_was_held_back_can_be_had_after_all() -> None:
    sieve = Sieve()
    assert sieve.feed(DUMP) == ""
    assert sieve.rest() == DUMP
    assert Sieve().rest() == ""


@pytest.mark.slow
def test_what_this_python_writes_is_understood() -> None:
    program = [sys.executable, "-X", "faulthandler", "-c", CRASHING]
    said = subprocess.run(program, stderr=subprocess.PIPE, text=True).stderr
    told = crash.read(said)
    assert told is not None
    assert told.what == "Segmentation fault"
    assert [(place.file, place.line, place.name) for place in told.stack if place.file == "<string>"] == [
        ("<string>", 3, "f"),
        ("<string>", 5, "<module>"),
    ]
    assert crash.without(said) == "careful\n"
