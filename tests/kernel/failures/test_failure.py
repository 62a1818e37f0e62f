"""How a cell fails: frames of the user, text, and the exception itself where it can travel."""

from __future__ import annotations

import gc
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from IPython.core.magics.execution import ExecutionMagics

from meshbook.kernel.sources.source import file_of
from meshbook.runtime.wire import codec

if TYPE_CHECKING:
    from tests.kernel.conftest import Notebook


def test_frames_of_an_earlier_cells_function_are_the_users_with_their_sources(notebook: Notebook) -> None:
    notebook.run("def f(a):\n    return 1 / a\n")
    failure = notebook.failure("x = 1\nf(0)", first_line=2)
    assert (failure.type_name, failure.message) == ("ZeroDivisionError", "division by zero")
    assert [(f.file, f.line, f.name, f.source, f.is_user) for f in failure.frames] == [
        ("cell 2", 3, "<module>", "f(0)", True),
        ("cell 1", 2, "f", "return 1 / a", True),
    ]
    assert "IPython" not in failure.traceback
    assert "meshbook" not in failure.traceback


def test_a_cell_that_runs_again_under_another_number_fails_in_that_one(notebook: Notebook) -> None:
    source = "def f():\n    return [1 / x for x in (1, 0)]\nclass A:\n    f = lambda self: f()\nA().f()"
    for cell in ("cell 1", "cell 2"):
        failure = notebook.failure(source)
        assert [(f.file, f.line) for f in failure.frames][:3] == [(cell, 5), (cell, 4), (cell, 2)]
        assert [f.source for f in failure.frames][:2] == ["A().f()", "f = lambda self: f()"]
    assert notebook.value("import inspect; inspect.getsource(f)").text.startswith("'def f()")


def test_frames_of_libraries_are_not_the_users(notebook: Notebook) -> None:
    failure = notebook.failure("import json\njson.loads('{')")
    assert [frame.is_user for frame in failure.frames] == [True, False, False, False]


def test_frames_of_a_users_module_are_the_users(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "their_module.py").write_text("def g():\n    raise KeyError('k')\n")
    failure = notebook.failure(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport their_module\ntheir_module.g()"
    )
    sys.path.remove(str(tmp_path))
    del sys.modules["their_module"]
    assert [frame.is_user for frame in failure.frames] == [True, True]
    assert (failure.frames[1].name, failure.message) == ("g", "'k'")


