"""A cell's values, its last value, its magics and streams, and what it displays."""

from __future__ import annotations

import ast
import gc
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from meshbook.kernel.outcome import Outcome
from meshbook.runtime.wire import codec

if TYPE_CHECKING:
    from tests.kernel.conftest import Notebook


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1 + 1", "2"),
        ("x = 20\nx + 1", "21"),
        ("rank", "3"),
        ("'a;b'", "'a;b'"),
        ("'é'; 5", "5"),
        ("get_ipython().user_ns['rank']", "3"),
        ("a = !echo hi\na", "['hi']"),
        ("%precision 2\n1/3", "0.33"),
        ("import asyncio\nawait asyncio.sleep(0); 7", "7"),
        ("import asyncio\nx = await asyncio.sleep(0, 8)\nx", "8"),
        ("import asyncio\n[i async for i in (lambda: (asyncio.sleep(0) for i in []))()] if 0 else 9", "9"),
        ("__name__", "'__main__'"),
    ],
)
def test_a_cell_has_the_value_of_its_last_expression(notebook: Notebook, source: str, text: str) -> None:
    assert notebook.value(source).text == text


@pytest.mark.parametrize(
    "source",
    [
        "",
        "   \n",
        "# only words",
        "x = 1",
        "x = 1;",
        "5;",
        "'é';  # quiet",
        "5  \\\n;",
        "None",
        "def f(): 1",
        "x = 'a\u2028b'\n5;",
    ],
)
def test_a_cell_has_no_value(notebook: Notebook, source: str) -> None:
    assert notebook.run(source) == Outcome()


def test_values_travel(notebook: Notebook) -> None:
    pickled = notebook.value("[1, {'a': (2.5, 'é')}]").pickled
    assert pickled is not None
    assert codec.loads(pickled) == [1, {"a": (2.5, "é")}]


def test_the_last_value_is_kept_under_one_name_and_no_older_one(notebook: Notebook) -> None:
    notebook.run("class Thing: pass")
    notebook.run("Thing()")
    first = weakref.ref(notebook.shell.namespace["_"])
    assert notebook.value("type(_).__name__").text == "'Thing'"
    gc.collect()
    assert first() is None
    assert notebook.value("_").text == "'Thing'"


def test_a_rank_is_no_prompt(notebook: Notebook) -> None:
    """Lightning refuses to train over several processes where `sys.ps1` says that somebody types."""
    assert notebook.value("import sys\nhasattr(sys, 'ps1')").text == "False"


def test_a_users_own_underscore_stays(notebook: Notebook) -> None:
    notebook.run("_ = 'gettext'")
    notebook.run("5")
    assert notebook.value("_").text == "'gettext'"


def test_a_quiet_cell_does_not_change_the_last_value(notebook: Notebook) -> None:
    notebook.run("4")
    notebook.run("5;")
    assert notebook.value("_").text == "4"


def test_future_imports_hold_for_later_cells(notebook: Notebook) -> None:
    notebook.run("from __future__ import annotations")
    assert notebook.value("def f(x: nowhere): pass\nf.__annotations__").text == "{'x': 'nowhere'}"


def test_a_transformer_of_a_user_is_called_for_plain_python_too(notebook: Notebook) -> None:
    notebook.run("get_ipython().input_transformers_post.append(lambda ls: [l.replace('two', '2') for l in ls])")
    assert notebook.value("two + two").text == "4"


def test_a_transformer_of_syntax_trees_is_called(notebook: Notebook) -> None:
    notebook.run(
        "import ast\n"
        "class Twice(ast.NodeTransformer):\n"
        "    def visit_Constant(self, node): return ast.Constant(node.value * 2)\n"
        "get_ipython().ast_transformers.append(Twice());"
    )
    assert notebook.value("4").text == "8"


def test_a_transformer_that_comes_later_holds_for_cells_that_run_again(notebook: Notebook) -> None:
    assert notebook.value("4").text == "4"
    notebook.run(
        "import ast\n"
        "class Twice(ast.NodeTransformer):\n"
        "    def visit_Constant(self, node): return ast.Constant(node.value * 2)\n"
        "twice = Twice()\n"
        "get_ipython().ast_transformers.append(twice);"
    )
    assert notebook.value("4").text == "8"
    notebook.run("get_ipython().ast_transformers.remove(twice)")
    assert notebook.value("4").text == "4"


def test_a_future_import_holds_for_cells_that_run_again(notebook: Notebook) -> None:
    source = "def f(x: int): pass\nf.__annotations__['x']"
    assert notebook.value(source).text == "int"
    notebook.run("from __future__ import annotations")
    assert notebook.value(source).text == "'int'"