@pytest.mark.parametrize("end", ["\f", "\v", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_frame_shows_its_line_below_what_ends_lines_elsewhere_only(notebook: Notebook, end: str) -> None:
    frame = notebook.failure(f"x = 'one{end}two'\ny = 1\n1 / 0\nz = 3").frames[-1]
    assert (frame.line, frame.source) == (3, "1 / 0")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_frame_shows_its_line_whatever_ends_lines(notebook: Notebook, end: str) -> None:
    frame = notebook.failure(f"y = 1{end}1 / 0{end}z = 3").frames[-1]
    assert (frame.line, frame.source) == (2, "1 / 0")


def test_frames_of_awaited_functions(notebook: Notebook) -> None:
    notebook.run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    raise ValueError('late')")
    failure = notebook.failure("x = 1\nawait f()")
    assert [(f.file, f.line) for f in failure.frames] == [("cell 2", 2), ("cell 1", 4)]
    assert "run_until_complete" not in failure.traceback


def test_a_signal_handler_that_raises_while_a_failure_is_told_is_what_failed(notebook: Notebook) -> None:
    # torch's DataLoader has one, which knows better than the broken pipe before it what has happened.
    failure = notebook.failure(
        "class Stop(BaseException): ...\n"
        "told = []\n"
        "class Pipe(Exception):\n"
        "    def __str__(self):\n"
        "        told.append(self)\n"
        "        if len(told) == 1: raise Stop('a worker has died')\n"
        "        return 'broken'\n"
        "raise Pipe"
    )
    assert failure.type_name == "Stop"
    assert failure.message == "a worker has died\nwhile handling Pipe: broken (cell 1, line 8)"
    assert [(frame.file, frame.line, frame.source) for frame in failure.frames] == [("cell 1", 8, "raise Pipe")]


def test_who_presses_stop_as_a_failure_is_told_is_told_it(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    presses, loads = [KeyboardInterrupt()], codec.loads
    monkeypatch.setattr(codec, "loads", lambda data: _raise(presses.pop()) if presses else loads(data))
    failure = notebook.failure("x = 1\n1 / 0")
    assert not presses
    assert (failure.type_name, failure.message) == ("ZeroDivisionError", "division by zero")
    assert [(frame.file, frame.line) for frame in failure.frames] == [("cell 1", 2)]
    assert failure.pickled is not None


def test_a_text_of_the_users_that_takes_too_long_is_left_out(notebook: Notebook) -> None:
    failure = notebook.failure(
        "class Slow(Exception):\n    def __str__(self):\n        raise KeyboardInterrupt\nraise Slow"
    )
    assert (failure.type_name, failure.message) == ("Slow", "(it was interrupted before it could say more)")
    assert [(frame.file, frame.line) for frame in failure.frames] == [("cell 1", 4)]
    assert notebook.value("1").text == "1"


def test_who_presses_stop_again_and_again_hears_what_is_known(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "loads", lambda data: _raise(KeyboardInterrupt()))
    failure = notebook.failure("1 / 0")
    assert (failure.type_name, failure.message) == ("ZeroDivisionError", "division by zero")
    failure = notebook.failure("class Odd:\n    def __repr__(self): return 'odd'\nraise ValueError(Odd())")
    assert (failure.type_name, failure.message) == ("ValueError", "(it was interrupted before it could say more)")


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("x = 1\nx = (1,\n", 3, "'(' was never closed (cell 1, line 3)"),
        ("x = 1\n  y = 2", 3, "unexpected indent (cell 1, line 3)"),
        ("\n\nif x:\n    x = 1\n  y = 2", 6, "unindent does not match any outer indentation level (cell 1, line 6)"),
        ("return 3", 2, "'return' outside function (cell 1, line 2)"),
        ("%time x = = 3", 2, "invalid syntax"),
    ],
)
def test_syntax_errors_name_the_line(notebook: Notebook, source: str, line: int, message: str) -> None:
    failure = notebook.failure(source, first_line=2)
    assert failure.message.startswith(message)
    assert failure.type_name in ("SyntaxError", "IndentationError")
    assert (failure.frames[0].file, failure.frames[0].line) == ("cell 1", line)


def test_a_syntax_error_shows_its_line_and_a_caret(notebook: Notebook) -> None:
    failure = notebook.failure("x = 1\ny = x x")
    assert failure.frames[0].source == "y = x x\n      ^"
    assert "^" in failure.traceback
    assert "y = x x" in failure.traceback


def test_a_line_whose_indent_fits_no_other_keeps_it(notebook: Notebook) -> None:
    shown, caret = notebook.failure("if x:\n    x = 1\n  y = 2").frames[-1].source.split("\n")
    assert shown == "  y = 2" and caret.strip() == "^"  # where it stands has changed in Python 3.12


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("x = 1\n\ty = 2", "\ty = 2\n\t^"),
        ("def f(:\n    pass", "def f(:\n      ^"),
        ("!ls\ndef f(:\n    pass", "def f(:\n      ^"),
        ("é = 'a' 5", "é = 'a' 5\n        ^"),
        ("x = 'a", "x = 'a\n    ^"),
        ("x = 1 +", "x = 1 +\n       ^"),
        ("%time x = = 3", "x = = 3\n    ^"),
    ],
)
def test_the_line_of_a_syntax_error_keeps_its_indent_and_has_a_caret(
    notebook: Notebook, source: str, shown: str
) -> None:
    assert notebook.failure(source, first_line=2).frames[-1].source == shown


raises_what_is_timed = pytest.mark.skipif(
    "no-raise-error" not in str(ExecutionMagics.time.__doc__), reason="older IPythons print what a timed line raises"
)


@raises_what_is_timed
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("%%time\n1 / 0", 3),
        ("%%time\n\n\nx = 1\n1 / 0", 6),
        ("%%time\ndef f():\n    return 1 / 0\n1 + 1\nf()", 6),
    ],
)
def test_lines_below_a_timing_magic_are_the_cells(notebook: Notebook, source: str, line: int) -> None:
    failure = notebook.failure(source, first_line=2)
    own = [frame for frame in failure.frames if frame.file == "cell 1"]
    assert [(frame.line, frame.source) for frame in own] == [(2, "%%time"), (line, source.splitlines()[line - 2])]


@raises_what_is_timed
def test_a_line_that_is_timed_alone_is_told_of_once(notebook: Notebook) -> None:
    failure = notebook.failure("x = 1\n%time 1 / 0", first_line=2)
    assert [(f.file, f.source) for f in failure.frames if f.is_user] == [
        ("cell 1", "%time 1 / 0"),
        ("<timed eval>", ""),
    ]


def test_a_syntax_error_in_code_that_a_cell_executes(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    # From Python 3.13 on, a program that was started by `-c`, as pytest's workers are, has that name itself.
    monkeypatch.delitem(linecache.cache, "<string>", raising=False)
    failure = notebook.failure("exec('1 +')")
    assert [(f.file, f.source) for f in failure.frames] == [("cell 1", "exec('1 +')"), ("<string>", "1 +\n   ^")]


def test_an_unknown_magic(notebook: Notebook) -> None:
    failure = notebook.failure("%nowhere")
    assert (failure.type_name, failure.traceback) == ("UsageError", f"UsageError: {failure.message}")
    assert failure.message.startswith("Line magic function `%nowhere` not found")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import sys\nsys.exit()", "sys.exit() ended the cell; the rank lives on"),
        ("import sys\nsys.exit(3)", "sys.exit(3) ended the cell; the rank lives on"),
        ("exit", "sys.exit() ended the cell; the rank lives on"),
        ("quit()", "sys.exit() ended the cell; the rank lives on"),
    ],
)
def test_exit_is_a_failure_and_the_rank_lives(notebook: Notebook, source: str, message: str) -> None:
    failure = notebook.failure(source)
    assert (failure.type_name, failure.message) == ("SystemExit", message)
    assert "meshbook" not in failure.traceback
    assert notebook.value("1").text == "1"


def test_an_error_that_can_be_rebuilt_travels(notebook: Notebook) -> None:
    pickled = notebook.failure("raise KeyError('axis', 4)").pickled
    assert pickled is not None
    error = codec.loads(pickled)
    assert (type(error), error.args) == (KeyError, ("axis", 4))


@pytest.mark.parametrize(
    "source",
    [
        "class Bad(Exception):\n    def __init__(self, a, b): super().__init__(a)\nraise Bad(1, 2)",
        "class Bad(Exception):\n    def __init__(self, a): super().__init__('bad: ' + a)\nraise Bad('x')",
        "import threading\nraise ValueError(threading.Lock())",
        "raise ValueError('x' * 1_000_000)",
    ],
)
def test_an_error_that_cannot_be_rebuilt_does_not_travel(notebook: Notebook, source: str) -> None:
    failure = notebook.failure(source)
    assert failure.pickled is None
    assert failure.type_name in ("Bad", "ValueError")


def test_an_error_that_cannot_be_printed(notebook: Notebook) -> None:
    notebook.run("class Mute(Exception):\n    def __str__(self): raise RuntimeError\n    __repr__ = __str__")
    failure = notebook.failure("raise Mute")
    assert failure.message == "<its __str__ raised RuntimeError>"
    assert failure.frames[0].source == "raise Mute"