def test_extensions_hear_of_cells_also_of_failing_ones(notebook: Notebook) -> None:
    notebook.run(
        "heard = []\n"
        "events = get_ipython().events\n"
        "events.register('pre_run_cell', lambda info: heard.append(info.raw_cell))\n"
        "events.register('post_execute', lambda: heard.append('end'))"
    )
    notebook.run("1 / 0")
    assert notebook.value("heard").text == "['end', '1 / 0', 'end', 'heard']"


def test_an_automagic_word_is_a_magic_and_a_variable_is_a_variable(notebook: Notebook) -> None:
    assert notebook.value("pwd").text == repr(os.getcwd())
    assert notebook.value("pwd = 3\npwd").text == "3"
    assert notebook.value("pwd").text == "3"


def test_output_of_magics_is_printed(notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    notebook.run("%timeit -n1 -r1 pass")
    notebook.run("%%timeit -n1 -r1\npass")
    assert capsys.readouterr().out.count("1 run, 1 loop each") == 2
    assert notebook.value("%%time\n6 * 7").text == "42"
    assert "Wall time" in capsys.readouterr().out


def test_what_a_script_raises_fails_its_cell(notebook: Notebook, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("lr = 0.1\n1 / 0\n")
    failure = notebook.failure(f"%run {script}")
    assert failure.type_name == "ZeroDivisionError"
    mine = [(frame.file, frame.line) for frame in failure.frames if frame.is_user]
    assert mine == [("cell 1", 1), (str(script), 2)]
    assert notebook.value("lr, __name__").text == "(0.1, '__main__')"
    assert notebook.failure(f"%run -i {script}").type_name == "ZeroDivisionError"


def test_a_script_that_runs_again_is_a_main_module_for_multiprocessing(notebook: Notebook, tmp_path: Path) -> None:
    script = tmp_path / "twice.py"
    script.write_text("import sys\nspec = sys.modules['__main__'].__spec__")
    for _ in range(2):
        assert notebook.run(f"%run {script}").failure is None
        assert notebook.value("spec is None").text == "True"


@pytest.mark.parametrize(("code", "fails"), [("0", False), ("", False), ("3", True), ("'no data'", True)])
@pytest.mark.parametrize("way", ["{0}/ends.py", "-m ends"])
def test_a_script_that_exits_well_does_not_fail(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, fails: bool, way: str
) -> None:
    (tmp_path / "ends.py").write_text(f"import sys\nsys.exit({code})\n")
    monkeypatch.syspath_prepend(tmp_path)
    failure = notebook.run(f"%run {way.format(tmp_path)}").failure
    assert (failure is not None and failure.type_name == "SystemExit") == fails
    if not way.startswith("-m"):
        assert notebook.run(f"%run -e {tmp_path}/ends.py").failure is None


def test_commands_write_to_the_file_descriptors(notebook: Notebook, capfd: pytest.CaptureFixture[str]) -> None:
    notebook.run("word = 'hi'\nprint('first')\n!echo {word} $rank; echo bad >&2; exit 4\nprint(_exit_code)")
    out, err = capfd.readouterr()
    assert (out, err) == ("first\nhi 3\n4\n", "bad\n")


def test_help_is_printed(notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    notebook.run("from meshbook.kernel.outcome import Outcome")
    notebook.run("Outcome?")
    assert "How a cell ended" in capsys.readouterr().out


def test_a_replaced_stream_is_put_back(notebook: Notebook) -> None:
    before = sys.stdout, sys.stderr
    notebook.failure("import sys, io\nsys.stdout = sys.stderr = io.StringIO()\n1/0")
    assert (sys.stdout, sys.stderr) == before


def test_source_of_functions_is_found_and_of_an_older_run_too(notebook: Notebook) -> None:
    notebook.run("def f():\n    return 'old'\n")
    old = notebook.shell.namespace["f"]
    notebook.run("def f():\n    return 'new'\n", first_line=4)
    new = notebook.shell.namespace["f"]
    assert inspect.getsource(old) == "def f():\n    return 'old'\n"
    assert inspect.getsource(new) == "def f():\n    return 'new'\n"
    assert new.__code__.co_firstlineno == 4


def test_classes_of_cells_travel_by_value(notebook: Notebook) -> None:
    notebook.run("class Point:\n    def __init__(self, x): self.x = x")
    pickled = notebook.value("Point(4)").pickled
    assert pickled is not None
    assert codec.loads(pickled).x == 4


def test_a_rank_has_no_editor(notebook: Notebook) -> None:
    failure = notebook.failure("%edit -x notes.py")
    assert (failure.type_name, failure.message.partition(":")[0]) == ("UsageError", "a rank has no editor")
    failure = notebook.failure(f"%load {__file__}")
    assert (failure.type_name, failure.message.partition(":")[0]) == ("UsageError", "a rank writes into no cell")


@pytest.mark.parametrize(
    "magic, instead",
    [("%debug", "`%mesh debug --pm`"), ("%tb", "`%mesh debug --pm`"), ("%pdb on", "`%%on_mesh --on-error debug`")],
)
def test_a_magic_that_looks_for_errors_on_a_rank_says_where_they_are(
    notebook: Notebook, magic: str, instead: str
) -> None:
    failure = notebook.failure(f"x = 1\n{magic}")
    assert failure.type_name == "UsageError"
    assert instead in failure.message


def test_a_line_magic_in_a_function_sees_its_names(notebook: Notebook) -> None:
    notebook.run("def f(inner):\n    made = %sx echo {inner}\n    %timeit -n1 -r1 inner + 'x'\n    return made")
    assert notebook.value("f('seen')").text == "['seen']"


def test_a_context_variable_of_an_awaited_cell_is_seen_by_its_last_expression(notebook: Notebook) -> None:
    notebook.run("import asyncio, contextvars\nv = contextvars.ContextVar('v')")
    assert notebook.value("v.set(5)\nawait asyncio.sleep(0)\nv.get()").text == "5"


def test_a_task_of_one_cell_is_awaited_in_the_next(notebook: Notebook) -> None:
    notebook.run("import asyncio\nasync def work(): return 'done'")
    notebook.run("task = asyncio.ensure_future(work())\nawait asyncio.sleep(0)")
    assert notebook.value("await task").text == "'done'"


@pytest.mark.parametrize(
    "make", ["asyncio.create_task", "asyncio.ensure_future", "asyncio.get_running_loop().create_task"]
)
def test_a_task_is_made_in_a_cell_without_await(notebook: Notebook, make: str) -> None:
    notebook.run("import asyncio\nasync def work(): return 'done'")
    notebook.run(f"task = {make}(work())")
    assert notebook.value("await task").text == "'done'"


def test_asyncio_run_works_in_a_cell_without_await(notebook: Notebook) -> None:
    assert notebook.value("import asyncio\nasync def f(): return 6\nasyncio.run(f())").text == "6"


def test_displays_come_in_order_with_their_run(notebook: Notebook) -> None:
    notebook.run("def show(x):\n    display(x)\n    display(x + 1)")
    notebook.run("display(0)\nshow(1)\nget_ipython().display_pub.clear_output(wait=True)\ndisplay(9)")
    assert [(d.run, d.number, d.mime.get("text/plain"), d.is_clear) for d in notebook.shown] == [
        (2, 1, "0", False),
        (2, 2, "1", False),
        (2, 3, "2", False),
        (2, 4, None, True),
        (2, 5, "9", False),
    ]
    assert notebook.shown[3].metadata == {"wait": True}


@pytest.mark.parametrize("end", ["KeyboardInterrupt", "SystemExit"])
def test_asyncio_complains_of_no_cell_that_was_ended(
    notebook: Notebook, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    outcome = notebook.run(f"import asyncio\nawait asyncio.sleep(0)\nraise {end}")
    assert outcome.failure is not None and outcome.failure.type_name == end
    notebook.shell.last_error = None
    gc.collect()
    assert not caplog.records


class Trash:
    """Is only there to be collected, parses a text then, and leaves another one of its kind."""

    is_wanted = True

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ast.parse("f(1)")
        if Trash.is_wanted:
            Trash()


def test_a_destructor_that_parses_does_not_spoil_a_cell(notebook: Notebook) -> None:
    source = "[[[(1 + 2)]]]\n" * 50 + "7"
    former = gc.get_threshold()
    gc.set_threshold(1)
    try:
        Trash()
        outcome = notebook.run(source)
    finally:
        Trash.is_wanted = False
        gc.set_threshold(*former)
        gc.collect()
    assert outcome.value is not None and outcome.value.text == "7", outcome.failure


def test_shells_in_threads_do_not_mix(new_notebook: Callable[[], Notebook]) -> None:
    notebooks = [new_notebook() for _ in range(2)]
    barrier = threading.Barrier(2)
    for number, notebook in enumerate(notebooks):
        notebook.shell.namespace.update(number=number, barrier=barrier)
    outcomes: dict[int, Outcome] = {}

    def run(number: int) -> None:
        notebooks[number].run("barrier.wait(5)\ndisplay(number)\nbarrier.wait(5)")
        outcomes[number] = notebooks[number].run("import asyncio\nawait asyncio.sleep(0, number)")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [d.mime["text/plain"] for notebook in notebooks for d in notebook.shown] == ["0", "1"]
    assert [outcome.value.text if outcome.value else outcome for _, outcome in sorted(outcomes.items())] == [
        "0",
        "1",
    ]


def test_autoreload_does_without_what_another_ipython_may_not_have(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("IPython.extensions.autoreload.ModuleReloader.mark_module_skipped")
    notebook.shell.autoreload(True)
    assert notebook.value("6 * 7").text == "42"
    notebook.shell.autoreload(False)