HOSTILE = {
    "attributes": "def __getattribute__(self, name): raise RuntimeError('of its own')",
    "properties": "__class__ = __notes__ = args = __traceback__ = property(lambda self: sys.exit(3))",
    "class": "pass\nclass Of(type):\n    __name__ = property(lambda self: 1 / 0)\nclass Odd(Odd, metaclass=Of): ...",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_an_error_whose_attributes_raise_is_told(notebook: Notebook, body: str) -> None:
    notebook.run(f"import sys\nclass Odd(Exception):\n    {body}")
    failure = notebook.failure("raise Odd('boom')")
    assert (failure.type_name, failure.message) == ("Odd", "boom")
    assert [(frame.line, frame.source) for frame in failure.frames] == [(1, "raise Odd('boom')")]
    beside = notebook.failure("try: raise Odd\nexcept Exception: raise ValueError('second')")
    assert (beside.type_name, beside.message.partition("\n")[0], beside.frames[0].line) == ("ValueError", "second", 2)
    assert notebook.value("1").text == "1"


def test_a_long_message_is_shortened(notebook: Notebook) -> None:
    failure = notebook.failure("raise ValueError('x' * 50_000_000)")
    assert len(failure.message) < 70_000
    assert len(failure.traceback) < 300_000


def test_chained_errors_are_in_the_text(notebook: Notebook) -> None:
    text = notebook.failure(
        "try:\n    1 / 0\nexcept Exception as error:\n    raise ValueError('outer') from error"
    ).traceback
    assert "division by zero" in text
    assert "direct cause" in text
    assert "outer" in text


def test_how_a_magic_is_run_is_not_in_the_text(notebook: Notebook) -> None:
    text = notebook.failure("def f(): 1 / 0\n%timeit -n1 -r1 f()").traceback
    assert 'File "cell 1", line 2' in text and ", in timeit\n" in text and 'File "cell 1", line 1, in f' in text
    assert "meshbook" not in text and "magic_shell" not in text


def test_who_has_asked_for_another_form_gets_it(notebook: Notebook) -> None:
    notebook.run("class Own(Exception):\n    def _render_traceback_(self): return ['in my', 'own words']")
    assert notebook.failure("raise Own").traceback == "in my\nown words"
    notebook.run("%xmode Minimal")
    assert "line 1" not in notebook.failure("1 / 0").traceback
    notebook.run("%xmode Context")
    assert "line 1" in notebook.failure("1 / 0").traceback


def test_all_errors_of_a_group_are_in_the_text(notebook: Notebook) -> None:
    failure = notebook.failure("raise ExceptionGroup('both', [ValueError('left'), KeyError('right')])")
    assert failure.message == "both (2 sub-exceptions)\n- ValueError: left\n- KeyError: 'right'"
    assert "ValueError: left" in failure.traceback
    assert "KeyError: 'right'" in failure.traceback
    assert 'File "cell 1", line 1' in failure.traceback


def test_notes_are_in_the_text(notebook: Notebook) -> None:
    assert "look here" in notebook.failure("e = ValueError('x')\ne.add_note('look here')\nraise e").traceback


def test_a_recursion_without_end_is_told_in_few_frames(notebook: Notebook) -> None:
    failure = notebook.failure("def f(n): return f(n + 1)\nf(0)")
    assert failure.type_name == "RecursionError"
    assert len(failure.frames) == 64
    assert failure.frames[0].source == "f(0)"
    assert len(failure.traceback) < 20_000


RECURSION = """
import sys
limit = sys.getrecursionlimit()
sys.setrecursionlimit(9000)
def f(n): return g(n - 1) if n else 1 / 0
def g(n): return f(n)
try: f(3000)
except ZeroDivisionError as error: raise error.with_traceback(error.__traceback__) from None
finally: sys.setrecursionlimit(limit)
"""


def test_of_a_recursion_of_thousands_the_innermost_frames_are_printed(notebook: Notebook) -> None:
    failure = notebook.failure(RECURSION)
    assert (failure.type_name, len(failure.frames)) == ("ZeroDivisionError", 64)
    assert failure.traceback.count(", in g") == 1000 and failure.traceback.endswith("division by zero")


def test_equal_failures_give_equal_bytes(new_notebook: Callable[[], Notebook]) -> None:
    def fail() -> bytes:
        notebook = new_notebook()
        notebook.run("def f(): return {}['k']")
        return msgspec.msgpack.encode(notebook.run("f()"))

    assert fail() == fail()


def test_an_error_is_kept_for_the_debugger_until_the_next_cell(notebook: Notebook) -> None:
    notebook.run("import weakref\nclass Big: pass")
    notebook.run("def f():\n    global seen\n    big = Big()\n    seen = weakref.ref(big)\n    1/0")
    notebook.failure("f()")
    error = notebook.shell.last_error
    assert error is not None
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_frame.f_code.co_filename == file_of("cell 3", "f()")
    seen = notebook.shell.namespace["seen"]
    assert seen() is not None
    del error
    notebook.run("pass")
    gc.collect()
    assert seen() is None


def test_a_value_with_a_failing_repr_is_told_and_travels(notebook: Notebook) -> None:
    notebook.run("class Odd:\n    def __repr__(self): raise ValueError('no')")
    value = notebook.value("Odd()")
    assert value.text == "<Odd whose repr fails: ValueError: no>"
    assert value.pickled is not None


def test_a_repr_that_exits_is_a_failure(notebook: Notebook) -> None:
    notebook.run("class Odd:\n    def __repr__(self): raise SystemExit(2)")
    assert notebook.failure("Odd()").type_name == "SystemExit"
